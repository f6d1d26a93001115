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


class Sole(metaclass=Checked):
    """The share of the key words that the answer names, each whole; 0 if it names a decoy too.

    Where the text holds no answer: 1 if it says so in the word that the question gave for it, and names no
    decoy, nor anything else that looks like an answer (the reference's `like`). What the question says is no
    decoy, and repeating the question is no answer. why: found, missing, decoys; where the question allowed
    that there be none, present (whether it was there) and none (whether the answer denies it); and where
    there was none and `like` is known, invented.
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
        answered = plain(answer).replace(asked, " ") if asked else plain(answer)
        decoys = [text for text in said(answered, reference.decoys, "words") if not named(asked, plain(text))]
        found = said(answered, reference.keywords, "words")
        missing = [text for text in reference.keywords if text not in found]
        denied = bool(reference.none) and named(answered, plain(reference.none))
        made_up = [] if reference.keywords else invented(answered, asked, reference)
        share = len(found) / len(reference.keywords) if reference.keywords else float(denied)
        share = 0.0 if decoys or made_up else share
        why: dict[str, Any] = {"found": found, "missing": missing, "decoys": decoys}
        if reference.none:
            why |= {"present": bool(reference.keywords), "none": denied}
        if reference.like and not reference.keywords:
            why["invented"] = made_up
        return Score(share, share, why)


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
