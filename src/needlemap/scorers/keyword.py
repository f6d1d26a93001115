"""Keywords found count fully, else the wording counts a fifth: OpenCompass' multi-needle CDME evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.levenshtein import edit_score, stripped

CONSOLATION = 0.2  # share of the edit-distance score that an answer without the keywords keeps


class Keyword(metaclass=Checked):
    """Looks for the reference's keywords, which must all be there, in the answer without its whitespace."""

    name = "keyword"
    rule = 1
    scale = (0.0, 100.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no keywords."""
        if not any(reference.keywords):
            raise SettingsError("Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein")
        missing, distance, native = keyword_score(answer, reference.answer, reference.keywords)
        found = [word for word in reference.keywords if word not in missing]
        return Score(native / 100, native, {"found": found, "missing": missing, "distance": distance})


def keyword_score(prediction: str, reference: str, keywords: Sequence[str]) -> tuple[list[str], int, float]:
    """(missing keywords, distance in characters, score in [0, 100]).

    Keywords match with their case and their own whitespace, so one with a space in it is never found: the
    rule's known fault, kept so that old scores can be reproduced.

    >>> keyword_score("It is Jack.", "Jack", ["Jack"])
    ([], 5, 100.0)
    """
    _, _, distance, wording = edit_score(prediction, reference)
    said = stripped(prediction)
    missing = [word for word in keywords if word not in said]
    return missing, distance, CONSOLATION * wording if missing else 100.0
