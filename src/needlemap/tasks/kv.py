"""One JSON object of pairs, as many as fit; one key is asked for (Liu et al. 2023, arXiv 2307.03172).

Nothing in it helps but the key itself: no meaning, no wording, no odd one out. The object's last pair is
never the asked one, since it alone lacks a comma.
"""

from __future__ import annotations

from typing import Literal

from needlemap.errors import SettingsError
from needlemap.prompts.placement import Needle
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.backgrounds import Pairs
from needlemap.tasks.base import Background, Draw, Item, Scope
from needlemap.tasks.values import Kind, Values
from needlemap.tasks.wording import KEY_VALUE, solved

_PAIR = '"{key}": "{value}"'
_SHOWN = 4  # pairs of an example


class KeyValue(metaclass=Checked):
    """One JSON object of pairs, as many as fit; the value of one key is asked for.

    key, value: of what kind; digits, uuid_digits: their size.

    query_first: the question stands before the object too. shots: solved examples on small objects of their
    own, the same in all trials of a repeat. fresh: as for `magic`.
    """

    name = "kv"
    scorer = "first"
    dial = tuple({"uuid_digits": digits} for digits in (8, 16, 32, 64))

    def __init__(
        self,
        *,
        key: Kind = "uuid",
        value: Kind = "uuid",
        digits: int = 7,
        uuid_digits: int = 32,
        query_first: bool = False,
        shots: int = 0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if shots < 0 or digits < 1 or uuid_digits < 4:
            raise SettingsError(
                "Options of kv: shots are 0 or more, digits 1 or more, uuid_digits 4 or more."
            )
        sizes = {"word": 0, "number": digits, "uuid": uuid_digits}
        self._keys, self._values = Values(key, sizes[key], language), Values(value, sizes[value], language)
        self._like = self._values.like if value == "word" else ""  # of others a reference says it itself
        self._first, self._shots, self._fresh = query_first, shots, fresh
        self._question, self._prefix = KEY_VALUE[language]

    def background(self, repeat: int, seed: int) -> Background:
        """The object's pairs, one a line."""
        return Background(Pairs(f"{_PAIR},", self._keys, self._values, f"{seed}:{repeat}", "json"))

    def item(self, draw: Draw) -> Item:
        """The asked pair; what opens the object, and what closes it."""
        random, taken = draw.random("kv", self._fresh), set[str]()
        examples = "".join(self._example(draw, taken, number) for number in range(self._shots))
        last = self._pair(draw, taken, "last")
        key = self._keys.fresh(random, taken, draw.holds)
        value = self._values.fresh(random, taken, draw.holds)
        pair = _PAIR.format(key=key, value=value)
        question = self._question.format(key=key)
        return Item(
            (Needle(f"{pair},\n", draw.cell.depth),),
            question,
            Reference(value, (value,), pair, question, like=self._like),
            prologue=examples + (f"{question}\n\n" if self._first else "") + "{\n",
            epilogue=f"{_PAIR.format(key=last[0], value=last[1])}\n}}",
            answer_prefix=self._prefix.format(key=key),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """A small object with its question and answer."""
        pairs = [self._pair(draw, taken, f"example {number}.{place}") for place in range(_SHOWN)]
        key, value = draw.random(f"kv asked {number}", "repeat").choice(pairs)
        lines = ",\n".join(_PAIR.format(key=one, value=other) for one, other in pairs)
        return solved(f"{{\n{lines}\n}}", self._question.format(key=key), value)

    def _pair(self, draw: Draw, taken: set[str], purpose: str) -> tuple[str, str]:
        random = draw.random(f"kv {purpose}", "repeat")
        key = self._keys.fresh(random, taken, draw.holds)
        return key, self._values.fresh(random, taken, draw.holds)
