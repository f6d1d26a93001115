"""One JSON object of pairs, as many as fit: one key is asked for, or a thread of values that are next keys.

After Liu et al. 2023 (arXiv 2307.03172) and Roberts, Han and Albanie 2024 (arXiv 2411.05000). Nothing in it
helps but the keys themselves: no meaning, no wording, no odd one out. The object's last pair is never the
asked one, since it alone lacks a comma; pairs that belong to no thread look like those that do.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Needle,
    Order,
    Reference,
    Scope,
    Task,
    following,
    ordered,
    scattered,
    share,
)
from needlemap.tasks.values import KEY_VALUE, Kind, Pairs, Values, solved

_PAIR = '"{key}": "{value}"'
_SHOWN = 4  # pairs of an example


class KeyValue(Task):
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


_SAID = {  # what to do, then what to answer and how that begins
    "english": {
        "do": 'Look up the key "{key}" in the JSON object. Its value is again a key of the object: look that '
        "up too, and so on, until a value is not a key any more.",
        "last": (" Answer with that last value alone.", "The last value is"),
        "all": (" List the values that you come by, one a line, and nothing else.", "The values:"),
    },
    "chinese": {
        "do": "在 JSON 对象中查找键“{key}”。它的值又是该对象的一个键：继续查找，直到某个值不再是键为止。",
        "last": ("只回答最后这个值。", "最后的值是"),
        "all": ("请逐行列出途中得到的所有值，不要写别的。", "这些值是："),
    },
}


class Thread(Task):
    """One JSON object of pairs, as many as fit; the value of the asked key is the next key, and so on.

    threads, of hops pairs each; one is asked for. ask: for the 'last' value (scorer `first`) or for 'all' on
    the way (`f1`). order: in which a thread's pairs stand. span: over how much of the object, in percent, the
    asked thread goes on behind its first pair. uuid_digits: size of keys and values. fresh: as for `magic`.
    """

    name = "thread"
    dial = (
        *({"hops": hops, "threads": 1, "order": "forward"} for hops in (1, 2, 4)),
        *({"hops": hops, "threads": 2, "order": "random"} for hops in (4, 8, 16)),
    )

    def __init__(
        self,
        *,
        threads: int = 1,
        hops: int = 3,
        ask: Literal["last", "all"] = "last",
        order: Order = "forward",
        span: float = 100.0,
        uuid_digits: int = 32,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if min(threads, hops) < 1 or uuid_digits < 4:
            raise SettingsError("Options of thread: threads and hops are 1 or more, uuid_digits 4 or more.")
        self.scorer = "first" if ask == "last" else "f1"
        self.scorer_options = {"chain": True} if ask == "last" else {}
        self._threads, self._hops, self._ask, self._order, self._span = threads, hops, ask, order, share(span)
        self._fresh, self._values = fresh, Values("uuid", uuid_digits, language)
        wanted, self._prefix = _SAID[language][ask]
        self._question = f"{_SAID[language]['do']}{wanted}"

    def background(self, repeat: int, seed: int) -> Background:
        """Pairs that belong to no thread, one a line."""
        return Background(Pairs(f"{_PAIR},", self._values, self._values, f"{seed}:{repeat}", "json"))

    def item(self, draw: Draw) -> Item:
        """The asked thread's pairs, the first of them at the cell's depth, then those of the others."""
        beside = draw.random("thread beside", "repeat" if self._fresh == "repeat" else "length")
        taken: set[str] = set()
        last = self._thread(draw.random("thread last", "repeat"), taken, draw, 1)  # alone has no comma
        others = [self._thread(beside, taken, draw, self._hops) for _ in range(self._threads - 1)]
        asked = self._thread(draw.random("thread", self._fresh), taken, draw, self._hops)
        texts = ordered(beside, lines(asked), self._order)
        needles = following(beside, texts, draw.cell.depth, self._span)
        for other in others:
            needles += scattered(beside, ordered(beside, lines(other), self._order))
        question = self._question.format(key=asked[0])
        wanted = tuple(asked[-1:] if self._ask == "last" else asked[1:])
        wrong = [*asked[1:-1], *(value for other in others for value in other[1:])]
        decoys = tuple(wrong) if self._ask == "last" else ()
        like = "" if self._ask == "last" else self._values.like  # of a list, all that is not wanted is wrong
        return Item(
            tuple(needles),
            question,
            Reference("\n".join(wanted), wanted, "".join(texts), question, decoys, like=like),
            prologue="{\n",
            epilogue=f"{_PAIR.format(key=last[0], value=last[1])}\n}}",
            answer_prefix=self._prefix,
        )

    def _thread(self, random: Random, taken: set[str], draw: Draw, hops: int) -> list[str]:
        """Keys, each the value of the one before, and the last value."""
        return [self._values.fresh(random, taken, draw.holds) for _ in range(hops + 1)]


def lines(thread: list[str]) -> list[str]:
    """A thread's pairs, as the object holds them.

    >>> lines(["a", "b", "c"])
    ['"a": "b",\\n', '"b": "c",\\n']
    """
    return [f"{_PAIR.format(key=key, value=value)},\n" for key, value in pairwise(thread)]
