"""Hide chains that must be followed, and counts that must be listed: several needles that give the
answer only together.

Trace (RULER's variable tracking, arXiv 2404.06654): a chain is a variable with a number, and
variables that are set to the one before. One chain is asked for, the others mislead. The answer is
its names. The question does not hold them, and nothing states how many there are.

Thread (Roberts, Han and Albanie 2024, arXiv 2411.05000): in one JSON object of pairs, as many as
fit, a value is the next key. Pairs that belong to no thread look like those that do.

Scattered counts, after Counting-Stars (Song et al. 2024, arXiv 2403.11802): the counts are evenly
spaced, and all are asked for in order. Wording and numbers are our own. The numbers are new in
every trial, so that no list can be learnt.
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
# The number of variables in each chain of an example, the chain that is asked for first. These are
# the smallest numbers that distinguish the two chains.
_EXAMPLE_SIZES = (3, 2)


def chained(
    random: Random,
    lines: list[str],
    other_chains: Iterable[list[str]],
    *,
    order: Order,
    depth: float,
    span: float,
) -> tuple[list[str], list[Needle]]:
    """Return a chain's lines in the order of the text, and the lines of all chains as needles.

    lines: of the chain that is asked for; the first is at `depth`, a share. other_chains: their
    lines stand anywhere. order: of the lines of a chain. span: the part of the haystack after the
    first line in which the chain's other lines stand, in percent.
    """
    texts = ordered(random, lines, order=order)
    needles = following(random, texts, depth=depth, span=span / 100)
    for other_lines in other_chains:
        needles += scattered(random, ordered(random, other_lines, order=order))
    return texts, needles


@dataclass(frozen=True, slots=True)
class Chain:
    """Variables of one value. The first is set to it, and each other to the one before."""

    value: str
    names: tuple[str, ...]

    def lines(self, line: str) -> list[str]:
        """Return what the text says of the chain, a line for each variable."""
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
        """Return noise, or None for prose."""
        return noise(self.language) if self.haystack == "repeat" else None

    def item(self, draw: Draw) -> Item:
        """Return the lines of all chains and the question.

        The first line of the chain that is asked for is at the cell's depth.
        """
        shared_random = draw.beside("trace beside", self.fresh)
        asked_random = draw.random("trace", self.fresh)
        # The order of the draws fixes all prompts, because no name or value is drawn twice.
        taken = set[str]()
        examples = [self._example(draw, taken, number=number) for number in range(self.shots)]
        size = self.hops + 1
        other_chains = [
            self._chain(shared_random, taken, draw=draw, size=size) for _ in range(self.chains - 1)
        ]
        asked_chain = self._chain(asked_random, taken, draw=draw, size=size)

        line = self._wording["line"]
        texts, needles = chained(
            shared_random,
            asked_chain.lines(line),
            other_chains=[other.lines(line) for other in other_chains],
            order=self.order,
            depth=draw.cell.depth,
            span=self.span,
        )

        question = self._wording["question"].format(value=asked_chain.value)
        example_chains = [example_chain for _, chains in examples for example_chain in chains]
        wrong_chains = [*other_chains, *example_chains]
        reference = Reference(
            answer=self._wording["comma"].join(asked_chain.names),
            keywords=asked_chain.names,
            needle="\n".join(texts),
            question=question,
            decoys=tuple(name for wrong_chain in wrong_chains for name in wrong_chain.names),
        )

        prologue = ""
        if examples:
            example_texts = [text for text, _ in examples]
            prologue = "".join([*example_texts, self._wording["asked"]])
        return Item(
            tuple(needles),
            question,
            reference=reference,
            prologue=prologue,
            answer_prefix=self._wording["begun"].format(value=asked_chain.value),
        )

    def _chain(self, random: Random, taken: set[str], *, draw: Draw, size: int) -> Chain:
        """Return a chain of `size` names and a value, none of them taken."""
        value = self._values.fresh(random, taken, draw.holds)
        names = [
            fresh(
                partial(any_name, random),
                taken,
                holds=draw.holds,
                gone="Names of variables are used up. Use fewer chains or hops.",
            )
            for _ in range(size)
        ]
        return Chain(value, tuple(names))

    def _example(self, draw: Draw, taken: set[str], *, number: int) -> tuple[str, list[Chain]]:
        """Return a small text with its question and answer, and its chains.

        The first chain is the one that is asked for.
        """
        random = Random(f"trace example {number}:{draw.seed}")
        chains = [self._chain(random, taken, draw=draw, size=size) for size in _EXAMPLE_SIZES]
        lines = list[Needle]()
        for chain in chains:
            texts = chain.lines(self._wording["line"])
            lines += scattered(random, ordered(random, texts, order=self.order))
        lines.sort(key=attrgetter("depth"))
        example = solved(
            "\n".join(line.text for line in lines),
            self._wording["question"].format(value=chains[0].value),
            answer=self._wording["comma"].join(chains[0].names),
            headed=self._wording["headed"],
            begun=self._wording["answered"],
        )
        return example, chains


def any_name(random: Random) -> str:
    """Return a variable's name: three letters and two digits.

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
        """Return pairs that belong to no thread, one a line."""
        pairs = PairLines(
            f"{PAIR},",
            keys=self._values,
            values=self._values,
            source=f"{seed}:{repeat}",
            name="json",
        )
        return Background(pairs)

    def item(self, draw: Draw) -> Item:
        """Return the pairs of all threads and the question.

        The first pair of the thread that is asked for is at the cell's depth.
        """
        shared_random = draw.beside("thread beside", self.fresh)
        asked_random = draw.random("thread", self.fresh)
        last_random = draw.random("thread last", "repeat")
        # The order of the draws fixes all prompts, because no value is drawn twice.
        taken = set[str]()
        # The object's last pair is not a needle, because it has no comma.
        last_pair = self._thread(last_random, taken, draw=draw, hops=1)
        other_threads = [
            self._thread(shared_random, taken, draw=draw, hops=self.hops)
            for _ in range(self.threads - 1)
        ]
        thread = self._thread(asked_random, taken, draw=draw, hops=self.hops)

        texts, needles = chained(
            shared_random,
            lines(thread),
            other_chains=[lines(other) for other in other_threads],
            order=self.order,
            depth=draw.cell.depth,
            span=self.span,
        )

        words = wording("thread", self.language)
        request, answer_start = words[self.ask]
        question = words["question"].format(key=thread[0]) + request
        if self.ask == "last":
            keywords = thread[-1:]
            other_values = [value for other in other_threads for value in other[1:]]
            decoys = (*thread[1:-1], *other_values)
            like = ""
        else:
            keywords = thread[1:]
            decoys = ()
            # In a list of values each one that is not a keyword is wrong.
            like = self._values.like
        reference = Reference(
            answer="\n".join(keywords),
            keywords=tuple(keywords),
            needle="".join(texts),
            question=question,
            decoys=decoys,
            like=like,
        )
        return Item(
            tuple(needles),
            question,
            reference=reference,
            prologue="{\n",
            epilogue=closing(*last_pair),
            answer_prefix=answer_start,
        )

    def _thread(self, random: Random, taken: set[str], *, draw: Draw, hops: int) -> list[str]:
        """Return keys, each of them the value of the one before, and the last value."""
        return [self._values.fresh(random, taken, draw.holds) for _ in range(hops + 1)]


def lines(thread: list[str]) -> list[str]:
    """Return a thread's pairs, as the object holds them.

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
        """Return the sentences and the question. Wrong numbers are decoys."""
        random = draw.random("count-scattered")
        values = Values("number", self.digits)
        taken = set[str]()
        # Wrong numbers are drawn last, so that `corrected` does not change the right ones.
        numbers = [values.fresh(random, taken, draw.holds) for _ in range(self.numbers)]
        wrong_numbers = [values.fresh(random, taken, draw.holds) for _ in range(self.numbers)]

        words = wording("count-scattered", self.language)
        if self.corrected:
            sentence = words["corrected"]
            corrections = words["corrections"]
            decoys = tuple(wrong_numbers)
        else:
            sentence = words["needle"]
            corrections = ""
            decoys = ()
        texts = [
            sentence.format(number=number, wrong=wrong_number)
            for number, wrong_number in zip(numbers, wrong_numbers, strict=True)
        ]
        step = (1 - draw.cell.depth) / self.numbers
        needles = [Needle(text, draw.cell.depth + place * step) for place, text in enumerate(texts)]
        question = words["question"].format(corrections=corrections)
        reference = Reference(
            answer=", ".join(numbers),
            keywords=tuple(numbers),
            needle="\n".join(texts),
            question=question,
            decoys=decoys,
            like=values.like,
        )
        return Item(
            tuple(needles),
            question,
            reference=reference,
            answer_prefix=words["begun"],
        )
