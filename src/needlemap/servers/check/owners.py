"""Whose secret is whose: what an answer holds of another prompt was computed from that one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from needlemap.text import held, plain

LONG_SECRET = 12  # characters from which on chance brings no equal one
_NUMBER = re.compile(r"\d+")
_DIGITS = re.compile(r"\d[\d ,.\-]{10,}\d")
_SHORT_WORD = 3  # characters of words that any answer may hold
Owner = TypeVar("Owner")


@dataclass
class Owners(Generic[Owner]):
    """The secrets of all prompts so far. of: by secret who hid it first."""

    of: dict[str, Owner] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)
    all_digits: bool = True

    def add(self, secrets: Iterable[str], owner: Owner) -> None:
        """A prompt hides some secrets; '' is none."""
        for secret in secrets:
            if secret and secret not in self.of:
                self.of[secret] = owner
                self.sizes.add(len(secret))
                self.all_digits &= secret.isdigit()

    @property
    def least(self) -> int:
        """Characters of the shortest secret; 0 without any."""
        return min(self.sizes, default=0)

    @property
    def are_numbers(self) -> bool:
        """Whether they are looked up as numbers: all are digits, and long or as many."""
        return self.all_digits and (len(self.sizes) == 1 or self.least >= LONG_SECRET)

    def foreign(self, answer: str, own: Iterable[str]) -> str:
        """A secret of another prompt that an answer holds; '' without one. own: of its
        prompt."""
        mine = set(own)
        if self.are_numbers:
            found = (number for number in self._numbers(answer) if number in self.of)
        else:
            told = plain(answer)
            words = (word for word in self.of if len(word) > _SHORT_WORD and word not in mine)
            found = (word for word in words if held(told, word))
        return next((secret for secret in found if secret not in mine), "")

    def _numbers(self, answer: str) -> Iterator[str]:
        """The numbers in an answer; of long ones each part as long as a secret, as digits may
        be grouped."""
        if self.least < LONG_SECRET:
            yield from _NUMBER.findall(answer)
            return
        for run in _DIGITS.findall(answer):
            digits = re.sub(r"\D", "", run)
            for size in sorted(self.sizes):
                yield from (digits[at : at + size] for at in range(len(digits) - size + 1))
