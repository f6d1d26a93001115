"""Two runs compared on the trials they share, family by family; what asked something else is
refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from needlemap.errors import NeedlemapError, SettingsError, VocabularyMissing, naming
from needlemap.grid import percent
from needlemap.records import (
    contrast,
    how_to_score,
    outdated,
    phrase,
    prompt_contrast,
)
from needlemap.records.families import families_of
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.results import reader_of
from needlemap.stats.comparison import Comparison, compare_families, noise_of
from needlemap.stats.looks import Scope
from needlemap.stats.pairs import WEIGHS, Pairs, Token, pair_answers, pair_up
from needlemap.tokenizers import bundled_for, load

if TYPE_CHECKING:
    from needlemap.records.families import Families

MARGIN = 2.0  # points by which a loss is judged where nobody typed a margin

Both = Mapping[str, tuple[Loaded, Loaded]]  # families that two runs have begun, as they were read


@dataclass(frozen=True, slots=True)
class Names:
    """How the two runs are called, in what their settings differ, as a phrase, and what else
    to say. short: in the verdict, by their labels or folders.

    families: of runs with several, how each family's two are called. only_first, only_second:
    families that one of the runs alone has begun.
    """

    first: str
    second: str
    differ: str
    notes: tuple[str, ...] = ()
    families: Mapping[str, Names] = field(default_factory=dict)
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()
    short: tuple[str, str] = ("A", "B")


def load_both(first: Families, second: Families) -> Both:
    """Read the families that two runs have begun. Raises NeedlemapError where there is
    none."""
    return {
        name: (load_run(first.folder(name)), load_run(second.folder(name)))
        for name in _in_both(first, second)
    }


def labelled(read: Both, labels: Sequence[str]) -> Both:
    """The same under other names, if there are any, for the first of each two and the second.
    Raises SettingsError for another number of labels."""
    if not labels:
        return read
    if len(labels) != 2 or len(set(labels)) != 2:
        raise SettingsError(
            f"--label names both runs, differently: give it twice, got {', '.join(labels)}."
        )
    return {
        name: (_labelled(one, labels[0]), _labelled(other, labels[1]))
        for name, (one, other) in read.items()
    }


def load_any(
    first: Families, second: Families, labels: Sequence[str] = (), metric: str = ""
) -> Both:
    """What two runs, or two logs of other tools or folders of these, have in common; of logs
    each task is a family, '' the only one. labels: other names of the two. metric: of logs
    with several.

    Raises NeedlemapError where they have nothing in common, SettingsError for what means
    nothing.
    """
    if reader_of(first.path) or reader_of(second.path):
        return labelled(_tasks_of_both(first.path, second.path, metric), labels)
    if metric:
        raise SettingsError(
            "--metric is of logs of Inspect and lm-evaluation-harness, and these are runs."
        )
    return labelled(load_both(first, second), labels)


def _tasks_of_both(first: Path, second: Path, metric: str) -> Both:
    if first.resolve() == second.resolve():
        raise SettingsError(f"Log '{first}' is given twice. Give two.")
    left, right = _tasks(first, metric), _tasks(second, metric)
    both = [task for task in left if task in right]
    if not both:
        raise NeedlemapError(
            f"'{first}' and '{second}' hold no task of one name: {', '.join([*left, *right])}."
        )
    alone = sorted({*left} ^ {*right})
    note = (f"left out, as only one of the two has it: {', '.join(alone)}",) if alone else ()
    pairs = {"" if len(both) == 1 else task: (left[task], right[task]) for task in both}
    one, other = pairs[next(iter(pairs))]
    return {**pairs, next(iter(pairs)): (replace(one, notes=(*one.notes, *note)), other)}


def _tasks(path: Path, metric: str) -> dict[str, Loaded]:
    """The runs at a path, by task. Raises NeedlemapError for several of one task: nothing
    could pair them."""
    reader = reader_of(path)
    folders = families_of(path).folders if reader is None else []
    runs = [*map(load_run, folders)] if reader is None else reader.load(path, metric)
    found = {str(run.about.named.task): run for run in runs}
    if len(found) < len(runs):
        named = ", ".join(f"{run.about.called} ({run.about.named.task})" for run in runs)
        raise NeedlemapError(
            f"'{path}' holds several results of one task: {named}. Name one file of them."
        )
    return found


def _labelled(run: Loaded, label: str) -> Loaded:
    return replace(run, about=run.about.with_settings({"label": label}))


def compare_runs(
    first: Families,
    second: Families,
    read: Both,
    margin: float | None = None,
    *,
    wanted: Scope = "these",
    sequential: bool = False,
    noise: Sequence[Both] = (),
) -> tuple[Comparison, Names]:
    """The comparison of two runs on the families that both have begun. margin: in points; None
    for no verdict. wanted, sequential: as `compare_families` takes them. noise: the first run
    with each further run of its model.

    Raises NeedlemapError when trials or scorers of a family are not the same, and says in what
    they differ; SettingsError for a margin that means nothing.
    """
    share = margin_share(MARGIN if margin is None else margin)
    pairs, names = {}, {}
    for name, two in read.items():
        with naming(name and f"Family '{name}'"):
            pairs[name], names[name] = pair_loaded(*two)
    comparison = compare_families(pairs, share, wanted=wanted, sequential=sequential)
    again = [{name: pair_loaded(*two)[0] for name, two in run.items()} for run in noise]
    comparison = replace(comparison, is_judged=margin is not None, noise=noise_of(again))
    return comparison, names[""] if "" in names else _joined(first, second, read, names)


def _in_both(first: Families, second: Families) -> list[str]:
    """The families that two runs have begun. Raises NeedlemapError where there is none, or one
    run alone has several."""
    kind = "Suite" if first.suite else "Run"
    if first.path.resolve() == second.path.resolve():
        raise SettingsError(f"{kind} '{first.path}' is given twice. Give the folders of two runs.")
    if first.is_plain != second.is_plain:
        suite, run = (second, first) if first.is_plain else (first, second)
        RunFolder(run.path).about()  # which says so where there is no run
        raise NeedlemapError(
            f"'{suite.path}' is a suite and '{run.path}' is not. Compare two suites, or one of its "
            f"families "
            f"with a run: {', '.join(map(str, suite.folders)) or 'none of them is begun'}."
        )
    if first.is_plain:
        return [""]
    both = [name for name in first.begun if name in second.begun]
    if not both:
        raise NeedlemapError(
            f"'{first.path}' and '{second.path}' have begun no family of one name "
            f"({_listed(first.begun)}; "
            f"{_listed(second.begun)}). Run the same suite with both models."
        )
    return both


def _listed(families: list[str]) -> str:
    return ", ".join(families) or "none"


def _joined(first: Families, second: Families, read: Both, names: Mapping[str, Names]) -> Names:
    """How two runs with several families are called. What all families differ in is said
    once."""
    two = next(iter(read.values()))
    titles = [
        f"{f'suite {each.suite} · ' * bool(each.suite)}{run.about.called} ({each.path})"
        for each, run in zip((first, second), two, strict=True)
    ]
    differ = {name: each.differ for name, each in names.items()}
    alike = len(set(differ.values())) == 1
    labels = [run.about.named.label for run in two]
    return Names(
        titles[0],
        titles[1],
        next(iter(differ.values()))
        if alike
        else "; ".join(f"{k}: {v}" for k, v in differ.items() if v),
        tuple(note for each in names.values() for note in each.notes),
        names,
        tuple(name for name in first.begun if name not in read and name),
        tuple(name for name in second.begun if name not in read and name),
        short_names(*zip(labels, (first.path, second.path), strict=True)),
    )


def compare_loaded(
    first: Loaded,
    second: Loaded,
    margin: float | None = None,
    *,
    wanted: Scope = "these",
    sequential: bool = False,
) -> tuple[Comparison, Names]:
    """The comparison of two families that were read, as of runs that have no other. Raises as
    `compare_runs`."""
    share = margin_share(MARGIN if margin is None else margin)
    if Path(first.path).resolve() == Path(second.path).resolve():
        raise SettingsError(f"Run '{first.path}' is given twice. Give the folders of two runs.")
    pairs, names = pair_loaded(first, second)
    comparison = compare_families({"": pairs}, share, wanted=wanted, sequential=sequential)
    return replace(comparison, is_judged=margin is not None), names


def margin_share(margin: float) -> float:
    """A margin in points as a share. Raises SettingsError."""
    if not 0 <= margin <= 100:
        raise SettingsError(f"A margin is in points from 0 to 100, got {margin:g}.")
    return margin / 100


def pair_loaded(first: Loaded, second: Loaded) -> tuple[Pairs, Names]:
    """The trials that two runs share. Raises NeedlemapError when they asked or scored
    something else."""
    found = contrast(first.about, second.about)
    runs = f"'{first.path}' and '{second.path}'"
    if "scorer" in found:
        raise NeedlemapError(
            f"{runs} are scored differently: {phrase({'scorer': found['scorer']})}. "
            f"{alike(first, second)}"
        )
    pairs = pair_up(first.prompts, second.prompts, one_haystack=first.about.one_haystack)
    _refuse(pairs, phrase(prompt_contrast(found)), runs)
    if not pairs.n and not (pairs.unanswered and pairs.failed[1]):
        raise NeedlemapError(f"{runs} have no trial that both scored: finish them first.")
    said = {name: values for name, values in found.items() if name != "haystacks"}
    names = [f"{run.about.called} ({run.path})" for run in (first, second)]
    notes = [line for run in (first, second) for line in outdated(run.path, run.about)]
    cut = partial(_cut, vocabulary) if (vocabulary := _vocabulary(first)) else None
    pairs = replace(pairs, answers=pair_answers(first.prompts, second.prompts, second.records, cut))
    short = short_names(*((run.about.named.label, Path(run.path)) for run in (first, second)))
    return pairs, Names(names[0], names[1], phrase(said), tuple(notes), short=short)


def short_names(first: tuple[str, Path], second: tuple[str, Path]) -> tuple[str, str]:
    """What a line calls two runs: their labels, else their folders, A and B where these are the
    same."""
    one, other = (label or path.resolve().name for label, path in (first, second))
    return (one, other) if one != other else ("A", "B")


def _vocabulary(run: Loaded) -> str | None:
    """The vocabulary that counted a run's lengths, if it comes with the package: no other name
    in a run's folder is followed."""
    return bundled_for(run.about.tokenizer.name)


def _cut(vocabulary: str, text: str) -> tuple[Token, ...]:
    """A text's tokens, by a bundled vocabulary; none where it cannot be opened."""
    try:
        found = load(vocabulary).index(text.encode())
    except VocabularyMissing:
        return ()
    ends = zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    return tuple(Token(found.data[start:stop].decode(errors="replace")) for start, stop in ends)


def alike(first: Loaded, second: Loaded) -> str:
    """What to type so that two runs are scored alike, if anything can be done."""
    runs = first, second
    imported = [run for run in runs if run.about.imported]
    if imported:
        return (
            f"'{imported[0].path}' was imported with its scores, and none of its answers can be "
            f"scored anew: "
            f"compare it with a run that was imported from the same tool."
        )
    names = [run.about.scorer.name for run in runs]
    asking = next((name for name in names if name in WEIGHS), None)
    if asking is not None:
        other = runs[names[0] == asking].path
        return (
            f"Scorer '{asking}' asks the model, so '{other}' is to be run again: --scorer {asking}"
        )
    stale = [run for run in runs if outdated(run.path, run.about)] or [second]
    pattern = next((run for run in runs if run not in stale), first).about.scorer
    typed = " and ".join(how_to_score(run.path, pattern) for run in stale)
    asks = "the judge alone" if pattern.name == "judge" else "nothing"
    return f"Score both alike, which asks {asks}: {typed}"


def _refuse(pairs: Pairs, differ: str, runs: str) -> None:
    """Raises NeedlemapError when two runs did not ask the same."""
    why = differ or (
        "the settings are the same: texts of haystack or template, or needlemap, changed meanwhile"
    )
    if pairs.unlike:
        repeat, length, depth = pairs.unlike[0]
        raise NeedlemapError(
            f"{runs} ask different prompts in {len(pairs.unlike)} trials (first: length {length}, "
            f"depth "
            f"{percent(depth):g}, repeat {repeat}), so they cannot be paired. They differ in: "
            f"{why}. "
            f"Run both with the same settings except the model, or one with --prompts-of the other."
        )
    if not pairs.first.asked.any():
        raise NeedlemapError(
            f"{runs} have no trial (length, depth, repeat) in common. They differ in: {why}. "
            f"Run both with the same --lengths, --depths and --repeats."
        )
