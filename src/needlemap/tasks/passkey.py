"""A pass key in noise (Mohtashami and Jaggi 2023, arXiv 2305.16300): a smoke test.

The noise is so uniform that the key is the one thing that stands out: it finds broken caches and positions,
and ranks no models. Number strings, with digits that stand twice, ask for exact copying too.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.tasks.base import Background, Draw, Item, Needle, Reference, Scope, Task
from needlemap.tasks.values import PASS_KEY, WORDINGS, Noise


class Passkey(Task):
    """A number hidden in noise: a smoke test.

    digits: of the key, of which `doubled` repeat the digit before them. fresh: as for `magic`.
    """

    name = "passkey"
    scorer = "first"
    dial = tuple({"digits": digits, "doubled": digits // 2} for digits in (6, 10, 20, 40))

    def __init__(
        self,
        *,
        digits: int = 5,
        doubled: int = 0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if digits < 1 or not 0 <= 2 * doubled <= digits:
            raise SettingsError(
                f"Of {digits} digits {doubled} cannot repeat the one before them. Give digits of 1 or more, "
                f"and doubled of half of them or less."
            )
        self._digits, self._doubled, self._fresh = digits, doubled, fresh
        self._needle, self._question, self._prefix = PASS_KEY[language]
        self._noise = WORDINGS[language].noise

    def background(self, repeat: int, seed: int) -> Background:
        """The same few sentences again and again."""
        return Background(Noise(self._noise), "sentence")

    def item(self, draw: Draw) -> Item:
        """The sentence with the key, which no noise holds."""
        random = draw.random("passkey", self._fresh)
        value = key_of(random, self._digits, self._doubled)
        while draw.holds(value):
            value = key_of(random, self._digits, self._doubled)
        needle = self._needle.format(value=value)
        return Item(
            (Needle(needle, draw.cell.depth),),
            self._question,
            Reference(value, (value,), needle, self._question),
            answer_prefix=self._prefix,
        )


def key_of(random: Random, digits: int, doubled: int) -> str:
    """A key, which never begins with 0.

    >>> key_of(Random("x"), 10, 5)
    '6699997711'
    """
    single = [random.randrange(1, 10), *(random.randrange(10) for _ in range(digits - doubled - 1))]
    twice = set(random.sample(range(len(single)), doubled))
    return "".join(str(digit) * (2 if place in twice else 1) for place, digit in enumerate(single))
