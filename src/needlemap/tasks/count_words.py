"""The words that come most often: aggregation (RULER, Hsieh et al. 2024, arXiv 2404.06654).

`count-common`: a long list holds ten words thirty times each. It is not numbered, unlike RULER's: numbers say
nothing about how often a word comes, and take more than a third of the length. `count-frequent`: coded words
with zeta frequencies. The text of a repeat is one, and a prompt holds its beginning: at any of its lines,
from a few dozen words on, the same words lead, so all lengths share one prefix and have one answer.
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
from needlemap.haystacks import Document, Source
from needlemap.tasks import Background, Draw, Item, Needle, Reference, Task, holds_nothing
from needlemap.tasks.values import Values, solved

_LINES = 64  # of a document
_SPREAD = 600  # lines over which a word's occurrences are mixed with those of others
_EXAMPLE = (3, 5, 10)  # an example's common words, how often each comes, and its other words, once each
_TEXTS = {  # question, beginning of its answer, comma; before an example, its question, and the list
    "english": (
        "Which {words} words come most often in the list? Answer with these words alone, "
        "separated by commas.",
        "The words that come most often are",
        ", ",
        "An example of a list:\n",
        "Answer: ",
        "Now the list that is asked about:\n",
    ),
    "chinese": (
        "词表中出现次数最多的{words}个词是哪些？只回答这些词，用逗号隔开。",
        "出现次数最多的词是",
        "，",
        "词表示例：\n",
        "答案：",
        "下面是要回答的词表：\n",
    ),
}


class CommonWords(Task):
    """Words, one a line, of which a few come far more often than all others; these are asked for.

    words: how many are asked for, each `times` times; every other word comes `others` times, or less at the
    list's end. within: the share of the list around the cell's depth in which the asked words stand; with
    1, all of it, depth means nothing and only one may be asked. shots: solved examples.
    """

    name = "count-common"
    scorer = "f1"
    dial = tuple({"others": others} for others in (3, 6, 12))

    def __init__(
        self,
        *,
        words: int = 10,
        times: int = 30,
        others: int = 3,
        within: float = 1.0,
        shots: int = 0,
        language: Literal["english", "chinese"] = "english",
    ) -> None:
        if words < 1 or others < 1 or times <= others or not 0 < within <= 1 or shots < 0:
            raise SettingsError(
                f"Options of count-common: words and others are 1 or more, times more than others, within "
                f"above 0 and at most 1, shots 0 or more; got {words}, {others}, {times}, {within}, {shots}."
            )
        self._words, self._times, self._others = words, times, others
        self._within, self._shots, self._pool = within, shots, Values("word", 0, language)
        self._question, self._prefix, self._comma, *self._around = _TEXTS[language]

    @property
    def depthless(self) -> bool:
        """Whether the asked words stand all over the list."""
        return self._within == 1

    def background(self, repeat: int, seed: int) -> Background:
        """The other words."""
        return Background(Words(self._pool, self._others, f"{seed}:{repeat}"))

    def item(self, draw: Draw) -> Item:
        """The asked words, each so many times, in an order of the trial's own."""
        random, taken = draw.random("count-common"), set[str]()
        examples = "".join(self._example(draw, taken, number) for number in range(self._shots))
        asked = [self._pool.fresh(random, taken, draw.holds) for _ in range(self._words)]
        lines, start = asked * self._times, _start(draw.cell.depth, self._within)
        depths = [draw.cell.depth, *(start + self._within * random.random() for _ in lines[1:])]
        question = self._question.format(words=self._words)
        return Item(
            tuple(
                Needle(f"{word}\n", place, still=number > 0)
                for number, (word, place) in enumerate(zip(lines, depths, strict=True))
            ),
            question,
            Reference(self._comma.join(asked), tuple(asked), question=question, like=self._pool.like),
            prologue=examples + self._around[-1] if examples else "",
            answer_prefix=self._prefix,
            unique=tuple(asked),
        )

    def _example(self, draw: Draw, taken: set[str], number: int) -> str:
        """A short list with its question and answer."""
        words, times, others = _EXAMPLE
        random = draw.random(f"count-common example {number}", "repeat")
        drawn = [self._pool.fresh(random, taken, draw.holds) for _ in range(words + others)]
        lines = [*(drawn[:words] * times), *drawn[words:]]
        random.shuffle(lines)
        headed, begun, _ = self._around
        question, answer = self._question.format(words=words), self._comma.join(drawn[:words])
        return solved("\n".join(lines), question, answer, headed=headed, begun=begun)


@dataclass(frozen=True, slots=True)
class Words(Source):
    """Words, one a line, each so many times within some hundred lines, and never again.

    source: what fixes them, one a repeat.
    """

    kind: Values
    times: int
    source: str
    name: str = "words"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some lines each."""
        lines = self._lines()
        texts = ("\n".join(islice(lines, _LINES)) + "\n" for _ in count())
        return (
            Document(f"{self.name}:{number}", text) for number, text in enumerate(texts) if number >= first
        )

    def _lines(self) -> Iterator[str]:
        random, taken, waiting = Random(f"words:{self.source}"), set[str](), list[str]()
        while True:
            while len(waiting) < _SPREAD:
                waiting += [self.kind.fresh(random, taken, holds_nothing)] * self.times
            place = int(random.random() * len(waiting))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            yield waiting.pop()


def _start(depth: float, within: float) -> float:
    """Where a share of the text around a depth starts.

    >>> _start(0.5, 0.5), _start(0.0, 0.2), _start(1.0, 0.25)
    (0.25, 0.0, 0.75)
    """
    return min(1 - within, max(0.0, depth - within / 2))


_DOTS = "..."  # the most frequent of all, and not asked for
_RANKS = 4096  # words that there are
_KNOWN = 512  # of them are known as wrong answers: at 128k tokens all but a few of those that come once
_ROW, _ROWS = 12, 32  # words of a line, lines of a document
_FREQUENT = {  # question, beginning of its answer
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


class FrequentWords(Task):
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
        asked, self._prefix = _FREQUENT[language]
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
class Coded(Source):
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
        lines = (" ".join(islice(words, _ROW)) + "\n" for _ in count())
        texts = ("".join(islice(lines, _ROWS)) for _ in count())
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
