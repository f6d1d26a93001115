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
from needlemap.scorers.matching import named, plain

_HEXADECIMAL = re.compile(r"[0-9a-f]+(-[0-9a-f]+)+")


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
        wanted = plain(reference.answer.strip())
        if not wanted:
            raise SettingsError("Scorer 'first' needs a reference answer.")
        found = re.finditer(self.options["pattern"] or shape(wanted), plain(answer))
        asked = plain(reference.question)
        taken = next((match.group() for match in found if not named(asked, match.group())), "")
        right = float(taken == wanted)
        why = {"said": taken, "similarity": Levenshtein.normalized_similarity(taken, wanted)}
        return Score(right, right, why)


def shape(wanted: str) -> str:
    """A pattern for what looks like a text: a number, hexadecimal groups, or words joined as its are.

    Nothing looks like a word of a script without spaces but the word itself.

    >>> shape("48213"), shape("red-fox")
    ('[0-9]+', '[^\\\\W_]+-[^\\\\W_]+')
    """
    if wanted.isdecimal():
        return "[0-9]+"
    if _HEXADECIMAL.fullmatch(wanted):
        return _HEXADECIMAL.pattern
    if not wanted.isascii():
        return re.escape(wanted)
    return re.sub(r"[^\W_]+", lambda _: r"[^\W_]+", re.escape(wanted).replace(r"\-", "-"))
