"""Ask for what the text does not hold: does a model report that there is no answer?

Several tasks have it. The needles stay as they are and the question asks for something else: for a
near miss, one digit or word away from what is hidden, or for what has nothing to do with it. So
prompts share what they shared, and the depth is that of the sentence that a careless reader takes.
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
    """How many questions of a task the text does not answer.

    Attributes:
        share: The share of the trials whose question the text does not answer. With 0 it answers
            all, and no question allows that there may be no answer.
        near: The share of near misses among them.
        language: The language of the question.
    """

    share: float
    near: float
    language: Language

    def __post_init__(self) -> None:
        """Raise SettingsError for a value that is not a share."""
        for name, value in (("absent", self.share), ("near", self.near)):
            if not 0 <= value <= 1:
                raise SettingsError(
                    f"Option '{name}' is a share in 0..1, got {value}. Give {name}=0.5"
                )

    def draw_kind(self, draw: Draw) -> Asked:
        """Return what the question of a trial asks for."""
        if not self.share:
            return "present"
        random = draw.random("absent")
        if random.random() >= self.share:
            return "present"
        return "near" if random.random() < self.near else "missing"

    def _wording(self, part: str) -> str:
        """Return a part of the wording for texts without an answer, or '' if all have one."""
        text: str = wording("absent", self.language)[part]
        return text if self.share else ""

    @property
    def none(self) -> str:
        """Return the answer that reports that there is none, or '' if no question allows it."""
        return self._wording("none")

    def question(self, text: str) -> str:
        """Return a question that allows this answer."""
        return text + self._wording("allowed")

    def prefix(self, text: str) -> str:
        """Return the start of an answer that does not promise a value."""
        return self._wording("begun") or text

    def unanswered(
        self, question: str, decoys: tuple[str, ...], like: str, owners: tuple[str, ...] = ()
    ) -> Reference:
        """Return the reference of a question that the text does not answer.

        decoys: what the text holds instead. owners: whose these are.
        """
        return Reference(
            self.none,
            question=question,
            decoys=decoys,
            none=self.none,
            like=like,
            owners=owners,
        )


def similar_key(
    key: str, values: Values, random: Random, taken: set[str], holds: Callable[[str], bool]
) -> str:
    """Return a key that differs from another in one digit, or in one of its two words.

    It is not taken and not in the haystack, and is added to `taken`. A letter of a word is never
    changed, because that would look like a slip of the pen. Raises SettingsError if there is no
    such key.

    >>> similar_key("4711", Values("number", 4), Random(3), set(), lambda text: False)
    '4911'
    >>> similar_key("greedy-notebook", Values("word", 7), Random(3), set(), lambda text: False)
    'slender-notebook'
    """
    gone = (
        f"All that is one edit away from '{key}' is in the haystack already. Use longer keys, "
        f"--task-options digits=7, or near=0."
    )
    edit = _other_word if values.kind == "word" else _other_digit
    taken.add(key)
    return fresh(partial(edit, key, values, random), taken, holds=holds, gone=gone)


def _other_digit(key: str, values: Values, random: Random) -> str:
    """Return a key with another digit, or the same, in one place."""
    digits = string.digits if values.kind == "number" else string.hexdigits[:16]
    places = [place for place, sign in enumerate(key) if sign in digits]
    place = random.choice(places)
    return key[:place] + random.choice(digits) + key[place + 1 :]


def _other_word(key: str, values: Values, random: Random) -> str:
    """Return a key with another adjective, or another noun, or the same."""
    adjectives, nouns = words(values.language)
    adjective = next(filter(key.startswith, adjectives))
    rest = key.removeprefix(adjective)
    if random.random() < 0.5:
        return random.choice(adjectives) + rest
    noun = next(noun for noun in nouns if rest in (noun, f"-{noun}"))
    return key.removesuffix(noun) + random.choice(nouns)
