"""Scorers of how near an answer is to a wanted text: edit distance as OpenCompass has it, difflib
as MRCR.

Edit distance is to the last digit as OpenCompass computes it. All whitespace is removed from both
texts; score = 100 * (1 - distance / longer length). It measures wording as much as retrieval: a
right answer in other words scores low, a wrong one in the same words high.

MRCR's score is of the text that was to be repeated, behind its code: difflib's ratio, 2 * matching
characters / characters of both (Ratcliff and Metzener 1988, "Pattern Matching: The Gestalt
Approach"), not rapidfuzz's: published figures are that, and the two differ. By rapidfuzz's Indel
ratio two unlike English texts are half alike (0.53), by difflib's hardly at all (0.08).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Any, Literal

from rapidfuzz.distance import Levenshtein as _Levenshtein

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.scorers.words import sought
from needlemap.tasks import Reference

# Share of the edit-distance score that an answer without the keywords keeps.
CONSOLATION = 0.2
_WHITESPACE = re.compile(r"\s+")
PERFECT = 0.99  # an answer above it is the text but for a slip or two
_MUCH, _MORE = 4, 2_000  # times the wanted text's characters, and so many more, are compared
_BEFORE = re.compile(
    r"[\s*_`\"'“‘\[({<>#]*(?:(?:the\s+)?code(?:\s+is)?\b[\s*_`\"'“‘\[({<:=-]*)?", re.IGNORECASE
)
_BEHIND = " \t\r\n*_`\"'”’])}>:.,;=-\u2013\u2014"


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
    """100 if all key words are there, else a fifth of the wording's score: OpenCompass' CDME
    evaluator.

    rule 'words': as `substring` finds them. 'opencompass': that tool's own, with their case, in the
    answer without its white space, so that a key word with a space in it is never found.
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
            raise SettingsError(
                "Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein"
            )
        _, _, distance, wording = edit_score(answer, reference.answer)
        finds = (
            as_coded if self.options["rule"] == "opencompass" else partial(sought, rule="inside")
        )
        found, missing = finds(answer, reference.keywords)
        native = keyword_score(wording, has_keywords=not missing)
        return Score(
            native / 100, native, {"found": found, "missing": missing, "distance": distance}
        )


def keyword_score(wording: float, *, has_keywords: bool) -> float:
    """Return OpenCompass's score of an answer, in 0..100. wording: its edit-distance score."""
    return 100.0 if has_keywords else CONSOLATION * wording


def as_coded(answer: str, keywords: Sequence[str]) -> tuple[list[str], list[str]]:
    """The key words that an answer holds by OpenCompass' rule, and those that it lacks.

    They match with their case and their own white space, so one with a space in it is never
    found: the rule's known fault, kept so that old scores can be reproduced.

    >>> as_coded("It is Jack Ma.", ("Jack", "Jack Ma"))
    (['Jack'], ['Jack Ma'])
    """
    said = stripped(answer)
    return [word for word in keywords if word in said], [
        word for word in keywords if word not in said
    ]


def edit_score(prediction: str, reference: str, trim: bool = False) -> tuple[str, str, int, float]:
    """(prediction and reference as compared, distance in characters, score in 0..100; 100 if
    both are empty).

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
    """The first 1.2 lengths of the reference, up to its last character if that comes after 0.8
    lengths.

    >>> trimmed("It is sandwich. Sandwiches are bread.", "It is sandwich.")
    'It is sandwich.'
    """
    said, least = said[: int(1.2 * len(wanted))], int(0.8 * len(wanted))
    if len(said) > least:
        end = said.find(wanted[-1], least)
        return said[: end + 1] if end >= 0 else said
    return said


class Verbatim(Scorer):
    """0 unless the answer begins with the code, else its ratio to the wanted text. Spaces around
    are ignored.

    Marks around the code are ignored too, and the word before it: **x7Kq**, "x7Kq", Code: x7Kq; not
    so with bare, which is MRCR's own rule. why: code (whether it was there), similarity (the ratio,
    code or no code), perfect (a score of 0.99 or more). Where the task tells of which texts one was
    to be chosen also asked and picked: the numbers of the wanted one and of that which the answer
    is most like, 0 for an answer that is like none; and noise: what one of them, chosen at random
    and repeated word for word, would score.
    """

    name = "verbatim"
    rule = 2

    def __init__(self, *, bare: bool = False) -> None:
        self.options = {"bare": bare}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no text to repeat."""
        wanted, whole = "".join(reference.keywords).strip(), reference.answer.strip()
        if len(reference.keywords) != 1 or not wanted or not whole.endswith(wanted):
            raise SettingsError(
                "Scorer 'verbatim' needs a task with a text to repeat, as --task ordinal."
            )
        code, said = whole.removesuffix(wanted).strip(), answer.strip()
        if not self.options["bare"]:
            said = undressed(said, code, wanted)
        coded, told = said.startswith(code), said.removeprefix(code).strip()
        similarity = ratio(told, wanted)
        share = similarity if coded else 0.0
        why = {"code": coded, "similarity": similarity, "perfect": share >= PERFECT}
        return Score(share, share, why | picked(told, wanted, reference.choices))


def undressed(said: str, code: str, wanted: str) -> str:
    """An answer that begins with its code, without marks around that; '' for a longer code;
    else as it is.

    >>> (
    ...     undressed("**Code:** `x7Kq`\\nthe sea", "x7Kq", "the sea"),
    ...     undressed("Sure! x7Kq", "x7Kq", "the sea"),
    ... )
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
    """Which of some texts was asked for, which was given, and what a choice at random would
    score.

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
    """How alike two texts are, in [0, 1]. Of one that is far longer than the wanted, what its
    beginning has in common with that, over the length of both: the rest would take time by the
    square.

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
