"""In what two runs differ, by what run.json says of each. Prompts are compared by hash, elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needlemap.identity import FREE

About = Mapping[str, Any]  # what run.json holds
Contrast = Mapping[str, tuple[Any, Any]]  # by name, what the two runs say
SUBJECT = ("model", "base_url", "model_options", "temperature", "request")  # none of them changes a prompt
_ABSENT = "not set"
_LONGEST = 60
_DIGITS = 8  # of a hash
_FEW = 1  # haystacks named: there is one for each repeat


def contrast(first: About, second: About) -> dict[str, tuple[Any, Any]]:
    """Settings that can change an answer or its score, tokenizer, haystacks and scorer, where they differ."""
    ours, theirs = (dict(about.get("settings", {})) for about in (first, second))
    names = [name for name in {**ours, **theirs} if name not in FREE]
    found = {name: (ours.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in names}
    found |= {
        part: (_brief(first.get(part)), _brief(second.get(part))) for part in ("tokenizer", "haystacks")
    }
    scorers = first.get("scorer"), second.get("scorer")
    if scorers[0] != scorers[1]:
        found["scorer"] = (_scorer(scorers[0]), _scorer(scorers[1]))
    return {name: values for name, values in found.items() if values[0] != values[1]}


def prompt_contrast(found: Contrast) -> dict[str, tuple[Any, Any]]:
    """Of what differs, what can change a prompt."""
    return {name: values for name, values in found.items() if name not in SUBJECT}


def phrase(found: Contrast) -> str:
    """Differences in a line.

    >>> phrase({"seed": (0, 1), "needle": ("", "A fact.")})
    "seed (0, 1); needle ('', 'A fact.')"
    """
    return "; ".join(f"{name} ({_short(one)}, {_short(other)})" for name, (one, other) in found.items())


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
