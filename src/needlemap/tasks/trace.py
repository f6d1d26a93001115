"""Values scattered over a text: variables that get theirs from one another, counts that somebody took.

Trace (RULER's variable tracking, arXiv 2404.06654): a chain is a variable with a number, and variables that
are set to the one before. One chain is asked for, the others mislead. Its names are what the question does
not say, and nothing says how many they are.

Scattered counts, after Counting-Stars (Song et al. 2024, arXiv 2403.11802): evenly spaced; all are asked
for, in order. Wording and numbers are our own, the numbers fresh in every trial, so that no list can be
learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
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
from needlemap.tasks.values import WORDINGS, Noise, Values, solved

_CONSONANTS, _VOWELS = "BDFGHJKLMNPRSTVZ", "AEIOU"
_TRIES = 2000  # draws of one name
_SHOWN = (3, 2)  # variables of an example's chains, the asked one first: as few as tell a chain from another
_SAID = {  # line, question, beginning of its answer, comma; before an example, its answer, and the text
    "english": (
        "Let {name} = {source}.",
        "Which variables have the value {value}? A variable may have got it from another one. List the names "
        "of all of them, and nothing else.",
        "The variables with the value {value}:",
        ", ",
        "An example of a text:\n",
        "Answer: ",
        "Now the text that is asked about:\n",
    ),
    "chinese": (
        "设 {name} = {source}。",
        "哪些变量的值是{value}？变量的值可能来自另一个变量。请列出所有这些变量的名字，不要写别的。",
        "值为{value}的变量：",
        "、",
        "文本示例：\n",
        "答案：",
        "下面是要回答的文本：\n",
    ),
}
_TEXTS = {  # needle, corrected needle, question, what it says of corrections, beginning of its answer
    "english": (
        "The lighthouse keeper counted {number} gulls.",
        "The lighthouse keeper counted {wrong} gulls, saw a mistake, counted again and now had {number}.",
        "The text says several times how many gulls the lighthouse keeper counted. List the numbers in the "
        "order in which they stand in the text{corrections}. Answer with the numbers alone, separated by "
        "commas.",
        ", and where a count was corrected only the corrected one",
        "The lighthouse keeper counted",
    ),
    "chinese": (
        "看守灯塔的人数到了{number}只海鸥。",
        "看守灯塔的人先数到{wrong}只海鸥，发现数错了，重数之后是{number}只。",
        "文中多次提到看守灯塔的人数到了多少只海鸥。请按在文中出现的先后列出这些数字{corrections}。"
        "只回答数字，用逗号隔开。",
        "，数错后更正的只列更正后的数字",
        "看守灯塔的人先后数到",
    ),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """Variables of one value: the first is set to it, each other one to the one before."""

    value: str
    names: tuple[str, ...]

    def lines(self, line: str) -> list[str]:
        """What the text says of it, one line a variable."""
        sources = (self.value, *self.names[:-1])
        return [
            line.format(name=name, source=source) for name, source in zip(self.names, sources, strict=True)
        ]


class Trace(Task):
    """Variables set to a number or to one another; all that have a certain number are asked for.

    chains, of hops + 1 variables each; one is asked for. order: in which a chain's lines stand. span: over
    how much of the haystack, in percent, the asked chain goes on behind its first line. digits: of numbers.
    shots: solved examples on small texts of their own, with names and values that nothing else has; the same
    in all trials, as noise is, so that repeats go on sharing it. haystack, fresh: as for `magic`.
    """

    name = "trace"
    dial = (
        *({"hops": hops, "chains": 2, "order": "forward"} for hops in (1, 2, 4)),
        *({"hops": hops, "chains": 4, "order": "random"} for hops in (4, 8)),
    )
    scorer = "f1"

    def __init__(
        self,
        *,
        haystack: Literal["prose", "repeat"] = "prose",
        chains: int = 2,
        hops: int = 4,
        order: Order = "forward",
        span: float = 100.0,
        digits: int = 5,
        shots: int = 0,
        fresh: Scope = "trial",
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if min(chains, hops, digits) < 1 or shots < 0:
            raise SettingsError("Options of trace: chains, hops and digits are 1 or more, shots 0 or more.")
        self._haystack, self._noise = haystack, WORDINGS[language].noise
        self._chains, self._hops, self._order, self._span = chains, hops, order, share(span)
        self._fresh, self._shots, self._values = fresh, shots, Values("number", digits, language)
        self._line, self._question, self._prefix, self._comma, *self._around = _SAID[language]

    def background(self, repeat: int, seed: int) -> Background | None:
        """Noise; None for prose."""
        return Background(Noise(self._noise), "sentence") if self._haystack == "repeat" else None

    def item(self, draw: Draw) -> Item:
        """The asked chain's lines, the first of them at the cell's depth, then those of the others."""
        beside = draw.random("trace beside", "repeat" if self._fresh == "repeat" else "length")
        taken: set[str] = set()
        examples = [self._example(draw, taken, number) for number in range(self._shots)]
        size = self._hops + 1
        others = [self._chain(beside, taken, draw, size) for _ in range(self._chains - 1)]
        asked = self._chain(draw.random("trace", self._fresh), taken, draw, size)
        texts = ordered(beside, asked.lines(self._line), self._order)
        needles = following(beside, texts, draw.cell.depth, self._span)
        for other in others:
            needles += scattered(beside, ordered(beside, other.lines(self._line), self._order))
        question = self._question.format(value=asked.value)
        elsewhere = [*others, *(chain for _, chains in examples for chain in chains)]
        decoys = tuple(name for chain in elsewhere for name in chain.names)
        return Item(
            tuple(needles),
            question,
            Reference(self._comma.join(asked.names), asked.names, "\n".join(texts), question, decoys),
            prologue="".join([*(text for text, _ in examples), self._around[-1]]) if examples else "",
            answer_prefix=self._prefix.format(value=asked.value),
        )

    def _chain(self, random: Random, taken: set[str], draw: Draw, size: int) -> Chain:
        """A chain of so many names and a value that nothing has yet."""
        value = self._values.fresh(random, taken, draw.holds)
        return Chain(value, tuple(fresh_name(random, taken, draw.holds) for _ in range(size)))

    def _example(self, draw: Draw, taken: set[str], number: int) -> tuple[str, list[Chain]]:
        """A small text with its question and answer; and its chains, the asked one first."""
        random, (headed, begun, _) = Random(f"trace example {number}:{draw.seed}"), self._around
        chains = [self._chain(random, taken, draw, size) for size in _SHOWN]
        lines = list[Needle]()
        for chain in chains:
            lines += scattered(random, ordered(random, chain.lines(self._line), self._order))
        text = "\n".join(line.text for line in sorted(lines, key=attrgetter("depth")))
        question = self._question.format(value=chains[0].value)
        return solved(text, question, self._comma.join(chains[0].names), headed=headed, begun=begun), chains


def fresh_name(random: Random, taken: set[str], holds: Callable[[str], bool]) -> str:
    """A variable's name, three letters and two digits, that is neither taken, and is from now on, nor held.

    Raises SettingsError when there is none left.

    >>> fresh_name(Random("x"), set(), lambda text: False)
    'PUZ08'
    """
    for _ in range(_TRIES):
        letters = (random.choice(kind) for kind in (_CONSONANTS, _VOWELS, _CONSONANTS))
        name = f"{''.join(letters)}{random.randrange(100):02}"
        if name not in taken and not holds(name):
            taken.add(name)
            return name
    raise SettingsError("Names of variables are used up. Use fewer chains or hops.")


class ScatteredCounts(Task):
    """Sentences with a number each, the first at the cell's depth, the rest evenly spaced behind it.

    numbers: how many. digits: of each. corrected: every sentence gives a wrong number first.
    """

    name = "count-scattered"
    scorer = "f1"
    dial = (*({"numbers": numbers} for numbers in (8, 16, 32)), {"numbers": 32, "corrected": True})

    def __init__(
        self,
        *,
        numbers: int = 32,
        digits: int = 4,
        corrected: bool = False,
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if numbers < 1 or digits < 2:
            raise SettingsError(
                f"Options of count-scattered: numbers are 1 or more, digits 2 or more; got {numbers} and "
                f"{digits}."
            )
        self._numbers, self._corrected, self._values = numbers, corrected, Values("number", digits)
        plain, twice, asked, corrections, self._prefix = _TEXTS[language]
        self._needle = twice if corrected else plain
        self._question = asked.format(corrections=corrections if corrected else "")

    def item(self, draw: Draw) -> Item:
        """The sentences; wrong numbers are decoys."""
        random, taken = draw.random("count-scattered"), set[str]()
        numbers, wrong = (
            [self._values.fresh(random, taken, draw.holds) for _ in range(self._numbers)] for _ in range(2)
        )
        texts = [
            self._needle.format(number=number, wrong=other)
            for number, other in zip(numbers, wrong, strict=True)
        ]
        step = (1 - draw.cell.depth) / self._numbers
        return Item(
            tuple(Needle(text, draw.cell.depth + place * step) for place, text in enumerate(texts)),
            self._question,
            Reference(
                ", ".join(numbers),
                tuple(numbers),
                "\n".join(texts),
                self._question,
                tuple(wrong) if self._corrected else (),
                like=self._values.like,
            ),
            answer_prefix=self._prefix,
        )
