"""Keywords found count fully, else the wording a fifth, as in OpenCompass' multi-needle CDME evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.levenshtein import edit_score, stripped
from needlemap.scorers.substring import not_held
from needlemap.settings.registry import Checked

CONSOLATION = 0.2  # share of the edit-distance score that an answer without the keywords keeps


class Keyword(metaclass=Checked):
    """Looks for the reference's keywords, which must all be there.

    rule 'words': as `substring` finds them. 'opencompass': that tool's own, with their case, in the answer
    without its white space, so that a key word with a space in it is never found.
    """

    name = "keyword"
    rule = 3
    scale = (0.0, 100.0)
    unsaid: Mapping[str, Any] = {"rule": "opencompass"}  # the only one, before it was an option

    def __init__(self, *, rule: Literal["words", "opencompass"] = "words") -> None:
        self.options: Mapping[str, Any] = {"rule": rule}

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
