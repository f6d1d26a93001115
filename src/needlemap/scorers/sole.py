"""Whether an answer names what is wanted and nothing else of its kind; or that there is nothing.

For tasks where guessing must not pay: several candidates in one answer, or one where the text gives none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, plain, ungrouped
from needlemap.scorers.recall import said

_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_REPEATED = 8  # characters: a shorter sentence may be an answer
_CONDITION = re.compile(r"\bif (?:the|this|it|there)\b[^.!?\n]*[.!?]?|如果[^。!?\n]*")
_SAID = "say|state|mention|specif|give|tell|contain|assign|provide|include|list|name|indicate|found|appear"
_DENIAL = re.compile(
    rf"\b(?:does|do|did|is|are|was|were)(?:n't| not) (?:\w+ )?(?:{_SAID})|\bnot (?:{_SAID}|in the text\b)"
    r"|\bno (?:such|number|value|word|uuid|one|mention|information|key)\b|\b(?:nobody|nothing|nowhere)\b"
    r"|没有|未(?:曾)?(?:提|说|给|指|出现)|[没無无](?:提|说|写|出现|此|相关)|(?<![一-鿿])无(?![一-鿿])|不存在|找不到"
)


class Sole(metaclass=Checked):
    """The share of the key words that the answer names, each whole; 0 if it names a decoy too.

    Where the text holds no answer: 1 if it says so, in the word that the question gave for it or as one says
    it ("the text does not say"), and names no decoy, but with whom the text gives it to (the `owners`), nor
    anything else that looks like an answer (the reference's `like`). What the question says is no decoy, and
    repeating the question, or a sentence of it, is no answer. why: found, missing, decoys; where the question
    allowed that there be none, present (whether it was there) and none (whether the answer denies it); and
    where there was none and `like` is known, invented.
    """

    name = "sole"
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for, or by no pattern."""
        if not any(text.strip() for text in (*reference.keywords, reference.none)):
            raise SettingsError("Scorer 'sole' needs a task with keywords. Type: --scorer recall")
        asked = plain(reference.question)
        answered = unasked(plain(answer), asked)
        decoys = [text for text in said(answered, reference.decoys, "words") if not named(asked, plain(text))]
        found = said(answered, reference.keywords, "words")
        missing = [text for text in reference.keywords if text not in found]
        denied = bool(reference.none) and denies(answered, plain(reference.none))
        if denied and not reference.keywords:
            decoys = [text for text in decoys if not elsewhere(answered, text, reference)]
        made_up = [] if reference.keywords else invented(answered, asked, reference)
        share = len(found) / len(reference.keywords) if reference.keywords else float(denied)
        share = 0.0 if decoys or made_up else share
        why: dict[str, Any] = {"found": found, "missing": missing, "decoys": decoys}
        if reference.none:
            why |= {"present": bool(reference.keywords), "none": denied}
        if reference.like and not reference.keywords:
            why["invented"] = made_up
        return Score(share, share, why)


def unasked(answered: str, asked: str) -> str:
    """An answer without the sentences that it repeats of the question, and without other conditions.

    >>> unasked("who swims? ann. if the text does not say, answer: none.", "who swims?").split()
    ['?', 'ann.']
    """
    for sentence in map(str.strip, _SENTENCE.split(asked)):
        if len(sentence) >= _REPEATED:
            answered = answered.replace(sentence, " ")
    return _CONDITION.sub(" ", answered)


def denies(answered: str, none: str) -> bool:
    """Whether an answer says that the text has none: in the word for that, or in a sentence about the text.

    >>> denies("the text does not say.", "none"), denies("i do not know.", "none")
    (True, False)
    """
    return named(answered, none) or bool(_DENIAL.search(answered.replace("\u2019", "'")))


def elsewhere(answered: str, decoy: str, reference: Reference) -> bool:
    """Whether an answer names a decoy only in sentences that say whose it is."""
    pairs = zip(reference.owners, reference.decoys, strict=False)  # not every task says whose they are
    owners = [plain(owner) for owner, each in pairs if each == decoy]
    where = [each for each in _SENTENCE.split(answered) if named(each, plain(decoy))]
    return bool(where) and all(any(named(each, owner) for owner in owners) for each in where)


def invented(answered: str, asked: str, reference: Reference) -> list[str]:
    """What looks like an answer, and neither the question nor the text holds. Raises SettingsError.

    >>> invented("none, or 47 or 12", "what is 12?", Reference("none", like="[0-9]+", decoys=("31",)))
    ['47']
    """
    if not reference.like:
        return []
    try:
        matches = re.finditer(reference.like, ungrouped(answered))
        found = dict.fromkeys(re.sub("[ _]", "-", match.group()) for match in matches)
    except re.error as error:
        raise SettingsError(f"like: '{reference.like}' is no pattern ({error}).") from None
    known = [plain(text) for text in reference.decoys]
    return [text for text in found if text not in known and not named(asked, text)]
