"""Find the settings in which two runs differ, by their run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.records.run_file import RuledScorer, RunFile, RunHaystack, RunTokenizer
from needlemap.settings import marked, with_role

# By setting, its values in the two runs.
Differences = Mapping[str, tuple[Any, Any]]
# Settings that change no prompt.
SUBJECT = marked("model_identity")
# Settings that change no answer, or that are compared as the scorer's.
_WITHOUT_EFFECT = with_role("grid", "free", "scored")
_ABSENT = "not set"
_LONGEST = 60
# Of a hash.
_DIGITS = 8


def contrast(first: RunFile, second: RunFile) -> dict[str, tuple[Any, Any]]:
    """Return the settings of two runs that differ and can change an answer or its score.

    Tokenizer, haystacks and scorer count as settings.
    """
    names = [name for name in {**first.settings, **second.settings} if name not in _WITHOUT_EFFECT]
    pairs = {
        name: (first.settings.get(name, _ABSENT), second.settings.get(name, _ABSENT))
        for name in names
    }
    pairs["tokenizer"] = _brief(first.tokenizer), _brief(second.tokenizer)
    pairs["haystacks"] = _first(first.haystacks), _first(second.haystacks)
    if first.scorer != second.scorer:
        labels = _scorer(first.scorer), _scorer(second.scorer)
        # Scorers with the same label differ by their rules alone.
        if labels[0] == labels[1]:
            labels = (
                f"{labels[0]}, rule {first.scorer.rule}",
                f"{labels[1]}, rule {second.scorer.rule}",
            )
        pairs["scorer"] = labels
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def prompt_contrast(differences: Differences) -> dict[str, tuple[Any, Any]]:
    """Return the differences that can change a prompt."""
    return {name: pair for name, pair in differences.items() if name not in SUBJECT}


def phrase(differences: Differences) -> str:
    """Return differences in one line.

    >>> phrase({"seed": (0, 1), "needle": ("", "A fact.")})
    "seed (0, 1); needle ('', 'A fact.')"
    """
    return "; ".join(
        f"{name} ({_short(first)}, {_short(second)})"
        for name, (first, second) in differences.items()
    )


def _brief(part: RunTokenizer | RunHaystack) -> str:
    """Return a name with the start of its hash, which is what people can compare."""
    digest = part.fingerprint if isinstance(part, RunTokenizer) else part.sha256
    return f"{part.name} {digest.rpartition(':')[2][:_DIGITS]}".strip()


def _first(haystacks: Sequence[RunHaystack]) -> str:
    """Return the first haystack, with dots for those of further repeats."""
    if not haystacks:
        return ""
    dots = " ..." if len(haystacks) > 1 else ""
    return _brief(haystacks[0]) + dots


def _scorer(scorer: RuledScorer) -> str:
    """Return a scorer's name and the options that were set."""
    options = [f"{name}={value!r}" for name, value in scorer.options.items() if value]
    return " ".join([scorer.name, *options])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
