"""The words that come most often: aggregation (RULER, Hsieh et al. 2024, arXiv 2404.06654).

`count-common`: a long list holds ten words thirty times each. It is not numbered, unlike RULER's:
numbers say nothing about how often a word comes, and take more than a third of the length.
`count-frequent`:
coded words with zeta frequencies. The text of a repeat is one, and a prompt holds its beginning: at
any of its lines, from a few dozen words on, the same words lead, so all lengths share one prefix
and have one answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heapreplace
from itertools import islice
from math import ceil
from random import Random
from string import ascii_lowercase
from typing import Annotated

from annotated_types import Ge, Gt, Le

from needlemap.errors import SettingsError
from needlemap.haystacks import Stream
from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Language,
    OneOrMore,
    Reference,
    Task,
    ZeroOrMore,
    hidden,
    holds_nothing,
)
from needlemap.tasks.values import Values, solved, wording

_SPREAD = 600  # lines over which a word's occurrences are mixed with those of others
_EXAMPLE = (
    3,
    5,
    10,
)  # an example's common words, how often each comes, and its other words, once each


@dataclass(kw_only=True, eq=False)
class CommonWords(Task):
    """Words, one a line, of which a few come far more often than all others; these are asked for.

    words: how many are asked for, each `times` times; every other word comes `others` times, or
    less at the list's end. within: the share of the list around the cell's depth in which the asked
    words stand; with 1, all of it, depth means nothing and only one may be asked. shots: solved
    examples.
    """

    name = "count-common"
    scorer = "f1"

    words: OneOrMore = 10
    times: int = 30
    others: OneOrMore = 3
    within: Annotated[float, Gt(0), Le(1)] = 1.0
    shots: ZeroOrMore = 0
    language: Language = "english"

    def __post_init__(self) -> None:
        if self.times <= self.others:
            raise SettingsError(
                f"Options of count-common: times are more than others, got {self.times} and "
                f"{self.others}."
            )
        self._pool = Values("word", 0, self.language)
        self._wording = wording("count-common", self.language)

    @property
    def depthless(self) -> bool:
        """Whether the asked words stand all over the list."""
        return self.within == 1

    def background(self, repeat: int, seed: int) -> Background:
        """The other words."""
        return Background(Words(self._pool, self.others, f"{seed}:{repeat}"))

    def item(self, draw: Draw) -> Item:
        """The asked words, each so many times, in an order of the trial's own."""
        random, taken, words = draw.random("count-common"), set[str](), self._wording
        examples = "".join(self._example(draw, taken, number) for number in range(self.shots))
        asked = [self._pool.fresh(random, taken, draw.holds) for _ in range(self.words)]
        lines, start = asked * self.times, _start(draw.cell.depth, self.within)
        depths = [draw.cell.depth, *(start + self.within * random.random() for _ in lines[1:])]
        question = words["question"].format(words=self.words)
        return Item(
            hidden((f"{word}\n" for word in lines), depths),
            question,
            Reference(
                words["comma"].join(asked), tuple(asked), question=question, like=self._pool.like
            ),
            prologue=examples + words["asked"] if examples else "",
            answer_prefix=words["begun"],
            unique=tuple(asked),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """A short list with its question and answer."""
        count, times, others = _EXAMPLE
        random, words = draw.random(f"count-common example {number}", "repeat"), self._wording
        drawn = [self._pool.fresh(random, taken, draw.holds) for _ in range(count + others)]
        lines = [*(drawn[:count] * times), *drawn[count:]]
        random.shuffle(lines)
        question, answer = words["question"].format(words=count), words["comma"].join(drawn[:count])
        return solved(
            "\n".join(lines), question, answer, headed=words["headed"], begun=words["answered"]
        )


@dataclass(frozen=True, slots=True)
class Words(Stream):
    """Words, one a line, each so many times within some hundred lines, and never again.

    source: what fixes them, one a repeat.
    """

    PIECES = 64

    kind: Values
    times: int
    source: str
    name: str = "words"

    def pieces(self) -> Iterator[str]:
        """The lines."""
        random, taken, waiting = Random(f"words:{self.source}"), set[str](), list[str]()
        while True:
            while len(waiting) < _SPREAD:
                waiting += [self.kind.fresh(random, taken, holds_nothing)] * self.times
            place = int(random.random() * len(waiting))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            yield waiting.pop() + "\n"


def _start(depth: float, within: float) -> float:
    """Where a share of the text around a depth starts.

    >>> _start(0.5, 0.5), _start(0.0, 0.2), _start(1.0, 0.25)
    (0.25, 0.0, 0.75)
    """
    return min(1 - within, max(0.0, depth - within / 2))


_DOTS = "..."  # the most frequent of all, and not asked for
_RANKS = 4096  # words that there are
_KNOWN = (
    512  # of them are known as wrong answers: at 128k tokens all but a few of those that come once
)
_ROW = 12  # words of a line


@dataclass(kw_only=True, eq=False)
class FrequentWords(Task):
    """Coded words with zeta frequencies: that of rank k is in proportion to 1 / k ** alpha.

    Rank 1 are dots; the `words` ranks behind it are asked for. letters: of a coded word. Depth
    means nothing:
    only one may be asked.
    """

    name = "count-frequent"
    scorer = "f1"
    depthless = True

    words: OneOrMore = 3
    alpha: Annotated[float, Ge(1.2), Le(4)] = 2.0
    letters: Annotated[int, Ge(4)] = 6
    language: Language = "english"

    def background(self, repeat: int, seed: int) -> Background:
        """The text."""
        return Background(self._source(repeat, seed))

    def item(self, draw: Draw) -> Item:
        """Nothing hidden: the words that lead. Raises SettingsError if the text may be too
        short to tell."""
        source = self._source(draw.repeat, draw.seed)
        least = source.settled * (self.letters + 1)
        if draw.cell.length_tokens < least:
            raise SettingsError(
                f"A text of {draw.cell.length_tokens:,} tokens may not settle which {self.words} "
                f"coded "
                f"words lead. Use lengths of {least:,} or more, or fewer: --task-options words=1"
            )
        asked, words = source.leading, wording("count-frequent", self.language)
        question = words["question"].format(words=self.words)
        reference = Reference(", ".join(asked), asked, question=question, decoys=source.others)
        return Item((), question, reference, answer_prefix=words["begun"], unique=())

    def _source(self, repeat: int, seed: int) -> Coded:
        return Coded(self.words, self.alpha, self.letters, f"{seed}:{repeat}")


@dataclass(frozen=True, slots=True)
class Coded(Stream):
    """Dots and coded words in an order that keeps to their frequencies throughout.

    Every word comes once in each stretch of 1 / frequency words, anywhere in it, so that after n
    words it has come n * frequency times, give or take one. asked: how many lead, and stay ahead of
    all others.
    """

    asked: int
    alpha: float
    letters: int
    source: str
    name: str = "coded-words"

    @property
    def leading(self) -> tuple[str, ...]:
        """The words that are asked for."""
        return _coded(self.letters, self.source)[1 : self.asked + 1]

    @property
    def others(self) -> tuple[str, ...]:
        """The words that come most often after them."""
        return _coded(self.letters, self.source)[self.asked + 1 : _KNOWN]

    @property
    def settled(self) -> int:
        """Words after which those that are asked for have come twice, and lead."""
        return ceil(4 / _frequencies(self.alpha)[self.asked])

    def pieces(self) -> Iterator[str]:
        """Lines of some words each."""
        words = self._words()
        while True:
            yield " ".join(islice(words, _ROW)) + "\n"

    def _words(self) -> Iterator[str]:
        random = Random(f"coded:{self.source}")
        words, rates = _coded(self.letters, self.source), _frequencies(self.alpha)
        seen = [0] * _RANKS
        due = [(random.random() / rate, rank) for rank, rate in enumerate(rates)]
        heapify(due)
        while True:
            at, rank = due[0]
            stretch = int(at * rates[rank]) + 1
            heapreplace(due, ((stretch + random.random()) / rates[rank], rank))
            if rank > self.asked and 1 <= seen[rank] >= min(seen[1 : self.asked + 1]) - 1:
                continue  # it would draw level with one that is asked for
            seen[rank] += 1
            yield words[rank]


@cache
def _frequencies(alpha: float) -> tuple[float, ...]:
    """The frequencies of all ranks, rank 1 first; they add up to 1."""
    weights = [rank**-alpha for rank in range(1, _RANKS + 1)]
    whole = sum(weights)
    return tuple(weight / whole for weight in weights)


@cache
def _coded(letters: int, source: str) -> tuple[str, ...]:
    """The words of all ranks, the dots first."""
    random, words = Random(f"codes:{source}"), {_DOTS: None}
    while len(words) < _RANKS:
        words["".join(random.choices(ascii_lowercase, k=letters))] = None
    return tuple(words)
