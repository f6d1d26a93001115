"""The rest of a run that was begun, the check that it is the wanted run, and another run's
prompts.

Two runs are compared by their run.json (`records/differences.py`), prompts by their hashes. A
run without any answer, as after a typing error in a model's name, is worth nothing: a run with
other settings may take over its folder.

`--prompts-of RUN` asks exactly the prompts of another run, of another model. They are built from
RUN's settings, and checked by the hashes in its records. Of RUN's folder run.json and the records
are read, once; what builds prompts is kept in the new run's own settings, which need RUN no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import RUN_FILE
from needlemap.records import RuledScorer, how_to_score
from needlemap.records.folder import CLOSED_BOOK, RunFolder, records_files
from needlemap.records.origin import CheckedRun
from needlemap.records.record import Record
from needlemap.scorers import Scorer, rule_of
from needlemap.settings import DEFAULTS, PromptSource, Settings, marked, settings_of, with_role
from needlemap.settings.reading import DEFAULT_ITEMS
from needlemap.settings.trust import Trust, refuse_foreign
from needlemap.stats import place_label, place_of, places_of
from needlemap.trials import provider_host, requests

if TYPE_CHECKING:
    from needlemap.trials import Trial
    from needlemap.trials.build import Experiment
    from needlemap.trials.resolve import Resolved


# The whole grid decides where needles go, so the first start fixes it.
GRID_MODES = ("bins",)
# Settings that may be given with another run's prompts: no prompt depends on them.
_ASKER = {*settings_of("Model", "Scoring", "Run")}.difference(marked("from_other_run"))


class AnotherRun(NeedlemapError):
    """The run in this folder asks something else."""


def unscored(folder: RunFolder, experiment: Experiment) -> list[Trial]:
    """Return the trials that a folder has no score of; all, if it is to be taken over.

    Raises NeedlemapError if the folder holds another run.
    """
    try:
        return _unscored_trials(folder, experiment)
    except AnotherRun:
        if is_unanswered(folder):
            return list(experiment.trials)
        raise


def can_replace(folder: RunFolder, experiment: Experiment) -> bool:
    """Return True if an experiment may take a folder that holds another run.

    It may if no prompt of the other run was answered.
    """
    try:
        _unscored_trials(folder, experiment)
    except AnotherRun:
        return is_unanswered(folder)
    return False


def set_aside(folder: RunFolder) -> None:
    """Remove the run from a folder that is taken over; what failed in it stays, renamed."""
    for file in [*records_files(folder.path), *folder.path.glob(CLOSED_BOOK)]:
        file.replace(file.with_name(f"replaced-{file.name}"))
    (folder.path / RUN_FILE).unlink()


def is_unanswered(folder: RunFolder) -> bool:
    """Return True if nothing of a run was ever answered, as far as can be read."""
    about = folder.about()
    if about.imported:
        return False
    records = folder.every_record(texts=False)
    closed_book = folder.path / CLOSED_BOOK
    if closed_book.exists():
        records = chain(records, folder.records_in(closed_book, about, texts=False))
    for record in records:
        if record.answer is not None or record.score is not None:
            return False
    return not folder.left_out.notes()


def _unscored_trials(folder: RunFolder, experiment: Experiment) -> list[Trial]:
    """Return the trials that a folder has no score of. Raise AnotherRun if it holds another run."""
    if not folder.exists:
        if any(folder.path.glob("records-*.jsonl")):
            raise NeedlemapError(
                f"'{folder.path}' holds records but no run.json, which says what run they are of. "
                f"Put run.json back, or give another folder with -o."
            )
        return list(experiment.trials)
    check_same(folder, experiment)
    trials = {
        (place, trial.second): trial for trial in experiment.trials for place in places_of(trial)
    }
    current = scorer_about(experiment.scorer)
    done_keys = set()
    for record in folder.records(texts=False):
        trial = trials.get((place_of(record), record.second))
        scorer = record.scorer
        is_scored_otherwise = scorer is not None and scorer.is_by_another_rule(current)
        if is_scored_otherwise and (trial is None or record.asked == trial.asked):
            continue
        if trial is not None and record.key != trial.key:
            raise AnotherRun(
                f"'{folder.path}' holds answers to other prompts (first: "
                f"{place_label(place_of(record))}): the haystack, a template, the model's weights "
                f"or needlemap itself changed since. Give another folder with -o."
            )
        if record.scored:
            done_keys.add(record.key)
    return [trial for trial in experiment.trials if trial.key not in done_keys]


def check_same(folder: RunFolder, experiment: Experiment | Resolved) -> None:
    """Compare the settings of a folder's run with those of an experiment.

    Raises AnotherRun if they ask something else: two mixed would make a false map.
    """
    theirs = folder.about()
    ours = experiment.settings.model_dump(mode="json")
    # The first start chose the places.
    fixed = ours["mode"] in GRID_MODES or experiment.ready
    free = with_role("scored", "free") if fixed else with_role("scored", "free", "grid")
    differing = [
        name
        for name, value in theirs.settings.items()
        if name not in free
        and name in ours
        and _meaning(name, ours[name], ours) != _meaning(name, value, ours)
    ]
    # Settings that came with a later version.
    differing += [
        name
        for name, value in ours.items()
        if name not in (*free, *theirs.settings) and value != DEFAULTS[name]
    ]
    if (theirs.named.seek is None) != (ours["seek"] is None):
        differing.append("seek")
    scorer = scorer_about(experiment.scorer)
    if theirs.scorer != scorer and not theirs.scorer.is_by_another_rule(scorer):
        differing.append("scorer")
    if not differing and theirs.tokenizer.fingerprint != experiment.tokenizer.fingerprint:
        differing = ["tokenizer"]
    if not differing:
        return

    name = differing[0]
    old, new = theirs.settings.get(name), ours.get(name)
    if name == "scorer":
        old, new = theirs.scorer.model_dump(), scorer.model_dump()
    advice = ""
    if differing == ["scorer"]:
        command = how_to_score(str(folder.path), scorer, now=theirs.scorer)
        advice = f" To score its answers anew: {command}"
    raise AnotherRun(
        f"'{folder.path}' holds a run with other settings: {', '.join(differing)} ({name} was "
        f"{old!r}, is {new!r}). Give another folder with -o, or the settings of that run.{advice}"
    )


def _meaning(name: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """Return what a setting comes to: of an address only its owner."""
    if name != "base_url":
        return value
    backend, _, _ = settings["model"].partition("/")
    return provider_host(backend, value)


def scorer_about(scorer: Scorer) -> RuledScorer:
    """Return a scorer's name, resolved options and rule, as run.json holds them.

    What was typed may differ.
    """
    options: dict[str, Any] = json.loads(json.dumps(dict(scorer.options), default=str))
    return RuledScorer(name=scorer.name, options=options, rule=rule_of(scorer))


def to_be_scored(records: Iterable[Record]) -> dict[str, Record]:
    """Return the last record of each answer, by `asked`.

    An answer whose scoring failed, or that was scored by another rule, is scored again, not asked
    for. records: every one of a folder.
    """
    return {
        record.asked: record for record in records if record.answer is not None and record.asked
    }


def answers_in(folder: RunFolder, trials: Iterable[Trial]) -> dict[str, Record]:
    """Return the last record of each answer to some trials that a folder has, by `asked`."""
    sent = {trial.asked for trial in requests(trials)}
    answered_hashes = sent & to_be_scored(folder.every_record(texts=False)).keys()
    # Nearly always there is none, and no record is read whole for it.
    if not answered_hashes:
        return {}
    return to_be_scored(
        record for record in folder.every_record() if record.asked in answered_hashes
    )


def with_prompts_of(settings: Settings, folder: Path, trusted: Trust = False) -> Settings:
    """Return settings with all that builds prompts as the run in a folder has it.

    Raises NeedlemapError for a run that is not to be followed or read, SettingsError for settings
    that would make other prompts.
    """
    run = CheckedRun.of(folder, bool(trusted))
    theirs = run.settings()
    if trusted == "prompts" and not run.is_ours:
        refuse_foreign(theirs, settings, folder)
    lengths = _some_lengths(settings, theirs)
    _check_kept(settings.model_copy(update=lengths and {"lengths": theirs.lengths}), theirs)
    chosen = {name: getattr(settings, name) for name in _ASKER} | lengths
    if settings.scorer == "auto":
        chosen |= {name: getattr(theirs, name) for name in with_role("scored")}
    identity = {name: getattr(theirs, name) for name in PromptSource.model_fields if name != "run"}
    lender = theirs.prompts_of or PromptSource(run=str(folder), **identity)
    return theirs.model_copy(update={**chosen, "prompts_of": lender})


def check_reused(experiment: Experiment) -> None:
    """Compare the prompts of an experiment with those of the run that lends them, by hash.

    Raises NeedlemapError if one differs. Nothing is checked if that run is gone: a run that was
    started has keys of its own.
    """
    lender = experiment.settings.prompts_of
    folder = RunFolder(lender.run) if isinstance(lender, PromptSource) else None
    if folder is None or not folder.exists:
        return
    sha256_at = {
        place: trial.prompt.sha256 for trial in experiment.trials for place in places_of(trial)
    }
    for record in folder.records():
        if record.prompt is None:
            continue
        place = place_of(record)
        if sha256_at.get(place, record.prompt.sha256) != record.prompt.sha256:
            raise NeedlemapError(
                f"The prompts of '{folder.path}' cannot be built again (first: "
                f"{place_label(place)}): the haystack, needlemap or a library changed."
            )


def _some_lengths(settings: Settings, theirs: Settings) -> dict[str, Any]:
    """Return the lengths, if they are only some of the other run's.

    They build its prompts if no prompt depends on the whole grid.
    """
    default = Settings.model_fields["lengths"].default
    if settings.lengths in (default, theirs.lengths) or theirs.mode in GRID_MODES:
        return {}
    chosen, available = set(settings.lengths.tokens), set(theirs.lengths.tokens)
    return {"lengths": settings.lengths} if chosen < available else {}


def _check_kept(settings: Settings, theirs: Settings) -> None:
    """Raise SettingsError for a setting that differs from the run whose prompts are asked."""
    default = {name: field.default for name, field in Settings.model_fields.items()}
    item = DEFAULT_ITEMS[settings.language]
    alternative = "" if theirs.mode in GRID_MODES else ", or give some of these"
    for name in default:
        value = getattr(settings, name)
        allowed = (default[name], item.get(name), getattr(theirs, name))
        if name not in _ASKER and name != "prompts_of" and value not in allowed:
            raise SettingsError(
                f"--prompts-of asks prompts as they are, and their run has {name} "
                f"{theirs.model_dump()[name]!r}. Leave --{name.replace('_', '-')} "
                f"out{alternative if name == 'lengths' else ''}."
            )
