"""Questions that the text does not answer, among questions that it does: does a model say so?

In such a trial the needles stay as they are and the question asks for something else: for a near miss, one
digit or word away from what is hidden, or for what has nothing to do with it. So prompts share what they
shared, and the depth is that of the sentence that a careless reader takes.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.tasks.base import Draw, Reference
from needlemap.tasks.values import Values, words

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

    def unanswered(
        self, question: str, decoys: tuple[str, ...], like: str, owners: tuple[str, ...] = ()
    ) -> Reference:
        """The reference where the text does not answer. decoys, owners: what it holds instead, and whose."""
        none = self.none
        return Reference(none, question=question, decoys=decoys, none=none, like=like, owners=owners)


def one_edit(key: str, values: Values, random: Random, taken: set[str], holds: Callable[[str], bool]) -> str:
    """A key that differs in one digit, or one of its two words, is not taken and from now on is, nor held.

    A letter of a word is never changed: that would look like a slip of the pen. Raises SettingsError when
    there is none.

    >>> one_edit("4711", Values("number", 4), Random(3), set(), lambda text: False)
    '4911'
    >>> one_edit("greedy-notebook", Values("word", 7), Random(3), set(), lambda text: False)
    'slender-notebook'
    """
    for _ in range(_TRIES):
        other = _other_word if values.kind == "word" else _other_digit
        missed = other(key, values, random)
        if missed != key and missed not in taken and not holds(missed):
            taken.add(missed)
            return missed
    raise SettingsError(
        f"All that is one edit away from '{key}' is in the haystack already. Use longer keys, "
        f"--task-options digits=7, or near=0."
    )


def _other_digit(key: str, values: Values, random: Random) -> str:
    """With another digit, or the same, in one place."""
    digits = string.digits if values.kind == "number" else string.hexdigits[:16]
    place = random.choice([place for place, digit in enumerate(key) if digit in digits])
    return key[:place] + random.choice(digits) + key[place + 1 :]


def _other_word(key: str, values: Values, random: Random) -> str:
    """With another adjective, or another noun, or the same."""
    adjectives, nouns = words(values.language)
    first = next(filter(key.startswith, adjectives))
    if random.random() < 0.5:
        return random.choice(adjectives) + key.removeprefix(first)
    second = next(noun for noun in nouns if key.removeprefix(first) in (noun, f"-{noun}"))
    return key.removesuffix(second) + random.choice(nouns)
