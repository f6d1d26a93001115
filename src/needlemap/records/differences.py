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
# Letters of a value in the line of differences.
_MOST_LETTERS = 60
_HASH_DIGITS = 8


def contrast(first: RunFile, second: RunFile) -> dict[str, tuple[Any, Any]]:
    """Return the settings of two runs that differ and can change an answer or its score.

    Tokenizer, haystacks and scorer count as settings.
    """
    names = [name for name in {**first.settings, **second.settings} if name not in _WITHOUT_EFFECT]
    pairs = {
        name: (first.settings.get(name, _ABSENT), second.settings.get(name, _ABSENT))
        for name in names
    }
    pairs["tokenizer"] = _name_with_hash(first.tokenizer), _name_with_hash(second.tokenizer)
    pairs["haystacks"] = _first_haystack(first.haystacks), _first_haystack(second.haystacks)
    if first.scorer != second.scorer:
        labels = _scorer_label(first.scorer), _scorer_label(second.scorer)
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
        f"{name} ({_shortened_value(first)}, {_shortened_value(second)})"
        for name, (first, second) in differences.items()
    )


def _name_with_hash(part: RunTokenizer | RunHaystack) -> str:
    """Return a name with the start of its hash, because people can compare that."""
    digest = part.fingerprint if isinstance(part, RunTokenizer) else part.sha256
    return f"{part.name} {digest.rpartition(':')[2][:_HASH_DIGITS]}".strip()


def _first_haystack(haystacks: Sequence[RunHaystack]) -> str:
    """Return the label of the first haystack, with dots if further repeats have haystacks."""
    if not haystacks:
        return ""
    dots = " ..." if len(haystacks) > 1 else ""
    return _name_with_hash(haystacks[0]) + dots


def _scorer_label(scorer: RuledScorer) -> str:
    """Return a scorer's name and the options that were set."""
    options = [f"{name}={value!r}" for name, value in scorer.options.items() if value]
    return " ".join([scorer.name, *options])


def _shortened_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 3]}..."
