"""One JSON object in which a value is the next key: a thread to follow.

After Roberts, Han and Albanie 2024 (arXiv 2411.05000). A thread is told by nothing but its own
keys: pairs that belong to none look the same.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.backgrounds import Pairs
from needlemap.tasks.base import Background, Draw, Item, Scope
from needlemap.tasks.spread import Order, following, ordered, scattered, share
from needlemap.tasks.values import Values

_PAIR = '"{key}": "{value}"'
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


class Thread(metaclass=Checked):
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
