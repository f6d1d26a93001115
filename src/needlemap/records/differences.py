"""In what two runs differ, by their run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.records.run_file import RuledScorer, RunFile, RunHaystack, RunTokenizer
from needlemap.settings import marked, with_role

Differences = Mapping[str, tuple[Any, Any]]  # by name, what the two runs say
SUBJECT = marked("model_identity")  # none of them changes a prompt
_NO_MATTER = with_role(
    "grid", "free", "scored"
)  # settings that change no answer, or are told by the scorer
_ABSENT = "not set"
_LONGEST = 60
_DIGITS = 8  # of a hash


def contrast(first: RunFile, second: RunFile) -> dict[str, tuple[Any, Any]]:
    """Settings that can change an answer or its score, tokenizer, haystacks and scorer, where
    they differ."""
    ours, theirs = first.settings, second.settings
    names = [name for name in {**ours, **theirs} if name not in _NO_MATTER]
    found = {name: (ours.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in names}
    found["tokenizer"] = _brief(first.tokenizer), _brief(second.tokenizer)
    found["haystacks"] = _first(first.haystacks), _first(second.haystacks)
    scorers = first.scorer, second.scorer
    if scorers[0] != scorers[1]:
        one, other = map(_scorer, scorers)
        rules = [f", rule {scorer.rule}" if one == other else "" for scorer in scorers]
        found["scorer"] = f"{one}{rules[0]}", f"{other}{rules[1]}"
    return {name: values for name, values in found.items() if values[0] != values[1]}


def prompt_contrast(found: Differences) -> dict[str, tuple[Any, Any]]:
    """The differences that can change a prompt."""
    return {name: values for name, values in found.items() if name not in SUBJECT}


def phrase(found: Differences) -> str:
    """Differences in a line.

    >>> phrase({"seed": (0, 1), "needle": ("", "A fact.")})
    "seed (0, 1); needle ('', 'A fact.')"
    """
    return "; ".join(
        f"{name} ({_short(one)}, {_short(other)})" for name, (one, other) in found.items()
    )


def _brief(part: RunTokenizer | RunHaystack) -> str:
    """A name with the first letters of its hash, which is what people can compare."""
    digest = part.fingerprint if isinstance(part, RunTokenizer) else part.sha256
    return f"{part.name} {digest.rpartition(':')[2][:_DIGITS]}".strip()


def _first(haystacks: Sequence[RunHaystack]) -> str:
    """The first haystack: there is one for each repeat."""
    return "".join(map(_brief, haystacks[:1])) + (" ..." if haystacks[1:] else "")


def _scorer(scorer: RuledScorer) -> str:
    """A scorer's name, and the options that it was given."""
    options = [f"{name}={value!r}" for name, value in scorer.options.items() if value]
    return " ".join([scorer.name, *options])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
