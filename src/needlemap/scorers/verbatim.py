"""How much an answer is the text that was to be repeated, behind its code: the score of MRCR.

difflib's ratio, 2 * matching characters / characters of both (Ratcliff and Metzener 1988, "Pattern Matching:
The Gestalt Approach"), not rapidfuzz's: published figures are that, and the two differ. By rapidfuzz's Indel
ratio two unlike English texts are half alike (0.53), by difflib's hardly at all (0.08).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Score, Scorer
from needlemap.tasks.base import Reference

PERFECT = 0.99  # an answer above it is the text but for a slip or two
_MUCH, _MORE = 4, 2_000  # times the wanted text's characters, and so many more, are compared
_BEFORE = re.compile(
    r"[\s*_`\"'“‘\[({<>#]*(?:(?:the\s+)?code(?:\s+is)?\b[\s*_`\"'“‘\[({<:=-]*)?", re.IGNORECASE
)
_BEHIND = " \t\r\n*_`\"'”’])}>:.,;=-\u2013\u2014"


class Verbatim(Scorer):
    """0 unless the answer begins with the code, else its ratio to the wanted text. Spaces around are ignored.

    Marks around the code are ignored too, and the word before it: **x7Kq**, "x7Kq", Code: x7Kq; not so with
    bare, which is MRCR's own rule. why: code (whether it was there), similarity (the ratio,
    code or no code), perfect (a score of 0.99 or more). Where the task tells of which texts one was to be
    chosen also asked and picked: the numbers of the wanted one and of that which the answer is most like, 0
    for an answer that is like none; and noise: what one of them, chosen at random and repeated word for word,
    would score.
    """

    name = "verbatim"
    rule = 2

    def __init__(self, *, bare: bool = False) -> None:
        self.options = {"bare": bare}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no text to repeat."""
        wanted, whole = "".join(reference.keywords).strip(), reference.answer.strip()
        if len(reference.keywords) != 1 or not wanted or not whole.endswith(wanted):
            raise SettingsError("Scorer 'verbatim' needs a task with a text to repeat, as --task ordinal.")
        code, said = whole.removesuffix(wanted).strip(), answer.strip()
        if not self.options["bare"]:
            said = undressed(said, code, wanted)
        coded, told = said.startswith(code), said.removeprefix(code).strip()
        similarity = ratio(told, wanted)
        share = similarity if coded else 0.0
        why = {"code": coded, "similarity": similarity, "perfect": share >= PERFECT}
        return Score(share, share, why | picked(told, wanted, reference.choices))


def undressed(said: str, code: str, wanted: str) -> str:
    """An answer that begins with its code, without marks around that; '' for a longer code; else as it is.

    >>> undressed("**Code:** `x7Kq`\\nthe sea", "x7Kq", "the sea"), undressed("Sure! x7Kq", "x7Kq", "the sea")
    ('x7Kq the sea', 'Sure! x7Kq')
    """
    begins = _BEFORE.match(said)
    start = begins.end() if begins else 0
    if not code or not said.startswith(code, start):
        return said
    told = said[start + len(code) :]
    if told[:1].isalnum() and told[0].casefold() != wanted[0].casefold():
        return ""  # another code, which only begins as this one does
    return f"{code} {told.lstrip(_BEHIND.replace(wanted[0], ''))}"


def picked(told: str, wanted: str, choices: Sequence[str]) -> dict[str, Any]:
    """Which of some texts was asked for, which was told, and what a choice at random would score.

    >>> picked("the grey sea", "a train", ["a train", "the sea"])["picked"]
    2
    """
    if not choices:
        return {}
    texts = [text.strip() for text in choices]
    alike = [ratio(told, text) for text in texts]
    return {
        "asked": 1 + texts.index(wanted),
        "picked": 1 + alike.index(max(alike)) if any(alike) else 0,
        "noise": sum(ratio(text, wanted) for text in texts) / len(texts),
    }


@lru_cache(maxsize=64)
def ratio(told: str, wanted: str) -> float:
    """How alike two texts are, in [0, 1]. Of one that is far longer than the wanted, what its beginning has
    in common with that, over the length of both: the rest would take time by the square.

    >>> ratio("the grey sea", "the sea"), ratio("", "the sea")
    (0.7368421052631579, 0.0)
    """
    if told == wanted:
        return float(bool(wanted))
    most = _MUCH * len(wanted) + _MORE
    alike = SequenceMatcher(None, told[:most], wanted)
    if len(told) <= most:
        return alike.ratio()
    return 2 * sum(block.size for block in alike.get_matching_blocks()) / (len(told) + len(wanted))
