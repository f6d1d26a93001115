"""Several needles that belong together, and one question that needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.prompts.placement import Needle
from needlemap.prompts.templates import fill
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Draw, Item
from needlemap.tasks.single import WORDING, drawn, is_part

SPREADS = ("chain", "chain-as-coded", "even")


class Multi(metaclass=Checked):
    """Needles spread from the cell's depth on.

    spread 'chain': needle i at depth + i * diff, not beyond 100 (diff in percent). 'chain-as-coded':
    the same meant depths, placed by OpenCompass's formula, which counts needles twice. 'even': needle i of
    k at depth + i * (100 - depth) / k, as needlehaystack does. answer: the needles themselves when not given.
    Scored by the share of the keywords that the answer holds, as in `single` where there are none.
    """

    name = "multi"

    def __init__(
        self,
        *,
        needles: Sequence[str],
        question: str,
        answer: str | None = None,
        keywords: Sequence[str] = (),
        spread: str = "chain",
        diff: float = 10.0,
        draw: Mapping[str, Sequence[str] | str] | None = None,
    ) -> None:
        if not needles or not all(needle.strip() for needle in needles) or not question.strip():
            raise SettingsError("The multi task needs --needles, none of them empty, and a --question.")
        if spread not in SPREADS:
            raise SettingsError(f"Unknown spread '{spread}'. {did_you_mean(spread, SPREADS)}")
        self._needles, self._question, self._answer = tuple(needles), question, answer
        self._keywords, self._spread, self._diff = tuple(keywords), spread, diff / 100
        self._draw = dict(draw or {})
        by_part = "substring" if is_part(answer, "\n".join(needles)) else WORDING
        self.scorer = "recall" if keywords else by_part
        self.scorer_options: Mapping[str, Any] = {"rule": "inside"} if keywords else {}

    def item(self, draw: Draw) -> Item:
        """The needles with their meant depths, the question, and the reference."""
        values = drawn(self._draw, draw.repeat, draw.seed)
        texts = [fill(needle, values, "needles") for needle in self._needles]
        depths = spread_depths(draw.cell.depth, len(texts), self._spread, self._diff)
        question = fill(self._question, values, "question")
        words = tuple(fill(word, values, "keywords") for word in self._keywords)
        whole = "\n".join(texts)
        answer = whole if self._answer is None else fill(self._answer, values, "answer")
        reference = Reference(answer, words, whole, question)
        return Item(tuple(map(Needle, texts, depths)), question, reference)


def spread_depths(depth: float, count: int, spread: str, diff: float) -> list[float]:
    """Meant depths, as shares, of `count` needles that start at `depth`.

    >>> [round(d, 2) for d in spread_depths(0.4, 4, "even", 0)], spread_depths(0.9, 3, "chain", 0.25)
    ([0.4, 0.55, 0.7, 0.85], [0.9, 1.0, 1.0])
    """
    step = (1 - depth) / count if spread == "even" else diff
    return [min(1.0, depth + place * step) for place in range(count)]
