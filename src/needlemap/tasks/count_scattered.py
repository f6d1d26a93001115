"""Counts that somebody took, evenly spaced over a text; all are asked for, in order.

After Counting-Stars (Song et al. 2024, arXiv 2403.11802); wording and numbers are our own, the numbers fresh
in every trial, so that no list can be learnt.
"""

from __future__ import annotations

from typing import Literal

from needlemap.errors import SettingsError
from needlemap.tasks.base import Draw, Item, Needle, Reference, Task
from needlemap.tasks.values import Values

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
