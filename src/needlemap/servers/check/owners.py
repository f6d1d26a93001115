"""Know which prompt hides which secret, so that a secret in a foreign answer shows a leak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from needlemap.text import contains, plain

# From this many characters on, chance does not produce an equal secret.
LONG_SECRET = 12
_NUMBER = re.compile(r"\d+")
_DIGITS = re.compile(r"\d[\d ,.\-]{10,}\d")
# Words of so many characters may occur in any answer.
_SHORT_WORD = 3
Owner = TypeVar("Owner")


@dataclass
class Owners(Generic[Owner]):
    """The secrets of all prompts so far. of: the first owner of each secret."""

    of: dict[str, Owner] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)
    all_digits: bool = True

    def add(self, secrets: Iterable[str], owner: Owner) -> None:
        """Add the secrets of a prompt; '' is skipped."""
        for secret in secrets:
            if secret and secret not in self.of:
                self.of[secret] = owner
                self.sizes.add(len(secret))
                self.all_digits &= secret.isdigit()

    @property
    def least(self) -> int:
        """Return the characters of the shortest secret, or 0 if there is none."""
        return min(self.sizes, default=0)

    @property
    def are_numbers(self) -> bool:
        """Return True if secrets are looked up as numbers: all digits, and long or of one size."""
        return self.all_digits and (len(self.sizes) == 1 or self.least >= LONG_SECRET)

    def foreign(self, answer: str, own: Iterable[str]) -> str:
        """Return a secret of another prompt that an answer holds, or '' if there is none.

        own: the secrets of the answer's prompt.
        """
        own_secrets = set(own)
        if self.are_numbers:
            for number in self._numbers(answer):
                if number in self.of and number not in own_secrets:
                    return number
            return ""

        text = plain(answer)
        for word in self.of:
            if len(word) <= _SHORT_WORD or word in own_secrets:
                continue
            if contains(text, word):
                return word
        return ""

    def _numbers(self, answer: str) -> Iterator[str]:
        """Yield the numbers in an answer.

        If secrets are long, digits may be grouped: then every part of a run of digits that is as
        long as a secret is a number.
        """
        if self.least < LONG_SECRET:
            yield from _NUMBER.findall(answer)
            return
        for run in _DIGITS.findall(answer):
            digits = re.sub(r"\D", "", run)
            for size in sorted(self.sizes):
                for start in range(len(digits) - size + 1):
                    yield digits[start : start + size]
