"""Whether an answer names what is wanted and nothing else of its kind; or that there is nothing.

For tasks where guessing must not pay: several candidates in one answer, or one where the text gives none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, place, plain, ungrouped
from needlemap.scorers.recall import said
from needlemap.settings.registry import Checked

_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_REPEATED = 8  # characters: a shorter sentence may be an answer
_CONDITION = re.compile(  # "if the text does not say, answer: none" says nothing of the text
    r"\bif (?:the|this|it|there)\b[^.!?\n,]{0,99}(?:\b(?:not|no|none|nothing)\b|n't)[^.!?\n]*[.!?]?"
    r"|如果[^。!?\n,]{0,60}[没沒未无無不][^。!?\n]*"
)
_SAID = (
    "said|say|state|mention|specif|give|tell|contain|assign|provide|include|list|name|indicate|found|appear"
)
_DENIAL = re.compile(
    rf"\b(?:does|do|did|is|are|was|were)(?:n't| not) (?:\w+ )?(?:{_SAID})|\bnot (?:{_SAID}|in the text\b)"
    r"|\bno (?:such|number|value|word|uuid|one(?! else)|mention|information|key)\b"
    rf"|\b(?:nobody|nothing|nowhere)\b(?= (?:\w+ ){{0,3}}(?:in the text\b|{_SAID}))"
    r"|^\W*(?:nobody|nothing)\W*$"
    r"|[没沒]有|未(?:曾)?(?:提|说|给|指|出现)|[没無无](?:提|说|写|出现|此|相关)"
    r"|(?<![一-鿿])无(?![一-鿿])|不存在|找不到"
)
_OTHERWISE = re.compile(  # who misses the text itself says nothing of it, nor who denies a denial
    r"\b(?:text|document|context|passage)s? (?:is|was|are|were)(?:n't| not) (?:\w+ )?(?:provided|given|shown)"
    r"|\byou (?:did|have|do)(?:n't| not)\b|\bno (?:text|document|context|passage)\b|\bnot\W{1,3}none\b"
    r"|没有?(?:提供|看到|收到|给)[^。,]{0,3}(?:文本|文档|文章|内容)|(?:不是|并非|有)没有|没有(?:空|问题|疑问)"
)
_HEAD = re.compile(  # where the word for a denial may stand: "none", "answer: none", "there is none"
    rf"(?:^|[^\w\s'-]|(?<!\w)'|(?:^|\s)-+\s|_|\n|\b(?:is|are|was|were|be|answer|ha[sd]|have|(?:{_SAID})\w{{0,3}})\b"
    r"|[是为])\s*"
)
_GUESS = re.compile(
    r"\b(?:probably|maybe|perhaps|presumably|must be|i(?:'d| would)? guess|i(?:'d| would) say)\b"
    r"(?! (?:not|none|no)\b)|(?:可能|应该|应当)是(?![没沒无無不])|(?:也许|大概|恐怕)(?![没沒无無不])"
)
_TURN = re.compile(  # behind a denial: on to what it is
    r"^(?:(?! - )[^.!?。,;(\n])*?:|^ (?:other|else)\b|^(?:疑问|问题|弄?错|别|其他)"
    r"|\b(?:but|however)\b|但|不过|然而|[,。;:](?:就|那|它|他|她|答案)?是"
    r"|[.!?\n,;-]\s{0,3}(?:so |and |then )?"
    r"(?:it|he|she|(?:the|my) (?:\w+ )?(?:answer|guess|number|value|word|uuid|name))"
    r"(?:'s| is| was| might be| could be| may be)\b"
)
_NEGATIVE = re.compile(
    r"\W*(?:\w+(?:-\w+)? ){0,4}"
    r"(?:(?:not|no(?! doubt| question)|none|never|nobody|nothing|nowhere|unknown)\b|\w+n't\b)"
    r"|[^。,]{0,6}[没沒未无無不]"
)


class Sole(metaclass=Checked):
    """The share of the key words that the answer names, each whole; 0 if it names a decoy too.

    Where the text holds no answer: 1 if it says so, in the word that the question gave for it or as one says
    it ("the text does not say"), goes on with no guess ("but it must be"), and names no decoy, but with whom
    the text gives it to (the `owners`), nor anything else that looks like an answer (the reference's `like`).
    What the question says is no decoy, and repeating the question, or a sentence of it, is no answer. why:
    found, missing, decoys; where the question allowed that there be none, present (whether it was there) and
    none (whether the answer denies it); and where there was none and `like` is known, invented.
    """

    name = "sole"
    rule = 3
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
        denied = bool(reference.none) and denies(answered, plain(reference.none), reference.owners)
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
    """An answer without the sentences that it repeats of the question.

    >>> unasked("who swims? ann.", "who swims?").split()
    ['?', 'ann.']
    """
    for sentence in map(str.strip, _SENTENCE.split(asked)):
        if len(sentence) >= _REPEATED:
            answered = answered.replace(sentence, " ")
    return answered


def denies(answered: str, none: str, owners: Sequence[str] = ()) -> bool:
    """Whether an answer says that the text has none: in the word for that, or in a sentence about the text.

    What it says on a condition is no denial, nor what goes on with a guess, nor that there is no text; to say
    whose another value is, is no guess.

    >>> denies("the text does not say.", "none"), denies("the text does not say, but it is ann.", "none")
    (True, False)
    """
    said = _CONDITION.sub(" ", answered.replace("\u2019", "'"))
    ends = [match.end() for match in _DENIAL.finditer(said)] + _ends(said, none)
    if not ends or _GUESS.search(said) or _OTHERWISE.search(said):
        return False
    return not turns(said[min(ends) :], owners)


def turns(rest: str, owners: Sequence[str]) -> bool:
    """Whether what stands behind a denial goes on to what it is, and not to another no or an owner.

    >>> turns(", but it is ann.", ()), turns(", but ann is not named.", ()), turns(", but bob: 12", ["bob"])
    (True, False, False)
    """
    behind = [_SENTENCE.split(each)[0] for each in _TURN.split(rest)[1:]]
    theirs = [plain(owner) for owner in owners]
    return any(
        re.search(r"\w", each) and not _NEGATIVE.match(each) and not any(named(each, one) for one in theirs)
        for each in behind
    )


def _ends(said: str, none: str) -> list[int]:
    """Where the word for a denial ends that a clause begins with, or that says what something is."""
    starts = [match.end() for match in _HEAD.finditer(said)]
    return [at + len(none) for at in starts if place(said[at : at + len(none) + 1], none) == 0]


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
