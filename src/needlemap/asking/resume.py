"""What is left of a run that was begun, and whether it is the run that is wanted now.

In what two runs differ is told by what run.json says of each; prompts are compared by hash, elsewhere. A
run of which nothing was answered, as after a slip in a model's name, is worth nothing: its folder is taken
over by one with other settings.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.records.folder import RUN_FILE, RunFolder, records_files, scorer_of
from needlemap.records.record import SCHEMA, Record
from needlemap.records.run_file import is_ruled_otherwise, ruled
from needlemap.scorers.base import Scorer, rule_of
from needlemap.settings.grid import percent
from needlemap.settings.registry import find
from needlemap.settings.settings import marked, with_role
from needlemap.trials.build import Experiment
from needlemap.trials.keys import FREE, SCORING, place
from needlemap.trials.repeat import Trial
from needlemap.trials.resolve import Resolved

GRID_MODES = ("bins", "lattice")  # the whole grid decides where needles go, so the first start fixes it
_CLOSED = "closed-book.jsonl"


class AnotherRun(NeedlemapError):
    """A folder's run asks something else than what is wanted."""


def unscored(folder: RunFolder, experiment: Experiment) -> list[Trial]:
    """The trials that a folder has no score of; all, where it is to be taken over. Raises NeedlemapError when
    it holds another run."""
    try:
        return _left(folder, experiment)
    except AnotherRun:
        if is_unanswered(folder):
            return list(experiment.trials)
        raise


def is_replaced(folder: RunFolder, wanted: Experiment) -> bool:
    """Whether a folder holds another run than the one wanted, and nothing of it was answered."""
    try:
        _left(folder, wanted)
    except AnotherRun:
        return is_unanswered(folder)
    return False


def set_aside(folder: RunFolder) -> None:
    """Leave a folder that is taken over without its run; what failed in it stays under other names."""
    for file in [*records_files(folder.path), *folder.path.glob(_CLOSED)]:
        file.replace(file.with_name(f"replaced-{file.name}"))
    (folder.path / RUN_FILE).unlink()


def is_unanswered(folder: RunFolder) -> bool:
    """Whether nothing of a run was ever answered, as far as can be read."""
    about = folder.about()
    if "imported" in about:
        return False
    closed = folder.path / _CLOSED
    for record in chain(folder.every_record(), folder.records_in(closed, about) if closed.exists() else ()):
        if record.answer is not None or record.score is not None:
            return False
    return not folder.left_out.notes()


def _left(folder: RunFolder, experiment: Experiment) -> list[Trial]:
    if not folder.exists:
        if any(folder.path.glob("records-*.jsonl")):
            raise NeedlemapError(
                f"'{folder.path}' holds records but no run.json, so nobody knows of what run. Put run.json "
                f"back, or give another folder with -o."
            )
        return list(experiment.trials)
    check_same(folder, experiment)
    trials = {
        (trial.cell.length_tokens, trial.cell.depth, trial.repeat): trial for trial in experiment.trials
    }
    now, done = scorer_about(experiment.scorer), set()
    for record in folder.records():
        length, depth, repeat = record.length_tokens, record.depth, record.repeat
        trial = trials.get((length, depth, repeat))
        if is_ruled_otherwise(scorer_of(record), now) and (trial is None or record.asked == trial.asked):
            continue
        if trial is not None and record.key != trial.key:
            raise AnotherRun(
                f"'{folder.path}' holds answers to other prompts (first: length {length}, depth "
                f"{percent(depth):g}, repeat {repeat}): the haystack, a template, the model's weights or "
                f"needlemap itself changed since. Give another folder with -o."
            )
        if record.scored:
            done.add(record.key)
    return [trial for trial in experiment.trials if trial.key not in done]


def check_same(folder: RunFolder, wanted: Experiment | Resolved) -> None:
    """Raises AnotherRun when a folder's run asks something else: two mixed would make a false map."""
    theirs, ours = folder.about(), wanted.settings.model_dump(mode="json")
    if theirs["schema"] < SCHEMA and "imported" not in theirs:
        raise _of_before(folder, theirs)
    fixed = ours["mode"] in GRID_MODES or wanted.ready  # the first start chose the places
    free = {*SCORING} | (FREE.difference(with_role("grid")) if fixed else FREE)
    differing = [
        name
        for name, value in theirs["settings"].items()
        if name not in free and name in ours and _meant(name, ours[name], ours) != _meant(name, value, ours)
    ]
    scorers = [ruled(theirs["scorer"]), scorer_about(wanted.scorer)]
    if scorers[0] != scorers[1] and not is_ruled_otherwise(*scorers):
        differing.append("scorer")
    if not differing and theirs["tokenizer"]["fingerprint"] != wanted.tokenizer.fingerprint:
        differing = ["tokenizer"]
    if differing:
        name = differing[0]
        was, now = scorers if name == "scorer" else (theirs["settings"].get(name), ours.get(name))
        scoring = f" To score its answers anew: {how_to_score(str(folder.path), scorers[1])}"
        advice = scoring if differing == ["scorer"] else ""
        raise AnotherRun(
            f"'{folder.path}' holds a run with other settings: {', '.join(differing)} ({name} was {was!r}, "
            f"is {now!r}). Give another folder with -o, or the settings of that run.{advice}"
        )


def _of_before(folder: RunFolder, about: About) -> AnotherRun:
    """What to do with a folder whose trials have keys of an earlier kind."""
    path = shlex.quote(folder.given)
    return AnotherRun(
        f"'{folder.path}' was begun by needlemap {about['needlemap']}, whose trials have other keys (schema "
        f"{about['schema']}, now {SCHEMA}), so it cannot be gone on with. Give another folder with -o, which "
        f"asks all anew. What it holds can still be read and scored anew: needlemap report {path}, needlemap "
        f"score {path} --scorer NAME"
    )


def _meant(name: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """What a setting comes to: of an address only whose it is."""
    return place(settings["model"].partition("/")[0], value) if name == "base_url" else value


def scorer_about(scorer: Scorer) -> dict[str, Any]:
    """A scorer's name, resolved options and rule, as run.json holds them: what was typed may differ."""
    options: dict[str, Any] = json.loads(json.dumps(dict(scorer.options), default=str))
    return {"name": scorer.name, "options": options, "rule": rule_of(scorer)}


def to_be_scored(records: Iterable[Record]) -> dict[str, Record]:
    """By `asked`, the last record of each answer: one whose scoring failed, or that was scored by another
    rule, is scored again, not asked for. records: every one of a folder."""
    return {record.asked: record for record in records if record.answer is not None and record.asked}


About = Mapping[str, Any]  # what run.json holds
Contrast = Mapping[str, tuple[Any, Any]]  # by name, what the two runs say
SUBJECT = marked("subject")  # none of them changes a prompt
_ABSENT = "not set"
_LONGEST = 60
_DIGITS = 8  # of a hash
_FEW = 1  # haystacks named: there is one for each repeat


def contrast(first: About, second: About) -> dict[str, tuple[Any, Any]]:
    """Settings that can change an answer or its score, tokenizer, haystacks and scorer, where they differ."""
    ours, theirs = (dict(about.get("settings", {})) for about in (first, second))
    names = [name for name in {**ours, **theirs} if name not in FREE and name not in SCORING]
    found = {name: (ours.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in names}
    found |= {
        part: (_brief(first.get(part)), _brief(second.get(part))) for part in ("tokenizer", "haystacks")
    }
    scorers = ruled(first.get("scorer") or {}), ruled(second.get("scorer") or {})
    if scorers[0] != scorers[1]:
        found["scorer"] = (_scorer(scorers[0]), _scorer(scorers[1]))
        if found["scorer"][0] == found["scorer"][1]:
            found["scorer"] = _ruled(scorers[0]), _ruled(scorers[1])
    return {name: values for name, values in found.items() if values[0] != values[1]}


def how_to_score(path: str, scorer: Mapping[str, Any]) -> str:
    """What to type so that a run's answers are scored by a scorer that run.json names.

    >>> how_to_score("my run", {"name": "recall", "options": {"rule": "ruler"}})
    "needlemap score 'my run' --scorer recall --scorer-options rule=ruler"
    >>> how_to_score("old", {"name": "keyword", "options": {}})
    'needlemap score old --scorer keyword --scorer-options rule=opencompass'
    """
    name, options = str(scorer.get("name")), dict(scorer.get("options") or {})
    usual: dict[str, Any] = {}
    with suppress(Exception):  # not installed, or a plug-in that wants options
        made = find("scorers", name)
        options = {**getattr(made, "unsaid", {}), **options}
        usual = dict(made().options)
    given = {option: value for option, value in options.items() if value != usual.get(option)}
    flags = [part for each in given.items() for part in ("--scorer-options", _typed(*each))]
    return shlex.join(["needlemap", "score", path, "--scorer", name, *flags])


def outdated(path: str, about: About) -> list[str]:
    """A line, where a run's scores are by another rule of its scorer than a run of today would have."""
    scorer = ruled(about["scorer"])
    name, rule = str(scorer["name"]), scorer["rule"]
    with suppress(Exception):  # not installed, or a plug-in that cannot be imported
        rule = rule_of(find("scorers", name))
    if "imported" in about or rule == scorer["rule"]:
        return []
    return [
        f"scored by rule {scorer['rule']} of scorer '{name}', which has rule {rule} now. To score all its "
        f"answers anew, which asks nothing: {how_to_score(path, scorer)}"
    ]


def prompt_contrast(found: Contrast) -> dict[str, tuple[Any, Any]]:
    """Of what differs, what can change a prompt."""
    return {name: values for name, values in found.items() if name not in SUBJECT}


def phrase(found: Contrast) -> str:
    """Differences in a line.

    >>> phrase({"seed": (0, 1), "needle": ("", "A fact.")})
    "seed (0, 1); needle ('', 'A fact.')"
    """
    return "; ".join(f"{name} ({_short(one)}, {_short(other)})" for name, (one, other) in found.items())


def _ruled(scorer: Mapping[str, Any]) -> str:
    return f"{_scorer(scorer)}, rule {scorer['rule']}"


def _typed(name: str, value: Any) -> str:
    """An option as a flag takes it."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _brief(part: Any) -> str:
    """Names with the first letters of their hashes, which is what people can compare."""
    if isinstance(part, list):
        return ", ".join(dict.fromkeys(_brief(row) for row in part[:_FEW])) + (" ..." if part[_FEW:] else "")
    row = part or {}
    digest = str(row.get("fingerprint") or row.get("sha256") or "").rpartition(":")[2]
    return f"{row.get('name', _ABSENT)} {digest[:_DIGITS]}".strip()


def _scorer(scorer: Any) -> str:
    """A scorer's name, and the options that it was given."""
    row = scorer or {}
    options = [f"{name}={value!r}" for name, value in dict(row.get("options") or {}).items() if value]
    return " ".join([str(row.get("name", _ABSENT)), *options])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
