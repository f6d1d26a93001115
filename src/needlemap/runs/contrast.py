"""In what two runs differ, by what run.json says of each. Prompts are compared by hash, elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from needlemap.runs.run_file import ruled
from needlemap.scorers.base import rule_of
from needlemap.settings.registry import find
from needlemap.settings.settings import marked
from needlemap.trials.keys import FREE, SCORING

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
