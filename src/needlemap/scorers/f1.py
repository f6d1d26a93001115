"""How well an answer's list agrees with the wanted one: F1, with recall and precision.

What the question already says earns nothing, as anybody can repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rapidfuzz.distance import LCSseq

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, plain

_BETWEEN = re.compile(r"[\n,;、，；]|\band\b|和")
_HEADING = (":", "：")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_BULLET = re.compile(r"^[\s\-*•]*(\d+[.)])?[\s\"'`*\[]*|[\s\"'`*\].:。]+$")


class F1(metaclass=Checked):
    """item: what an item looks like, a regular expression; by default an item is what stands between commas,
    line breaks and 'and'.

    Wanted are the keywords. Wrong are the decoys that the answer names; of a task without decoys, or where
    `item` is given, all items that name nothing wanted. native: F1. why: recall, precision, found, missing,
    wrong, and ordered: the share of the wanted that the answer names in their order, which costs nothing.
    """

    name = "f1"
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
        found = [text for text in wanted if named(compared, text)]
        wrong = self._wrong(compared, asked, wanted, reference)
        recall = len(found) / len(wanted) if wanted else 0.0
        precision = len(found) / (len(found) + len(wrong)) if found else 0.0
        share = 2 * recall * precision / (recall + precision) if found else 0.0
        missing = [text for text in wanted if text not in found]
        why = {"recall": recall, "precision": precision, "found": found, "missing": missing, "wrong": wrong}
        return Score(share, share, why | {"ordered": in_order(compared, found) / max(1, len(wanted))})

    def _wrong(self, compared: str, asked: str, wanted: list[str], reference: Reference) -> list[str]:
        if reference.decoys and not self.options["item"]:
            others = [text for text in dict.fromkeys(map(plain, reference.decoys)) if text not in wanted]
            return [text for text in others if named(compared, text) and not named(asked, text)]
        pattern = self.options["item"]
        listed = []
        for item in items(compared, pattern):
            if not any(named(item, one) for one in wanted):
                listed.append(item)
            elif not pattern:
                listed += beside(item, wanted)
        return [text for text in dict.fromkeys(listed) if not named(asked, text)]


def beside(item: str, wanted: list[str]) -> list[str]:
    """What looks like the wanted and is not, in an item that names some: a list may have spaces alone.

    >>> beside("red-fox (30) sad-dog shy-cat", ["red-fox", "shy-cat"]), beside("1) 6713 2) 1392", ["6713"])
    (['sad-dog'], ['1392'])
    """
    return [
        word
        for word in _WORD.findall(item)
        if word not in wanted and any(_kind(word) == _kind(one) for one in wanted)
    ]


def _kind(text: str) -> tuple[bool, bool, int, int]:
    """Digits or not, spaced script or not, how many hyphens; and without one, how long."""
    hyphens = text.count("-")
    return text.isdecimal(), text.isascii(), hyphens, 0 if hyphens else len(text)


def in_order(answer: str, texts: list[str]) -> int:
    """The most of some texts, all in an answer, that it names in their order.

    >>> in_order("fig, plum, pear", ["fig", "pear", "plum"])
    2
    """
    said = sorted(texts, key=answer.find)
    return LCSseq.similarity(texts, said)


def items(answer: str, pattern: str = "") -> list[str]:
    """The items that an answer lists, each once; what ends with a colon is a heading.

    >>> items("1. fig\\n2. plum, and pear")
    ['fig', 'plum', 'pear']
    """
    if pattern:
        return list(dict.fromkeys(match.group() for match in re.finditer(pattern, answer, re.IGNORECASE)))
    pieces = (piece for piece in _BETWEEN.split(answer) if not piece.rstrip().endswith(_HEADING))
    stripped = (_BULLET.sub("", _BULLET.sub("", piece)) for piece in pieces)
    return list(dict.fromkeys(piece for piece in stripped if piece))
