"""Scorers by edit distance, to the last digit as OpenCompass computes it.

All whitespace is removed from both texts; score = 100 * (1 - distance / longer length). It measures wording
as much as retrieval: a right answer in other words scores low, a wrong one in the same words high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from rapidfuzz.distance import Levenshtein as _Levenshtein

from needlemap.errors import SettingsError
from needlemap.scorers.base import Score, Scorer
from needlemap.scorers.words import not_held
from needlemap.tasks.base import Reference

CONSOLATION = 0.2  # share of the edit-distance score that an answer without the keywords keeps
_WHITESPACE = re.compile(r"\s+")


class Levenshtein(Scorer):
    """Compares with the reference answer. trim: cut a rambling answer to about its length first."""

    name = "levenshtein"
    rule = 2
    scale = (0.0, 100.0)

    def __init__(self, *, trim: bool = False) -> None:
        self.options = {"trim": trim}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Never raises: an empty answer is an answer."""
        said, wanted, distance, native = edit_score(answer, reference.answer, self.options["trim"])
        why = {"distance": distance, "answer_chars": len(said), "reference_chars": len(wanted)}
        return Score(native / 100, native, why)


class Keyword(Scorer):
    """100 if all the reference's keywords are there, else a fifth of the wording's score, as in OpenCompass'
    multi-needle CDME evaluator.

    rule 'words': as `substring` finds them. 'opencompass': that tool's own, with their case, in the answer
    without its white space, so that a key word with a space in it is never found.
    """

    name = "keyword"
    rule = 3
    scale = (0.0, 100.0)
    unsaid: Mapping[str, Any] = {"rule": "opencompass"}  # the only one, before it was an option

    def __init__(self, *, rule: Literal["words", "opencompass"] = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no keywords."""
        if not any(reference.keywords):
            raise SettingsError("Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein")
        _, _, distance, wording = edit_score(answer, reference.answer)
        finds = not_held if self.options["rule"] == "words" else as_coded
        missing = finds(answer, reference.keywords)
        native = CONSOLATION * wording if missing else 100.0
        found = [word for word in reference.keywords if word not in missing]
        return Score(native / 100, native, {"found": found, "missing": missing, "distance": distance})


def as_coded(answer: str, keywords: tuple[str, ...]) -> list[str]:
    """The key words that an answer lacks, by OpenCompass' rule.

    They match with their case and their own white space, so one with a space in it is never found: the rule's
    known fault, kept so that old scores can be reproduced.

    >>> as_coded("It is Jack Ma.", ("Jack", "Jack Ma"))
    ['Jack Ma']
    """
    said = stripped(answer)
    return [word for word in keywords if word not in said]


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
