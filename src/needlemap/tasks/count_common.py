"""The words that a long list holds most often: aggregation (RULER, Hsieh et al. 2024, arXiv 2404.06654).

The list is not numbered, unlike RULER's: numbers say nothing about how often a word comes, and take more than
a third of the length. Nobody finds these words by looking: they stand all over the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.haystacks.base import Document
from needlemap.prompts.placement import Needle
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Background, Draw, Item, holds_nothing
from needlemap.tasks.values import Values
from needlemap.tasks.wording import solved

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


class CommonWords(metaclass=Checked):
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
class Words:
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
