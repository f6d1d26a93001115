"""Whether the answer holds all the words, in any case: 1 or 0.

It reads no negation ("do not eat a sandwich" holds "sandwich") and finds words inside others ("of" in
"coffee"), but no number inside a longer one: 12 is neither in 3124 nor in 12.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import held, plain
from needlemap.settings.registry import Checked


class Substring(metaclass=Checked):
    """words: what to look for; by default the reference's keywords, or its answer if it has none.

    anywhere: the older tools' rule, by which nothing but case is alike, and 51328 is found in 1513289.
    """

    name = "substring"
    rule = 3
    scale = (0.0, 1.0)

    def __init__(self, *, words: tuple[str, ...] = (), anywhere: bool = False) -> None:
        if not all(word.strip() for word in words):
            raise SettingsError("Option 'words' of Substring holds an empty word, which every answer holds.")
        self.words, self._anywhere = words, anywhere
        self.options: Mapping[str, Any] = {"words": list(words), "anywhere": anywhere}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if there is nothing to look for."""
        words = self.words or reference.keywords or (reference.answer,)
        if not all(word.strip() for word in words):
            raise SettingsError("Scorer 'substring' has no words to look for. Set its option 'words'.")
        missing = missing_words(answer, words) if self._anywhere else not_held(answer, words)
        found = [word for word in words if word not in missing]
        return Score(float(not missing), float(not missing), {"found": found, "missing": missing})


def not_held(answer: str, words: tuple[str, ...]) -> list[str]:
    """The words that an answer lacks, however they are written, a number being one only whole.

    >>> not_held("51,328 sandwiches, not 1513289", ("51328", "sandwich", "15132"))
    ['15132']
    """
    said = plain(answer)
    return [word for word in words if not held(said, plain(word))]


def missing_words(answer: str, words: tuple[str, ...]) -> list[str]:
    """The words that an answer lacks, whatever their case.

    >>> missing_words("Eat a Sandwich.", ("sandwich", "Dolores"))
    ['Dolores']
    """
    said = answer.lower()
    return [word for word in words if word.lower() not in said]
