"""Edit-distance score, to the last digit as OpenCompass' CDMEEvaluator computes it.

All whitespace is removed from both texts; score = 100 * (1 - distance / longer length). It measures wording
as much as retrieval: a right answer in other words scores low, a wrong one in the same words high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rapidfuzz.distance import Levenshtein as _Levenshtein

from needlemap.scorers.base import Reference, Score
from needlemap.settings.registry import Checked

_WHITESPACE = re.compile(r"\s+")


class Levenshtein(metaclass=Checked):
    """Compares with the reference answer. trim: cut a rambling answer to about its length first."""

    name = "levenshtein"
    rule = 2
    scale = (0.0, 100.0)

    def __init__(self, *, trim: bool = False) -> None:
        self.options: Mapping[str, Any] = {"trim": trim}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an empty answer is an answer."""
        said, wanted, distance, native = edit_score(answer, reference.answer, self.options["trim"])
        why = {"distance": distance, "answer_chars": len(said), "reference_chars": len(wanted)}
        return Score(native / 100, native, why)


def edit_score(prediction: str, reference: str, trim: bool = False) -> tuple[str, str, int, float]:
    """(prediction and reference as compared, distance in characters, score in 0..100; 100 if both are empty).

    >>> edit_score("a sand wich", "sandwich")
    ('asandwich', 'sandwich', 1, 88.88888888888889)
    """
    said, wanted = stripped(prediction), stripped(reference)
    if trim:
        said = trimmed(said, wanted)
    distance = _Levenshtein.distance(said, wanted)
    longer = max(len(said), len(wanted))
    return said, wanted, distance, 100 * (1 - distance / longer) if longer else 100.0


def stripped(text: str) -> str:
    """A text without its whitespace, Unicode's included."""
    return _WHITESPACE.sub("", text)


def trimmed(said: str, wanted: str) -> str:
    """The first 1.2 lengths of the reference, up to its last character if that comes after 0.8 lengths.

    >>> trimmed("It is sandwich. Sandwiches are bread.", "It is sandwich.")
    'It is sandwich.'
    """
    said, least = said[: int(1.2 * len(wanted))], int(0.8 * len(wanted))
    if len(said) > least:
        end = said.find(wanted[-1], least)
        return said[: end + 1] if end >= 0 else said
    return said
