"""Score how near an answer is to a text: by edit distance as OpenCompass, by difflib as MRCR.

The edit distance agrees with OpenCompass to the last digit. All whitespace is removed from both
texts; score = 100 * (1 - distance / longer length). It measures wording as much as retrieval: a
right answer in other words scores low, a wrong one in the same words high.

MRCR's score is that of the text that was to be repeated, after its code: difflib's ratio, 2 *
matching characters / characters of both (Ratcliff and Metzener 1988, "Pattern Matching: The Gestalt
Approach"). Published figures have it, not rapidfuzz's ratio, and the two differ: by rapidfuzz's
Indel ratio two unlike English texts are half alike (0.53), by difflib's hardly at all (0.08).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Literal

from rapidfuzz.distance import Levenshtein as _Levenshtein

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.scorers.words import find_texts
from needlemap.tasks import Reference

# Share of the edit-distance score that an answer without the keywords keeps.
CONSOLATION = 0.2
_WHITESPACE = re.compile(r"\s+")
# An answer above it is the text but for a slip or two.
PERFECT = 0.99
# Of a long answer this many times the right text's characters, and so many more, are compared.
_COMPARED_TIMES = 4
_COMPARED_MORE = 2_000
_BEFORE = re.compile(
    r"[\s*_`\"'“‘\[({<>#]*(?:(?:the\s+)?code(?:\s+is)?\b[\s*_`\"'“‘\[({<:=-]*)?", re.IGNORECASE
)
_FENCES = ("```", "~~~")
# The first line of a block of code with the name of a language.
_TAGGED = re.compile(r"\s*(?:```|~~~)[^\S\n]*[\w+-]{1,20}[^\S\n]*\n")
_AFTER = " \t\r\n*_`\"'”’])}>:.,;=-\u2013\u2014"


class Levenshtein(Scorer):
    """Compares with the reference answer. trim: cut a rambling answer to about its length first."""

    name = "levenshtein"
    rule = 2
    scale = (0.0, 100.0)

    def __init__(self, *, trim: bool = False) -> None:
        self.options = {"trim": trim}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the edit-distance score. Never raises: an empty answer is an answer."""
        text, right_text, distance, native = edit_score(
            answer, reference.answer, trim=self.options["trim"]
        )
        why = {
            "distance": distance,
            "answer_chars": len(text),
            "reference_chars": len(right_text),
        }
        return Score(native / 100, native, why=why)


class Keyword(Scorer):
    """100 if all key words are there, else a fifth of the wording's score: OpenCompass' CDME
    evaluator.

    rule 'words': as `substring` finds them. 'opencompass': that tool's own, with their case, in the
    answer without its white space, so that a key word with a space in it is never found.
    """

    name = "keyword"
    rule = 5
    scale = (0.0, 100.0)
    # The only rule, before it was an option.
    unsaid: Mapping[str, Any] = {"rule": "opencompass"}

    def __init__(self, *, rule: Literal["words", "opencompass"] = "words") -> None:
        self.options = {"rule": rule}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return OpenCompass's score. Raises SettingsError if the task gives no keywords."""
        if not any(reference.keywords):
            raise SettingsError(
                "Scorer 'keyword' needs a task with keywords. Type: --scorer levenshtein"
            )
        _, _, distance, wording = edit_score(answer, reference.answer)
        if self.options["rule"] == "opencompass":
            present, missing = as_coded(answer, reference.keywords)
        else:
            present, missing = find_texts(answer, reference.keywords, rule="inside")
        native = keyword_score(wording, has_keywords=not missing)
        why = {"found": present, "missing": missing, "distance": distance}
        return Score(native / 100, native, why=why)


def keyword_score(wording: float, *, has_keywords: bool) -> float:
    """Return OpenCompass's score of an answer, in 0..100. wording: its edit-distance score."""
    return 100.0 if has_keywords else CONSOLATION * wording


def as_coded(answer: str, keywords: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the key words that an answer holds by OpenCompass's rule, and those that it lacks.

    They match with their case and their own white space, so a word with a space in it is never
    found. This fault of the rule is known, and kept so that old scores can be reproduced.

    >>> as_coded("It is Jack Ma.", ("Jack", "Jack Ma"))
    (['Jack'], ['Jack Ma'])
    """
    text = stripped(answer)
    present = [word for word in keywords if word in text]
    missing = [word for word in keywords if word not in text]
    return present, missing


def edit_score(prediction: str, reference: str, trim: bool = False) -> tuple[str, str, int, float]:
    """Return the two texts as compared, their distance in characters, and their score in 0..100.

    The score of two empty texts is 100. trim: cut the prediction with `trimmed` first.

    >>> edit_score("a sand wich", "sandwich")
    ('asandwich', 'sandwich', 1, 88.88888888888889)
    """
    text = stripped(prediction)
    right_text = stripped(reference)
    if trim:
        text = trimmed(text, right_text)
    distance = _Levenshtein.distance(text, right_text)
    longer = max(len(text), len(right_text))
    score = 100.0
    if longer:
        score = 100 * (1 - distance / longer)
    return text, right_text, distance, score


def stripped(text: str) -> str:
    """Return a text without its whitespace, Unicode's included."""
    return _WHITESPACE.sub("", text)


def trimmed(text: str, reference: str) -> str:
    """Return the first 1.2 lengths of the reference, or less.

    The text is cut after the reference's last character, if that comes after 0.8 lengths.

    >>> trimmed("It is sandwich. Sandwiches are bread.", "It is sandwich.")
    'It is sandwich.'
    """
    text = text[: int(1.2 * len(reference))]
    least = int(0.8 * len(reference))
    if len(text) <= least:
        return text
    end = text.find(reference[-1], least)
    return text[: end + 1] if end >= 0 else text


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
    rule = 3

    def __init__(self, *, bare: bool = False) -> None:
        self.options = {"bare": bare}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the ratio of the repeated text.

        Raises SettingsError if the task gives no text to repeat.
        """
        right_text = "".join(reference.keywords).strip()
        right_answer = reference.answer.strip()
        if len(reference.keywords) != 1 or not right_text or not right_answer.endswith(right_text):
            raise SettingsError(
                "Scorer 'verbatim' needs a task with a text to repeat, as --task ordinal."
            )
        code = right_answer.removesuffix(right_text).strip()
        text = answer.strip()
        if not self.options["bare"]:
            text = without_marks(text, code, right_text=right_text)
        has_code = text.startswith(code)
        repeated = text.removeprefix(code).strip()
        similarity = ratio(repeated, right_text)
        share = similarity if has_code else 0.0
        why = {
            "code": has_code,
            "similarity": similarity,
            "perfect": share >= PERFECT,
            **compare_choices(repeated, right_text, choices=reference.choices),
        }
        return Score(share, share, why=why)


def without_marks(answer: str, code: str, right_text: str) -> str:
    """Return an answer that begins with its code, without marks around the code.

    A block of code around both is a mark, with or without the name of a language.

    Return '' if the answer's code is longer, and any other answer as it is.

    >>> (
    ...     without_marks("**Code:** `x7Kq`\\nthe sea", "x7Kq", "the sea"),
    ...     without_marks("Sure! x7Kq", "x7Kq", "the sea"),
    ... )
    ('x7Kq the sea', 'Sure! x7Kq')
    """
    tag = _TAGGED.match(answer)
    before = _BEFORE.match(answer)
    start = before.end() if before else 0
    # What looks like a tag may be the code.
    if tag and not answer.startswith(code, start):
        before = _BEFORE.match(answer, tag.end())
        start = before.end() if before else tag.end()
    if not code or not answer.startswith(code, start):
        return answer
    rest = answer[start + len(code) :]
    if rest[:1].isalnum() and rest[0].casefold() != right_text[0].casefold():
        # This is another code, which only begins as the right one does.
        return ""
    rest = rest.rstrip()
    if rest.endswith(_FENCES) and not right_text.endswith(_FENCES):
        rest = rest[:-3].rstrip()
    marks = _AFTER.replace(right_text[0], "")
    return f"{code} {rest.lstrip(marks)}"


def compare_choices(repeated: str, right_text: str, choices: Sequence[str]) -> dict[str, Any]:
    """Return which of some texts was asked for, which was given, and the score of a random choice.

    >>> compare_choices("the grey sea", "a train", ["a train", "the sea"])["picked"]
    2
    """
    if not choices:
        return {}
    texts = [text.strip() for text in choices]
    ratios = [ratio(repeated, text) for text in texts]
    return {
        "asked": 1 + texts.index(right_text),
        "picked": 1 + ratios.index(max(ratios)) if any(ratios) else 0,
        "noise": sum(ratio(text, right_text) for text in texts) / len(texts),
    }


@lru_cache(maxsize=64)
def ratio(text: str, right_text: str) -> float:
    """Return how alike two texts are, in [0, 1].

    Of a text that is far longer than the right one, only the beginning is compared, because the
    rest would take time by the square. What it has in common is divided by the length of both.

    >>> ratio("the grey sea", "the sea"), ratio("", "the sea")
    (0.7368421052631579, 0.0)
    """
    if text == right_text:
        return float(bool(right_text))
    most_chars = _COMPARED_TIMES * len(right_text) + _COMPARED_MORE
    matcher = SequenceMatcher(None, text[:most_chars], right_text)
    if len(text) <= most_chars:
        return matcher.ratio()
    matching = sum(block.size for block in matcher.get_matching_blocks())
    return 2 * matching / (len(text) + len(right_text))
