"""Know which prompt hides which secret, so that a secret in a foreign answer shows a leak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from needlemap.text import contains, plain

# A secret with so many characters or more is not repeated by chance.
LONG_SECRET = 12
_NUMBER = re.compile(r"\d+")
_DIGITS = re.compile(r"\d[\d ,.\-]{10,}\d")
# Words of so many characters or fewer may occur in any answer.
_SHORT_WORD = 3
Owner = TypeVar("Owner")


@dataclass
class Owners(Generic[Owner]):
    """The secrets of all prompts so far.

    Attributes:
        by_secret: The first owner of each secret.
        sizes: The numbers of characters of the secrets.
        all_digits: Whether all secrets consist of digits.
    """

    by_secret: dict[str, Owner] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)
    all_digits: bool = True

    def add(self, secrets: Iterable[str], owner: Owner) -> None:
        """Add the secrets of a prompt; '' is skipped."""
        for secret in secrets:
            if secret and secret not in self.by_secret:
                self.by_secret[secret] = owner
                self.sizes.add(len(secret))
                self.all_digits &= secret.isdigit()

    @property
    def shortest_size(self) -> int:
        """Return the number of characters of the shortest secret, or 0 if there is none."""
        return min(self.sizes, default=0)

    @property
    def are_numbers(self) -> bool:
        """Return True if secrets are looked up as numbers: all digits, and long or of one size."""
        return self.all_digits and (len(self.sizes) == 1 or self.shortest_size >= LONG_SECRET)

    def foreign_secret(self, answer: str, own: Iterable[str]) -> str:
        """Return a secret of another prompt that an answer holds, or '' if there is none.

        own: the secrets of the answer's prompt.
        """
        own_secrets = set(own)
        if self.are_numbers:
            for number in self._numbers(answer):
                if number in self.by_secret and number not in own_secrets:
                    return number
            return ""

        text = plain(answer)
        for word in self.by_secret:
            if len(word) <= _SHORT_WORD or word in own_secrets:
                continue
            if contains(text, word):
                return word
        return ""

    def _numbers(self, answer: str) -> Iterator[str]:
        """Yield the numbers in an answer.

        If secrets are long, the digits of a number may be grouped, for example by commas. Then each
        part of a run of digits that is as long as a secret is a number.
        """
        if self.shortest_size < LONG_SECRET:
            yield from _NUMBER.findall(answer)
            return
        for run in _DIGITS.findall(answer):
            digits = re.sub(r"\D", "", run)
            for size in sorted(self.sizes):
                for start in range(len(digits) - size + 1):
                    yield digits[start : start + size]
