"""Questions that the text does not answer, among questions that it does: does a model say so?

In such a trial the needles stay as they are and the question asks for something else: for a near miss, one
edit away from what is hidden, or for what has nothing to do with it. So prompts share what they shared, and
the depth is that of the sentence that a careless reader takes.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference
from needlemap.tasks.base import Draw
from needlemap.tasks.values import Kind, Values, words

Asked = Literal["present", "near", "missing"]
_WORDS = {  # what a question adds, the answer to it, how any answer begins
    "english": ("If the text does not say, answer: none.", "none", "Answer:"),
    "chinese": ("如果文中没有说，就回答“没有”。", "没有", "答案："),
}
_TRIES = 2000
_GAP = {"english": " ", "chinese": ""}


@dataclass(frozen=True, slots=True)
class Absence:
    """share: of the trials, those whose question the text does not answer; 0: all are answered, and no
    question says that there may be nothing. near: of those, the share of near misses."""

    share: float
    near: float
    language: str

    def __post_init__(self) -> None:
        """Raises SettingsError for what is no share."""
        for name, given in (("absent", self.share), ("near", self.near)):
            if not 0 <= given <= 1:
                raise SettingsError(f"Option '{name}' is a share in 0..1, got {given}. Give {name}=0.5")

    def asked(self, draw: Draw) -> Asked:
        """What the question of a trial asks for."""
        if not self.share:
            return "present"
        random = draw.random("absent")
        if random.random() >= self.share:
            return "present"
        return "near" if random.random() < self.near else "missing"

    @property
    def none(self) -> str:
        """The answer that says that the text does not; '' where no question allows it."""
        return _WORDS[self.language][1] if self.share else ""

    def question(self, text: str) -> str:
        """A question that allows this answer."""
        return f"{text}{_GAP[self.language]}{_WORDS[self.language][0]}" if self.share else text

    def prefix(self, text: str) -> str:
        """An answer's beginning that promises nothing."""
        return _WORDS[self.language][2] if self.share else text

    def unanswered(self, question: str, decoys: tuple[str, ...], like: str) -> Reference:
        """The reference where the text does not answer. decoys: what it holds instead. like: Reference's."""
        return Reference(self.none, question=question, decoys=decoys, none=self.none, like=like)


def one_edit(key: str, values: Values, random: Random, taken: set[str], holds: Callable[[str], bool]) -> str:
    """A key that differs in one letter or digit, is not taken and from now on is, and is not in the haystack.

    Raises SettingsError when there is none.

    >>> one_edit("4711", Values("number", 4), Random(3), set(), lambda text: False)
    '4911'
    """
    letters = _letters(values.kind, values.language)
    places = [place for place, letter in enumerate(key) if letter in letters]
    for _ in range(_TRIES):
        place = random.choice(places)
        missed = key[:place] + random.choice(letters) + key[place + 1 :]
        if missed != key and missed not in taken and not holds(missed):
            taken.add(missed)
            return missed
    raise SettingsError(
        f"All that is one edit away from '{key}' is in the haystack already. Use longer keys, "
        f"--task-options digits=7, or near=0."
    )


@cache
def _letters(kind: Kind, language: str) -> str:
    """What keys of a kind are made of."""
    if kind == "number":
        return string.digits
    if kind == "uuid":
        return string.hexdigits[:16]
    adjectives, nouns = words(language)
    return "".join(sorted({letter for word in (*adjectives, *nouns) for letter in word}))
