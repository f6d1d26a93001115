"""How well an answer's list agrees with the wanted one: F1, with recall and precision.

What the question already says earns nothing, as anybody can repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rapidfuzz.distance import LCSseq

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.listing import alike, alone, beside, items
from needlemap.scorers.matching import named, place, plain, ungrouped
from needlemap.settings.registry import Checked

_SHORT = 3  # digits of numbers that a list without spaces cannot tell from thousands


class F1(metaclass=Checked):
    """item: what an item looks like, a regular expression.

    Wanted are the keywords. Wrong is, where the task says what else its text holds (the reference's decoys)
    or what an item looks like (its `like`): all of that, wherever the answer names it, and what stands alone
    in its list and is of the wanted's kind; prose around the list costs nothing. Of other tasks every item
    that names nothing wanted is wrong, an item being what stands between commas, line breaks and 'and'. With
    `item`, the decoys and whatever it finds. native: F1. why: recall, precision, found, missing, wrong, and
    ordered: the share of the wanted that the answer names in their order, which costs nothing.
    """

    name = "f1"
    rule = 3
    scale = (0.0, 1.0)

    def __init__(self, *, item: str = "") -> None:
        try:
            re.compile(item)
        except re.error as error:
            raise SettingsError(f"Option 'item' of F1: '{item}' is no pattern ({error}).") from None
        self.options: Mapping[str, Any] = {"item": item}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no list."""
        if not reference.keywords:
            raise SettingsError("Scorer 'f1' needs a task whose answer is a list. Type: --scorer recall")
        compared, asked = plain(answer), plain(reference.question)
        wanted = [text for text in dict.fromkeys(map(plain, reference.keywords)) if not named(asked, text)]
        if any(text.isdecimal() and len(text) > _SHORT for text in wanted):
            compared = ungrouped(compared)
        found = [text for text in wanted if named(compared, text)]
        listed = dict.fromkeys(self._listed(compared, wanted, reference))
        wrong = [text for text in listed if text not in wanted and not named(asked, text)]
        recall = len(found) / len(wanted) if wanted else 0.0
        precision = len(found) / (len(found) + len(wrong)) if found else 0.0
        share = 2 * recall * precision / (recall + precision) if found else 0.0
        missing = [text for text in wanted if text not in found]
        why = {"recall": recall, "precision": precision, "found": found, "missing": missing, "wrong": wrong}
        return Score(share, share, why | {"ordered": in_order(compared, found) / max(1, len(wanted))})

    def _listed(self, compared: str, wanted: list[str], reference: Reference) -> list[str]:
        """What the answer lists, but for items that name something wanted."""
        pattern = self.options["item"]
        decoys = [text for text in map(plain, reference.decoys) if named(compared, text)]
        if not pattern and (reference.decoys or reference.like):
            spaced = any(named(compared, one) and one not in compared for one in wanted)
            looks = alike(compared, reference.like, spaced=spaced)
            return [*decoys, *looks, *alone(compared, wanted, reference.like)]
        pieces = items(compared, pattern)
        others = [item for item in pieces if not any(named(item, one) for one in wanted)]
        return [*decoys, *others, *(word for item in pieces for word in beside(item, wanted) if not pattern)]


def in_order(answer: str, texts: list[str]) -> int:
    """The most of some texts, all in an answer, that it names in their order.

    >>> in_order("fig, plum, pear", ["fig", "pear", "plum"])
    2
    """
    said = sorted(texts, key=lambda text: place(answer, text))
    return LCSseq.similarity(texts, said)
