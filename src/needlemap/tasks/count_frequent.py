"""The most frequent of made-up words with zeta frequencies: aggregation (RULER, arXiv 2404.06654).

The text of a repeat is one, and a prompt holds its beginning: at any of its lines, from a few dozen words on,
the same words lead, so all lengths share one prefix and have one answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heapreplace
from itertools import count, islice
from math import ceil
from random import Random
from string import ascii_lowercase
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.haystacks.base import Document
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Background, Draw, Item

_DOTS = "..."  # the most frequent of all, and not asked for
_RANKS = 4096  # words that there are
_KNOWN = 512  # of them are known as wrong answers: at 128k tokens all but a few of those that come once
_LINE, _LINES = 12, 32  # words of a line, lines of a document
_TEXTS = {  # question, beginning of its answer
    "english": (
        "The text is made of coded words. Leave the dots out: which {words} coded words come most often? "
        "Answer with these words alone, separated by commas.",
        "The coded words that come most often are",
    ),
    "chinese": (
        "文中都是编码词。不算省略号，出现次数最多的{words}个编码词是哪些？只回答这些词，用逗号隔开。",
        "出现次数最多的编码词是",
    ),
}


class FrequentWords(metaclass=Checked):
    """Coded words with zeta frequencies: that of rank k is in proportion to 1 / k ** alpha.

    Rank 1 are dots; the `words` ranks behind it are asked for. letters: of a coded word. Depth means nothing:
    only one may be asked.
    """

    name = "count-frequent"
    scorer = "f1"
    dial = tuple({"alpha": alpha} for alpha in (3.0, 2.0, 1.5))
    depthless = True

    def __init__(
        self,
        *,
        words: int = 3,
        alpha: float = 2.0,
        letters: int = 6,
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if words < 1 or not 1.2 <= alpha <= 4 or letters < 4:
            raise SettingsError(
                f"Options of count-frequent: words are 1 or more, alpha from 1.2 to 4, letters 4 or more; "
                f"got {words}, {alpha}, {letters}."
            )
        self._words, self._alpha, self._letters = words, alpha, letters
        asked, self._prefix = _TEXTS[language]
        self._question = asked.format(words=words)

    def background(self, repeat: int, seed: int) -> Background:
        """The text."""
        return Background(self._source(repeat, seed))

    def item(self, draw: Draw) -> Item:
        """Nothing hidden: the words that lead. Raises SettingsError if the text may be too short to tell."""
        source = self._source(draw.repeat, draw.seed)
        least = source.settled * (self._letters + 1)
        if draw.cell.length_tokens < least:
            raise SettingsError(
                f"A text of {draw.cell.length_tokens:,} tokens may not settle which {self._words} coded "
                f"words lead. Use lengths of {least:,} or more, or fewer: --task-options words=1"
            )
        asked = source.leading
        reference = Reference(", ".join(asked), asked, question=self._question, decoys=source.others)
        return Item((), self._question, reference, answer_prefix=self._prefix, unique=())

    def _source(self, repeat: int, seed: int) -> Coded:
        return Coded(self._words, self._alpha, self._letters, f"{seed}:{repeat}")


@dataclass(frozen=True, slots=True)
class Coded:
    """Dots and coded words in an order that keeps to their frequencies throughout.

    Every word comes once in each stretch of 1 / frequency words, anywhere in it, so that after n words it has
    come n * frequency times, give or take one. asked: how many lead, and stay ahead of all others.
    """

    asked: int
    alpha: float
    letters: int
    source: str
    name: str = "coded-words"
    endless: bool = True

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

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some lines each."""
        words = self._words()
        lines = (" ".join(islice(words, _LINE)) + "\n" for _ in count())
        texts = ("".join(islice(lines, _LINES)) for _ in count())
        return (
            Document(f"{self.name}:{number}", text) for number, text in enumerate(texts) if number >= first
        )

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
