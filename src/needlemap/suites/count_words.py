"""Ask for the words that come most often: aggregation (RULER, Hsieh et al. 2024, arXiv 2404.06654).

`count-common`: a long list holds ten words thirty times each. Unlike RULER's, it is not numbered:
numbers do not show how often a word comes, and take more than a third of the length.

`count-frequent`: coded words with zeta frequencies. There is one text for each repeat, and a prompt
holds its beginning. At each of its lines, from a few dozen words on, the same words lead, so all
lengths share one prefix and have one answer.
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

# Words over which a word's occurrences are mixed with those of others.
_SPREAD = 600
# The most frequent word of all, which is not asked for.
_DOTS = "..."
# How many coded words there are.
_RANKS = 4096
# How many of them are known as wrong answers. At 128k tokens these are all but a few of the words
# that come once.
_DECOY_RANKS = 512
# Words of a line of coded words.
_LINE_WORDS = 12


@dataclass(frozen=True, slots=True)
class _Example:
    """The size of an example: its common words, how often each comes, and its other words."""

    words: int
    times: int
    others: int


_EXAMPLE = _Example(words=3, times=5, others=10)


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
        self._pool = Values("word", 0, language=self.language)
        self._wording = wording("count-common", self.language)

    @property
    def depthless(self) -> bool:
        """Return True if the asked words stand all over the list."""
        return self.within == 1

    def background(self, repeat: int, seed: int) -> Background:
        """Return the other words."""
        return Background(Words(self._pool, self.others, source=f"{seed}:{repeat}"))

    def item(self, draw: Draw) -> Item:
        """Return the asked words, each as often as `times` says, in an order of the trial's own."""
        random = draw.random("count-common")
        taken = set[str]()
        texts = self._wording
        examples = "".join(
            self._example(draw, taken, number=number) for number in range(self.shots)
        )

        words = [self._pool.fresh(random, taken, holds=draw.holds) for _ in range(self.words)]
        lines = [f"{word}\n" for word in words] * self.times
        start = _start(draw.cell.depth, self.within)
        other_depths = [start + self.within * random.random() for _ in lines[1:]]
        question = texts["question"].format(words=self.words)
        return Item(
            hidden(lines, [draw.cell.depth, *other_depths]),
            question,
            reference=Reference(
                texts["comma"].join(words),
                tuple(words),
                question=question,
                like=self._pool.like,
            ),
            prologue=examples + texts["asked"] if examples else "",
            answer_prefix=texts["begun"],
            unique=tuple(words),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """Return a short list with its question and answer."""
        random = draw.random(f"count-common example {number}", "repeat")
        count = _EXAMPLE.words + _EXAMPLE.others
        words = [self._pool.fresh(random, taken, holds=draw.holds) for _ in range(count)]
        common = words[: _EXAMPLE.words]
        lines = common * _EXAMPLE.times + words[_EXAMPLE.words :]
        random.shuffle(lines)
        texts = self._wording
        return solved(
            "\n".join(lines),
            texts["question"].format(words=_EXAMPLE.words),
            answer=texts["comma"].join(common),
            headed=texts["headed"],
            begun=texts["answered"],
        )


@dataclass(frozen=True, slots=True)
class Words(Stream):
    """Words, one a line, each as often as the others, within some hundred lines and never again.

    Attributes:
        kind: The kind of the words.
        times: How often each word comes.
        source: What fixes the words, one a repeat.
    """

    PIECES = 64

    kind: Values
    times: int
    source: str
    name: str = "words"

    def pieces(self) -> Iterator[str]:
        """Yield the lines."""
        random = Random(f"words:{self.source}")
        taken = set[str]()
        waiting: list[str] = []
        while True:
            while len(waiting) < _SPREAD:
                word = self.kind.fresh(random, taken, holds=holds_nothing)
                waiting += [word] * self.times
            place = int(random.random() * len(waiting))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            yield f"{waiting.pop()}\n"


def _start(depth: float, within: float) -> float:
    """Return where a share of the text around a depth starts.

    >>> _start(0.5, 0.5), _start(0.0, 0.2), _start(1.0, 0.25)
    (0.25, 0.0, 0.75)
    """
    return min(1 - within, max(0.0, depth - within / 2))


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
        """Return the text."""
        return Background(self._source(repeat, seed))

    def item(self, draw: Draw) -> Item:
        """Return an item that hides nothing and asks for the words that lead.

        Raises SettingsError if the text may be too short to settle which words lead.
        """
        source = self._source(draw.repeat, draw.seed)
        least_tokens = source.settling_words * (self.letters + 1)
        if draw.cell.length_tokens < least_tokens:
            raise SettingsError(
                f"A text of {draw.cell.length_tokens:,} tokens may not settle which {self.words} "
                f"coded words lead. Use lengths of {least_tokens:,} or more, or fewer: "
                f"--task-options words=1"
            )
        texts = wording("count-frequent", self.language)
        question = texts["question"].format(words=self.words)
        reference = Reference(
            ", ".join(source.leading_words),
            source.leading_words,
            question=question,
            decoys=source.others,
        )
        return Item(
            (),
            question,
            reference=reference,
            answer_prefix=texts["begun"],
            unique=(),
        )

    def _source(self, repeat: int, seed: int) -> Coded:
        return Coded(self.words, self.alpha, letters=self.letters, source=f"{seed}:{repeat}")


@dataclass(frozen=True, slots=True)
class Coded(Stream):
    """Dots and coded words in an order that keeps to their frequencies throughout.

    Every word comes once in each stretch of 1 / frequency words, anywhere in it, so that after n
    words it has come n * frequency times, give or take one.

    Attributes:
        leaders: How many words lead, and stay ahead of all others.
        alpha: The exponent of the frequencies.
        letters: How many letters a coded word has.
        source: What fixes the text, one a repeat.
    """

    leaders: int
    alpha: float
    letters: int
    source: str
    name: str = "coded-words"

    @property
    def leading_words(self) -> tuple[str, ...]:
        """Return the words that are asked for."""
        return _coded(self.letters, self.source)[1 : self.leaders + 1]

    @property
    def others(self) -> tuple[str, ...]:
        """Return the words that come most often after the leading ones."""
        return _coded(self.letters, self.source)[self.leaders + 1 : _DECOY_RANKS]

    @property
    def settling_words(self) -> int:
        """Return how many words it takes until each leading word has come twice, and they lead."""
        return ceil(4 / _frequencies(self.alpha)[self.leaders])

    def pieces(self) -> Iterator[str]:
        """Yield lines of some words each."""
        words = self._words()
        while True:
            yield f"{' '.join(islice(words, _LINE_WORDS))}\n"

    def _words(self) -> Iterator[str]:
        random = Random(f"coded:{self.source}")
        words = _coded(self.letters, self.source)
        rates = _frequencies(self.alpha)
        counts = [0] * _RANKS
        due = [(random.random() / rate, rank) for rank, rate in enumerate(rates)]
        heapify(due)
        while True:
            place, rank = due[0]
            stretch = int(place * rates[rank]) + 1
            heapreplace(due, ((stretch + random.random()) / rates[rank], rank))
            is_leader = rank <= self.leaders
            # Another word must not draw level with one that is asked for.
            if not is_leader and 1 <= counts[rank] >= min(counts[1 : self.leaders + 1]) - 1:
                continue
            counts[rank] += 1
            yield words[rank]


@cache
def _frequencies(alpha: float) -> tuple[float, ...]:
    """Return the frequencies of all ranks, rank 1 first. They add up to 1."""
    weights = [rank**-alpha for rank in range(1, _RANKS + 1)]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


@cache
def _coded(letters: int, source: str) -> tuple[str, ...]:
    """Return the words of all ranks, the dots first."""
    random = Random(f"codes:{source}")
    words = {_DOTS: None}
    while len(words) < _RANKS:
        words["".join(random.choices(ascii_lowercase, k=letters))] = None
    return tuple(words)
