"""Chains to be followed, and counts to be listed: several needles that only together say the
answer.

Trace (RULER's variable tracking, arXiv 2404.06654): a chain is a variable with a number, and
variables that are set to the one before. One chain is asked for, the others mislead. Its names are
what the question does not say, and nothing says how many they are.

Thread (Roberts, Han and Albanie 2024, arXiv 2411.05000): in one JSON object of pairs, as many as
fit, a value is the next key. Pairs that belong to no thread look like those that do.

Scattered counts, after Counting-Stars (Song et al. 2024, arXiv 2403.11802): evenly spaced; all are
asked for, in order. Wording and numbers are our own, the numbers fresh in every trial, so that no
list can be learnt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge

from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Language,
    Needle,
    OneOrMore,
    Order,
    Percent,
    Reference,
    Scope,
    Task,
    ZeroOrMore,
    following,
    ordered,
    scattered,
)
from needlemap.tasks.key_values import PAIR, UuidDigits, closing
from needlemap.tasks.values import PairLines, Values, fresh, noise, solved, wording

_CONSONANTS, _VOWELS = "BDFGHJKLMNPRSTVZ", "AEIOU"
_SHOWN = (
    3,
    2,
)  # variables of an example's chains, the asked one first: as few as tell a chain from another


def chained(
    random: Random,
    asked: list[str],
    others: Iterable[list[str]],
    order: Order,
    depth: float,
    span: float,
) -> tuple[list[str], list[Needle]]:
    """The lines of the asked chain as they stand in the text, and those of all chains as
    needles.

    order: in which a chain's lines stand. The asked ones go on behind the first over so much
    of the haystack, span, in percent; those of the others stand anywhere.
    """
    texts = ordered(random, asked, order)
    needles = following(random, texts, depth, span / 100)
    for other in others:
        needles += scattered(random, ordered(random, other, order))
    return texts, needles


@dataclass(frozen=True, slots=True)
class Chain:
    """Variables of one value: the first is set to it, each other one to the one before."""

    value: str
    names: tuple[str, ...]

    def lines(self, line: str) -> list[str]:
        """What the text says of it, one line a variable."""
        sources = (self.value, *self.names[:-1])
        return [
            line.format(name=name, source=source)
            for name, source in zip(self.names, sources, strict=True)
        ]


@dataclass(kw_only=True, eq=False)
class Trace(Task):
    """Variables set to a number or to one another; all that have a certain number are asked for.

    chains: how many there are, of which one is asked for; each has hops + 1 variables.
    order: the order of a chain's lines.
    span: the part of the haystack, in percent, after the asked chain's first line in which its
    other lines stand.
    digits: the size of numbers.
    shots: solved examples on small texts of their own, with names and values that nothing else has.
    They are the same in all trials, as noise is, so that repeats share it.
    haystack, fresh: as for `magic`.
    """

    name = "trace"
    scorer = "f1"

    haystack: Literal["prose", "repeat"] = "prose"
    chains: OneOrMore = 2
    hops: OneOrMore = 4
    order: Order = "forward"
    span: Percent = 100.0
    digits: OneOrMore = 5
    shots: ZeroOrMore = 0
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        self._values = Values("number", self.digits)
        self._wording = wording("trace", self.language)

    def background(self, repeat: int, seed: int) -> Background | None:
        """Noise; None for prose."""
        return noise(self.language) if self.haystack == "repeat" else None

    def item(self, draw: Draw) -> Item:
        """The asked chain's lines, the first of them at the cell's depth, then those of the
        others."""
        beside, line = draw.beside("trace beside", self.fresh), self._wording["line"]
        taken: set[str] = set()
        examples = [self._example(draw, taken, number) for number in range(self.shots)]
        size = self.hops + 1
        others = [self._chain(beside, taken, draw, size) for _ in range(self.chains - 1)]
        asked = self._chain(draw.random("trace", self.fresh), taken, draw, size)
        texts, needles = chained(
            beside,
            asked.lines(line),
            (other.lines(line) for other in others),
            self.order,
            draw.cell.depth,
            self.span,
        )
        question = self._wording["question"].format(value=asked.value)
        elsewhere = [*others, *(chain for _, chains in examples for chain in chains)]
        decoys = tuple(name for chain in elsewhere for name in chain.names)
        answer = self._wording["comma"].join(asked.names)
        return Item(
            tuple(needles),
            question,
            Reference(answer, asked.names, "\n".join(texts), question, decoys),
            prologue="".join([*(text for text, _ in examples), self._wording["asked"]])
            if examples
            else "",
            answer_prefix=self._wording["begun"].format(value=asked.value),
        )

    def _chain(self, random: Random, taken: set[str], draw: Draw, size: int) -> Chain:
        """A chain of so many names and a value that nothing has yet."""
        gone = "Names of variables are used up. Use fewer chains or hops."
        value, named = self._values.fresh(random, taken, draw.holds), partial(any_name, random)
        names = (fresh(named, taken, draw.holds, gone) for _ in range(size))
        return Chain(value, tuple(names))

    def _example(self, draw: Draw, taken: set[str], number: int) -> tuple[str, list[Chain]]:
        """A small text with its question and answer; and its chains, the asked one first."""
        random, words = Random(f"trace example {number}:{draw.seed}"), self._wording
        chains = [self._chain(random, taken, draw, size) for size in _SHOWN]
        lines = list[Needle]()
        for chain in chains:
            lines += scattered(random, ordered(random, chain.lines(words["line"]), self.order))
        text = "\n".join(line.text for line in sorted(lines, key=attrgetter("depth")))
        question, answer = (
            words["question"].format(value=chains[0].value),
            words["comma"].join(chains[0].names),
        )
        return solved(
            text, question, answer, headed=words["headed"], begun=words["answered"]
        ), chains


def any_name(random: Random) -> str:
    """A variable's name: three letters and two digits.

    >>> any_name(Random("x"))
    'PUZ08'
    """
    letters = (random.choice(kind) for kind in (_CONSONANTS, _VOWELS, _CONSONANTS))
    return f"{''.join(letters)}{random.randrange(100):02}"


@dataclass(kw_only=True, eq=False)
class Thread(Task):
    """A JSON object of pairs, where the value of the asked key is the next key, and so on.

    The object has as many pairs as fit.

    threads: how many there are, of which one is asked for; each has hops pairs.
    ask: 'last' asks for the last value (scorer `first`), 'all' for all values on the way (`f1`).
    order: the order of a thread's pairs.
    span: the part of the object, in percent, after the asked thread's first pair in which its
    other pairs stand.
    uuid_digits: the size of keys and values.
    fresh: as for `magic`.
    """

    name = "thread"

    threads: OneOrMore = 1
    hops: OneOrMore = 3
    ask: Literal["last", "all"] = "last"
    order: Order = "forward"
    span: Percent = 100.0
    uuid_digits: UuidDigits = 32
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        self.scorer = "first" if self.ask == "last" else "f1"
        self.scorer_options = {"chain": True} if self.ask == "last" else {}
        self._values = Values("uuid", self.uuid_digits)

    def background(self, repeat: int, seed: int) -> Background:
        """Pairs that belong to no thread, one a line."""
        return Background(
            PairLines(f"{PAIR},", self._values, self._values, f"{seed}:{repeat}", "json")
        )

    def item(self, draw: Draw) -> Item:
        """The asked thread's pairs, the first of them at the cell's depth, then those of the
        others."""
        beside = draw.beside("thread beside", self.fresh)
        taken: set[str] = set()
        last = self._thread(
            draw.random("thread last", "repeat"), taken, draw, 1
        )  # alone has no comma
        others = [self._thread(beside, taken, draw, self.hops) for _ in range(self.threads - 1)]
        asked = self._thread(draw.random("thread", self.fresh), taken, draw, self.hops)
        texts, needles = chained(
            beside, lines(asked), map(lines, others), self.order, draw.cell.depth, self.span
        )
        words = wording("thread", self.language)
        wanted_of_it, begun = words[self.ask]
        question = words["question"].format(key=asked[0]) + wanted_of_it
        wanted = tuple(asked[-1:] if self.ask == "last" else asked[1:])
        wrong = [*asked[1:-1], *(value for other in others for value in other[1:])]
        decoys = tuple(wrong) if self.ask == "last" else ()
        like = (
            "" if self.ask == "last" else self._values.like
        )  # of a list, all that is not wanted is wrong
        return Item(
            tuple(needles),
            question,
            Reference("\n".join(wanted), wanted, "".join(texts), question, decoys, like=like),
            prologue="{\n",
            epilogue=closing(*last),
            answer_prefix=begun,
        )

    def _thread(self, random: Random, taken: set[str], draw: Draw, hops: int) -> list[str]:
        """Keys, each the value of the one before, and the last value."""
        return [self._values.fresh(random, taken, draw.holds) for _ in range(hops + 1)]


def lines(thread: list[str]) -> list[str]:
    """A thread's pairs, as the object holds them.

    >>> lines(["a", "b", "c"])
    ['"a": "b",\\n', '"b": "c",\\n']
    """
    return [f"{PAIR.format(key=key, value=value)},\n" for key, value in pairwise(thread)]


@dataclass(kw_only=True, eq=False)
class ScatteredCounts(Task):
    """Sentences with a number each, the first at the cell's depth, the rest evenly spaced behind
    it.

    numbers: how many. digits: of each. corrected: every sentence gives a wrong number first.
    """

    name = "count-scattered"
    scorer = "f1"

    numbers: OneOrMore = 32
    digits: Annotated[int, Ge(2)] = 4
    corrected: bool = False
    language: Language = "english"

    def item(self, draw: Draw) -> Item:
        """The sentences; wrong numbers are decoys."""
        random, taken, values = (
            draw.random("count-scattered"),
            set[str](),
            Values("number", self.digits),
        )
        numbers, wrong = (
            tuple(values.fresh(random, taken, draw.holds) for _ in range(self.numbers))
            for _ in range(2)
        )
        words = wording("count-scattered", self.language)
        sentence = words["corrected" if self.corrected else "needle"]
        texts = [
            sentence.format(number=one, wrong=other)
            for one, other in zip(numbers, wrong, strict=True)
        ]
        question = words["question"].format(
            corrections=words["corrections"] if self.corrected else ""
        )
        step, decoys = (1 - draw.cell.depth) / self.numbers, wrong if self.corrected else ()
        return Item(
            tuple(Needle(text, draw.cell.depth + place * step) for place, text in enumerate(texts)),
            question,
            Reference(
                ", ".join(numbers), numbers, "\n".join(texts), question, decoys, like=values.like
            ),
            answer_prefix=words["begun"],
        )
