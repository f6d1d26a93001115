"""Absence, of several tasks: does a model say that the text does not tell? The needles stay as they
are and the question asks for something else: for a near miss, one digit or word away from what is
hidden, or for what has nothing to do with it. So prompts share what they shared, and the depth is
that of the sentence that a careless reader takes.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.tasks import Draw, Language, Reference
from needlemap.tasks.values import Values, fresh, wording, words

Asked = Literal["present", "near", "missing"]


@dataclass(frozen=True, slots=True)
class Absence:
    """share: of the trials, those whose question the text does not answer; 0: all are answered, and
    no question says that there may be nothing. near: of those, the share of near misses."""

    share: float
    near: float
    language: Language

    def __post_init__(self) -> None:
        """Raises SettingsError for what is no share."""
        for name, given in (("absent", self.share), ("near", self.near)):
            if not 0 <= given <= 1:
                raise SettingsError(
                    f"Option '{name}' is a share in 0..1, got {given}. Give {name}=0.5"
                )

    def draw_kind(self, draw: Draw) -> Asked:
        """What the question of a trial asks for."""
        if not self.share:
            return "present"
        random = draw.random("absent")
        if random.random() >= self.share:
            return "present"
        return "near" if random.random() < self.near else "missing"

    def _wording(self, part: str) -> str:
        """What is said where there may be no answer; '' where there always is."""
        text: str = wording("absent", self.language)[part]
        return text if self.share else ""

    @property
    def none(self) -> str:
        """The answer that says that the text does not; '' where no question allows it."""
        return self._wording("none")

    def question(self, text: str) -> str:
        """A question that allows this answer."""
        return text + self._wording("allowed")

    def prefix(self, text: str) -> str:
        """An answer's beginning that promises nothing."""
        return self._wording("begun") or text

    def unanswered(
        self, question: str, decoys: tuple[str, ...], like: str, owners: tuple[str, ...] = ()
    ) -> Reference:
        """The reference where the text does not answer. decoys, owners: what it holds instead,
        and whose."""
        none = self.none
        return Reference(
            none, question=question, decoys=decoys, none=none, like=like, owners=owners
        )


def one_edit(
    key: str, values: Values, random: Random, taken: set[str], holds: Callable[[str], bool]
) -> str:
    """A key that differs in one digit, or one of its two words, is not taken and from now on
    is, nor held.

    A letter of a word is never changed: that would look like a slip of the pen. Raises
    SettingsError when there is none.

    >>> one_edit("4711", Values("number", 4), Random(3), set(), lambda text: False)
    '4911'
    >>> one_edit("greedy-notebook", Values("word", 7), Random(3), set(), lambda text: False)
    'slender-notebook'
    """
    gone = (
        f"All that is one edit away from '{key}' is in the haystack already. Use longer keys, "
        f"--task-options digits=7, or near=0."
    )
    other = _other_word if values.kind == "word" else _other_digit
    taken.add(key)
    return fresh(partial(other, key, values, random), taken, holds, gone)


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
