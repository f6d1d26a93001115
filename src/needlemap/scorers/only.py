"""Whether an answer names what is wanted and nothing else of its kind; or that there is nothing.

For tasks where guessing must not pay: several candidates in one answer, or one where the text gives none.
"""

from __future__ import annotations

import re
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Score, Scorer
from needlemap.scorers.extract import says_none
from needlemap.scorers.words import said
from needlemap.tasks.base import Reference
from needlemap.text.matching import named, plain, shape, ungrouped

_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_REPEATED = 8  # characters: a shorter sentence may be an answer


class Only(Scorer):
    """The share of the key words that the answer names, each whole; 0 if it names a decoy too.

    Where the text holds no answer: 1 if it says so, in the word that the question gave for it or, where the
    reference says what a value is `like`, in a sentence about the text ("the text does not say"), and names
    no decoy, but with whom the text gives it to (the `owners`), nor anything else that looks like an answer.
    What the question says is no decoy, and repeating the question, or a sentence of it, is no answer. why:
    found, missing, decoys; where the question allowed that there be none, present (whether it was there) and
    none (whether the answer denies it); and where there was none and `like` is known, invented.
    """

    name = "only"
    rule = 4

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for, or by no pattern."""
        if not any(text.strip() for text in (*reference.keywords, reference.none)):
            raise SettingsError("Scorer 'only' needs a task with keywords. Type: --scorer recall")
        asked = plain(reference.question)
        answered = unasked(plain(answer), asked)
        decoys = [text for text in said(answered, reference.decoys, "words") if not named(asked, plain(text))]
        found = said(answered, reference.keywords, "words")
        missing = [text for text in reference.keywords if text not in found]
        known = bool(reference.like)
        denied = bool(reference.none) and says_none(answered, plain(reference.none), known=known)
        others = values(answered, asked, reference)
        if denied and not reference.keywords:  # then it is read, whatever is left of the decoys
            decoys = [text for text in decoys if not elsewhere(answered, text, reference)]
        made_up = [] if reference.keywords else others
        share = len(found) / len(reference.keywords) if reference.keywords else float(denied)
        share = 0.0 if decoys or made_up else share
        why: dict[str, Any] = {"found": found, "missing": missing, "decoys": decoys}
        if reference.none:
            why |= {"present": bool(reference.keywords), "none": denied}
        if reference.like and not reference.keywords:
            why["invented"] = made_up
        return Score(share, share, why, unreadable=not (found or decoys or others or denied))


def unasked(answered: str, asked: str) -> str:
    """An answer without the sentences that it repeats of the question.

    >>> unasked("who swims? ann.", "who swims?").split()
    ['?', 'ann.']
    """
    for sentence in map(str.strip, _SENTENCE.split(asked)):
        if len(sentence) >= _REPEATED:
            answered = answered.replace(sentence, " ")
    return answered


def elsewhere(answered: str, decoy: str, reference: Reference) -> bool:
    """Whether an answer names a decoy only in sentences that say whose it is."""
    pairs = zip(reference.owners, reference.decoys, strict=False)  # not every task says whose they are
    owners = [plain(owner) for owner, each in pairs if each == decoy]
    where = [each for each in _SENTENCE.split(answered) if named(each, plain(decoy))]
    return bool(where) and all(any(named(each, owner) for owner in owners) for each in where)


def values(answered: str, asked: str, reference: Reference) -> list[str]:
    """What looks like an answer, and neither the question nor the text holds. Raises SettingsError.

    Where the reference does not say what does, it is what looks like a wanted number, code or compound.

    >>> values("none, or 47 or 12", "what is 12?", Reference("none", like="[0-9]+", decoys=("31",)))
    ['47']
    """
    coded = [shape(text) for text in map(plain, reference.keywords) if not text.replace(" ", "").isalpha()]
    if not (like := reference.like or "|".join(dict.fromkeys(coded))):
        return []
    try:
        matches = re.finditer(like, ungrouped(answered))
        found = dict.fromkeys(re.sub("[ _]", "-", match.group()) for match in matches)
    except re.error as error:
        raise SettingsError(f"like: '{like}' is no pattern ({error}).") from None
    known = [plain(text) for text in reference.decoys]
    return [text for text in found if text not in known and not named(asked, text)]
