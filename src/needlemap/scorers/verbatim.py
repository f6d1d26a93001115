"""How much an answer is the text that was to be repeated, behind its code: the score of MRCR.

difflib's ratio, 2 * matching characters / characters of both (Ratcliff and Metzener 1988, "Pattern Matching:
The Gestalt Approach"), not rapidfuzz's: published figures are that, and the two differ. By rapidfuzz's Indel
ratio two unlike English texts are half alike (0.53), by difflib's hardly at all (0.08).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score

PERFECT = 0.99


class Verbatim(metaclass=Checked):
    """0 unless the answer begins with the code, else its ratio to the wanted text. Spaces around are ignored.

    why: code (whether it was there), asked and picked (numbers of the texts to choose from: the wanted one,
    and the one that the answer is most like; 0 for no answer), similarities to all of them, perfect (a ratio
    of 0.99 or more), noise (what a choice at random, repeated word for word, would score).
    """

    name = "verbatim"
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no texts to choose from."""
        choices = reference.choices
        if len(reference.keywords) != 1 or reference.keywords[0] not in choices:
            raise SettingsError(
                "Scorer 'verbatim' needs a task with texts to choose from, as --task ordinal."
            )
        wanted = reference.keywords[0].strip()
        code = reference.answer.strip().removesuffix(wanted).strip()
        begun = answer.strip().startswith(code)
        told = answer.strip().removeprefix(code).strip()
        alike = [ratio(told, text.strip()) for text in choices]
        similarity = ratio(told, wanted)
        share = similarity if begun else 0.0
        why = {
            "code": begun,
            "asked": 1 + choices.index(reference.keywords[0]),
            "picked": 1 + alike.index(max(alike)) if told else 0,
            "similarities": [round(one, 4) for one in alike],
            "perfect": share >= PERFECT,
            "noise": round(sum(ratio(text.strip(), wanted) for text in choices) / len(choices), 4),
        }
        return Score(share, share, why)


@lru_cache(maxsize=64)
def ratio(told: str, wanted: str) -> float:
    """How alike two texts are, in [0, 1].

    >>> ratio("the grey sea", "the sea"), ratio("", "the sea")
    (0.7368421052631579, 0.0)
    """
    if told == wanted:
        return float(bool(wanted))
    return SequenceMatcher(None, told, wanted).ratio()
