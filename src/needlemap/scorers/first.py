"""Whether the first thing of the reference's kind in an answer is the reference: its first number, say.

An answer that tries several is judged by its first. What the question says too, as the asked key, is passed
over: an answer may repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rapidfuzz.distance import Levenshtein

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, plain, ungrouped
from needlemap.scorers.shape import shape

_DASH = "\u2014"  # parts words, where `plain` takes it for a hyphen
_WORD = re.compile("[0-9a-z]+(?:-[0-9a-z]+)*")


class First(metaclass=Checked):
    """pattern: what counts, a regular expression; by default what looks like the reference answer.

    why: what was taken, and similarity: 1 - edit distance / longer length, in [0, 1], which falls before the
    score does.
    """

    name = "first"
    scale = (0.0, 1.0)

    def __init__(self, *, pattern: str = "") -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"Option 'pattern' of First: '{pattern}' is no pattern ({error}).") from None
        self.options: Mapping[str, Any] = {"pattern": pattern}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        texts = (reference.answer.strip(), answer, reference.question)
        wanted, answered, asked = (plain(text.replace(_DASH, " ")) for text in texts)
        if not wanted:
            raise SettingsError("Scorer 'first' needs a reference answer.")
        answered = ungrouped(answered) if wanted.isdecimal() else answered
        taken = first_of(self.options["pattern"] or shape(wanted), answered, asked)
        right = float(taken == wanted)
        why = {"said": taken, "similarity": Levenshtein.normalized_similarity(taken, wanted)}
        return Score(right, right, why)


def first_of(pattern: str, answered: str, asked: str) -> str:
    """What a pattern finds first that the question does not say, nor a part of what it says; '' for none.

    >>> first_of("[0-9]+", "the value of 4a-b7 is 31", "what is the value of 4a-b7?")
    '31'
    """
    repeated = [word.span() for word in _WORD.finditer(answered) if named(asked, word.group())]
    for match in re.finditer(pattern, answered):
        part = any(start <= match.start() and match.end() <= end for start, end in repeated)
        if not part and not named(asked, match.group()):
            return match.group()
    return ""
