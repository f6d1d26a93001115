"""Two runs compared on the trials they share, family by family; what asked something else is
refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from needlemap.errors import NeedlemapError, SettingsError, VocabularyMissing, naming
from needlemap.grid import percent
from needlemap.records import (
    contrast,
    how_to_score,
    outdated,
    phrase,
    prompt_contrast,
)
from needlemap.records.families import Families, families_of
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.results import reader_of
from needlemap.stats import place_label
from needlemap.stats.comparison import Comparison, compare_families, noise_of
from needlemap.stats.looks import Scope
from needlemap.stats.pairs import WEIGHS, Pairs, Token, pair_answers, pair_up
from needlemap.tokenizers import bundled_for, load

# Points by which a loss is judged if nobody typed a margin.
MARGIN = 2.0

# Families that two runs have started, as they were read.
RunPairs = Mapping[str, tuple[Loaded, Loaded]]


@dataclass(frozen=True, slots=True)
class Names:
    """How the two runs are called.

    Attributes:
        differ: In what their settings differ, as a phrase.
        notes: What else to report of them.
        families: Of runs with several families, how each family's two are called.
        only_first, only_second: Families that one of the runs alone has started.
        short: Their names in the verdict, by their labels or folders.
    """

    first: str
    second: str
    differ: str
    notes: tuple[str, ...] = ()
    families: Mapping[str, Names] = field(default_factory=dict)
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()
    short: tuple[str, str] = ("A", "B")


def load_both(first: Families, second: Families) -> RunPairs:
    """Read the families that two runs have started, or raise NeedlemapError if there is none."""
    return {
        name: (load_run(first.folder(name)), load_run(second.folder(name)))
        for name in _common_families(first, second)
    }


def relabel(runs: RunPairs, labels: Sequence[str]) -> RunPairs:
    """Return pairs of runs with other labels for the first and the second run of each pair.

    Without labels the pairs are unchanged. If there are not two different labels, SettingsError is
    raised.
    """
    if not labels:
        return runs
    if len(labels) != 2 or len(set(labels)) != 2:
        raise SettingsError(
            f"--label names both runs, differently: give it twice, got {', '.join(labels)}."
        )
    return {
        name: (_relabel_run(first, labels[0]), _relabel_run(second, labels[1]))
        for name, (first, second) in runs.items()
    }


def load_any(
    first: Families, second: Families, labels: Sequence[str] = (), metric: str = ""
) -> RunPairs:
    """Return the families that two runs, or two logs of other tools, have in common.

    In logs each task is a family. If there is only one, its name is ''. labels: other names of the
    two runs. metric: the score to take from logs with several.

    If they have no family in common, NeedlemapError is raised; if labels or metric mean nothing
    here, SettingsError.
    """
    if reader_of(first.path) or reader_of(second.path):
        return relabel(_tasks_of_both(first.path, second.path, metric), labels)
    if metric:
        raise SettingsError(
            "--metric is of logs of Inspect and lm-evaluation-harness, and these are runs."
        )
    return relabel(load_both(first, second), labels)


def _tasks_of_both(first: Path, second: Path, metric: str) -> RunPairs:
    if first.resolve() == second.resolve():
        raise SettingsError(f"Log '{first}' is given twice. Give two.")
    first_tasks = _tasks(first, metric)
    second_tasks = _tasks(second, metric)
    common_tasks = [task for task in first_tasks if task in second_tasks]
    if not common_tasks:
        names = ", ".join([*first_tasks, *second_tasks])
        raise NeedlemapError(f"'{first}' and '{second}' hold no task of one name: {names}.")
    unpaired_tasks = sorted({*first_tasks} ^ {*second_tasks})
    pairs = {task: (first_tasks[task], second_tasks[task]) for task in common_tasks}
    if unpaired_tasks:
        note = f"left out, as only one of the two has it: {', '.join(unpaired_tasks)}"
        run, second_run = pairs[common_tasks[0]]
        pairs[common_tasks[0]] = replace(run, notes=(*run.notes, note)), second_run
    return {"": pairs[common_tasks[0]]} if len(common_tasks) == 1 else pairs


def _tasks(path: Path, metric: str) -> dict[str, Loaded]:
    """Return the runs at a path by task, or raise NeedlemapError if several have one task.

    Nothing could pair these.
    """
    reader = reader_of(path)
    folders = families_of(path).folders if reader is None else []
    runs = [*map(load_run, folders)] if reader is None else reader.load(path, metric)
    run_by_task = {str(run.about.named.task): run for run in runs}
    if len(run_by_task) < len(runs):
        names = ", ".join(f"{run.about.model_label} ({run.about.named.task})" for run in runs)
        raise NeedlemapError(
            f"'{path}' holds several results of one task: {names}. Name one file of them."
        )
    return run_by_task


def _relabel_run(run: Loaded, label: str) -> Loaded:
    return replace(run, about=run.about.with_settings({"label": label}))


def compare_runs(
    first: Families,
    second: Families,
    run_pairs: RunPairs,
    margin: float | None = None,
    *,
    wanted: Scope = "these",
    sequential: bool = False,
    noise: Sequence[RunPairs] = (),
) -> tuple[Comparison, Names]:
    """Compare two runs on the families that both have started.

    margin: in points; None for no verdict. wanted, sequential: as `compare_families` takes them.
    noise: the first run with each further run of its model.

    Raises NeedlemapError if trials or scorers of a family are not the same, with what differs;
    SettingsError for a margin that means nothing.
    """
    share = margin_share(MARGIN if margin is None else margin)
    pairs, names = {}, {}
    for name, runs in run_pairs.items():
        with naming(name and f"Family '{name}'"):
            pairs[name], names[name] = pair_loaded(*runs)
    comparison = compare_families(pairs, share, wanted=wanted, sequential=sequential)
    noise_pairs = [{name: pair_loaded(*runs)[0] for name, runs in run.items()} for run in noise]
    comparison = replace(comparison, is_judged=margin is not None, noise=noise_of(noise_pairs))
    return comparison, names[""] if "" in names else _names_of_suites(
        first, second, run_pairs, names
    )


def _common_families(first: Families, second: Families) -> list[str]:
    """Return the names of the families that two runs have started.

    If there is none, or if only one of the runs has several families, NeedlemapError is raised.
    """
    kind = "Suite" if first.suite else "Run"
    if first.path.resolve() == second.path.resolve():
        raise SettingsError(f"{kind} '{first.path}' is given twice. Give the folders of two runs.")
    if first.is_plain != second.is_plain:
        suite, run = (second, first) if first.is_plain else (first, second)
        # Raises if there is no run.
        RunFolder(run.path).about()
        folders = ", ".join(map(str, suite.folders)) or "none of them is begun"
        raise NeedlemapError(
            f"'{suite.path}' is a suite and '{run.path}' is not. Compare two suites, or one of its "
            f"families with a run: {folders}."
        )
    if first.is_plain:
        return [""]
    common_names = [name for name in first.started_names if name in second.started_names]
    if not common_names:
        first_list, second_list = map(_name_list, (first.started_names, second.started_names))
        raise NeedlemapError(
            f"'{first.path}' and '{second.path}' have begun no family of one name "
            f"({first_list}; {second_list}). Run the same suite with both models."
        )
    return common_names


def _name_list(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _names_of_suites(
    first: Families, second: Families, run_pairs: RunPairs, names: Mapping[str, Names]
) -> Names:
    """Return the names of two runs with several families.

    If all families differ in the same settings, these are stated once.
    """
    first_run, second_run = next(iter(run_pairs.values()))
    differ = {name: family.differ for name, family in names.items()}
    if len(set(differ.values())) == 1:
        difference = next(iter(differ.values()))
    else:
        difference = "; ".join(f"{name}: {words}" for name, words in differ.items() if words)
    return Names(
        first=_title(first, first_run),
        second=_title(second, second_run),
        differ=difference,
        notes=tuple(note for family in names.values() for note in family.notes),
        families=names,
        only_first=tuple(name for name in first.started_names if name not in run_pairs and name),
        only_second=tuple(name for name in second.started_names if name not in run_pairs and name),
        short=short_names(
            (first_run.about.named.label, first.path),
            (second_run.about.named.label, second.path),
        ),
    )


def _title(families: Families, run: Loaded) -> str:
    suite = f"suite {families.suite} · " if families.suite else ""
    return f"{suite}{run.about.model_label} ({families.path})"


def compare_loaded(
    first: Loaded,
    second: Loaded,
    margin: float | None = None,
    *,
    wanted: Scope = "these",
    sequential: bool = False,
) -> tuple[Comparison, Names]:
    """Compare two families as runs that have no other family. Raises as `compare_runs`."""
    if Path(first.path).resolve() == Path(second.path).resolve():
        raise SettingsError(f"Run '{first.path}' is given twice. Give the folders of two runs.")
    return compare_runs(
        Families(Path(first.path)),
        Families(Path(second.path)),
        {"": (first, second)},
        margin,
        wanted=wanted,
        sequential=sequential,
    )


def margin_share(margin: float) -> float:
    """Return a margin in points as a share, or raise SettingsError if it is not in 0..100."""
    if not 0 <= margin <= 100:
        raise SettingsError(f"A margin is in points from 0 to 100, got {margin:g}.")
    return margin / 100


def pair_loaded(first: Loaded, second: Loaded) -> tuple[Pairs, Names]:
    """Return the pairs of two runs' trials, and the names of the runs.

    If their prompts or their scorers differ, NeedlemapError is raised.
    """
    contrasts = contrast(first.about, second.about)
    runs = f"'{first.path}' and '{second.path}'"
    if "scorer" in contrasts:
        raise NeedlemapError(
            f"{runs} are scored differently: {phrase({'scorer': contrasts['scorer']})}. "
            f"{rescoring_advice(first, second)}"
        )
    pairs = pair_up(first.prompts, second.prompts, one_haystack=first.about.one_haystack)
    _check_same_prompts(
        pairs, phrase(prompt_contrast(contrasts)), runs, _grids_contrast(first, second)
    )
    if not pairs.n and not pairs.unanswered:
        raise NeedlemapError(f"{runs} have no trial that both scored: finish them first.")
    differences = {name: values for name, values in contrasts.items() if name != "haystacks"}
    names = [f"{run.about.model_label} ({run.path})" for run in (first, second)]
    notes = [line for run in (first, second) for line in outdated(run.path, run.about)]
    cut = partial(_tokenize, vocabulary) if (vocabulary := _vocabulary(first)) else None
    pairs = replace(pairs, answers=pair_answers(first.prompts, second.prompts, second.records, cut))
    labels = short_names(*((run.about.named.label, Path(run.path)) for run in (first, second)))
    return pairs, Names(names[0], names[1], phrase(differences), tuple(notes), short=labels)


def short_names(first: tuple[str, Path], second: tuple[str, Path]) -> tuple[str, str]:
    """Return the names of two runs in a line: their labels or, without labels, their folders.

    If both names are the same, they are called A and B.
    """
    first_name, second_name = (label or path.resolve().name for label, path in (first, second))
    return (first_name, second_name) if first_name != second_name else ("A", "B")


def _vocabulary(run: Loaded) -> str | None:
    """Return the vocabulary that counted a run's lengths if it comes with the package, else None.

    No other name in a run's folder is followed.
    """
    return bundled_for(run.about.tokenizer.name)


def _tokenize(vocabulary: str, text: str) -> tuple[Token, ...]:
    """Return a text's tokens by a bundled vocabulary, or none if it cannot be opened."""
    try:
        tokens = load(vocabulary).index(text.encode())
    except VocabularyMissing:
        return ()
    ends = zip(tokens.offsets[:-1].tolist(), tokens.offsets[1:].tolist(), strict=True)
    return tuple(Token(tokens.data[start:stop].decode(errors="replace")) for start, stop in ends)


def rescoring_advice(first: Loaded, second: Loaded) -> str:
    """Return a sentence on the commands that score two runs alike, or why none can."""
    runs = first, second
    imported_runs = [run for run in runs if run.about.imported]
    if imported_runs:
        return (
            f"'{imported_runs[0].path}' was imported with its scores, and none of its answers can "
            f"be scored anew: compare it with a run that was imported from the same tool."
        )
    names = [run.about.scorer.name for run in runs]
    asking_scorer = next((name for name in names if name in WEIGHS), None)
    if asking_scorer is not None:
        other_path = runs[names[0] == asking_scorer].path
        return (
            f"Scorer '{asking_scorer}' asks the model, so '{other_path}' is to be run again: "
            f"--scorer {asking_scorer}"
        )
    outdated_runs = [run for run in runs if outdated(run.path, run.about)] or [second]
    scorer = next((run for run in runs if run not in outdated_runs), first).about.scorer
    commands = " and ".join(
        how_to_score(run.path, scorer, now=run.about.scorer) for run in outdated_runs
    )
    requests = "the judge alone" if scorer.name == "judge" else "nothing"
    return f"Score both alike, which asks {requests}: {commands}"


def _grids_contrast(first: Loaded, second: Loaded) -> str:
    """Return the lengths or depths of two grids that have none in common.

    For example "'a' has lengths 500, 'b' 900". If they share some of both, it is ''.
    """
    grids = (
        ("lengths", first.map.lengths, second.map.lengths),
        ("depths", first.map.depths, second.map.depths),
    )
    return "; ".join(
        f"'{first.path}' has {name} {_axis_text(name, first_values)}, "
        f"'{second.path}' {_axis_text(name, second_values)}"
        for name, first_values, second_values in grids
        if not {*first_values} & {*second_values}
    )


def _axis_text(name: str, values: Sequence[float]) -> str:
    """Return the lengths or depths of a run, as they are typed."""
    texts = [f"{percent(value):g}" if name == "depths" else str(value) for value in values]
    return ", ".join(texts) or "none"


def _check_same_prompts(pairs: Pairs, differ: str, runs: str, grids: str) -> None:
    """Raise NeedlemapError if two runs do not have the same prompts.

    grids: the lengths or depths that have nothing in common, in words.
    """
    reasons = differ or (
        "the settings are the same: texts of haystack or template, or needlemap, changed meanwhile"
    )
    if pairs.unlike:
        raise NeedlemapError(
            f"{runs} ask different prompts in {len(pairs.unlike)} trials (first: "
            f"{place_label(pairs.unlike[0])}), so they cannot be paired. They differ "
            f"in: {reasons}. Run both with the same settings except the model, or one with "
            f"--prompts-of the other."
        )
    if not pairs.first.asked.any():
        raise NeedlemapError(
            f"{runs} have no trial (length, depth, repeat) in common. "
            f"{grids or f'They differ in: {reasons}'}. "
            f"Run both with the same --lengths, --depths and --repeats."
        )
