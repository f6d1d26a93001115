"""Where the older tools put needles, for the presets that follow them: tokens of parts are
added up.

`token`: cuts fall anywhere (OpenCompass). `period`: behind a bare '.' (needlehaystack).
docs/coming-from.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from needlemap.haystacks import Haystack
from needlemap.prompts import Prompt
from needlemap.prompts.placement import Frame, PromptBuilder, Wanted, around
from needlemap.text.tokens import Tokenizer

if TYPE_CHECKING:
    from needlemap.tasks import Needle


class TokenBuilder(PromptBuilder):
    """Builds prompts as OpenCompass does. chained: its first formula of positions, with its
    increment as a share. options: as `PromptBuilder` has them."""

    def __init__(
        self,
        haystack: Haystack,
        tokenizer: Tokenizer,
        *,
        chained: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(haystack, tokenizer, **options)
        self._exact_lengths = False
        self._chained = chained

    def haystack_tokens(self, frame: Frame, needles: Sequence[Needle], length_tokens: int) -> int:
        """What the other parts leave, or all of a haystack that ends before."""
        left = super().haystack_tokens(frame, needles, length_tokens)
        return min(left, len(self.haystack.text))

    def _fitted(self, wanted: Wanted) -> Prompt | None:
        """The haystack gets the tokens that the other parts leave."""
        if wanted.guess < 1:
            return None
        positions = around(self._positions(wanted.needles, wanted.guess), wanted.chosen)
        prompt = self._prompt(wanted, positions, wanted.guess)
        left = wanted.room - self._fixed(wanted.frame, wanted.needles)
        return replace(prompt, off_by=wanted.guess - left)

    def _positions(self, needles: Sequence[Needle], stop: int) -> list[int]:
        """Where needles go by depth, among the haystack's first `stop` tokens."""
        if self._chained is not None:
            sizes = [len(self._span(needle.text)) for needle in needles]
            return chained(needles[0].depth, sizes, stop, self._chained)
        return [int(stop * needle.depth) for needle in needles]


class PeriodBuilder(TokenBuilder):
    """Builds prompts as needlehaystack does. options: as `PromptBuilder` has them."""

    def __init__(self, haystack: Haystack, tokenizer: Tokenizer, **options: Any) -> None:
        super().__init__(haystack, tokenizer, **options)
        self._stops = dots(tokenizer)

    def _positions(self, needles: Sequence[Needle], stop: int) -> list[int]:
        """Where needles go by depth: behind the nearest bare '.' before."""
        points = super()._positions(needles, stop)
        if self._chained is not None:
            return points
        ids = self.haystack.text.ids
        return [behind_stop(ids, point, self._stops) if point < stop else stop for point in points]


def chained(depth: float, sizes: Sequence[int], stop: int, step: float) -> list[int]:
    """Positions of needles of these many tokens by OpenCompass's formula, which counts needles
    twice.

    step: the increment as a share of the haystack's `stop` tokens. See docs/coming-from.md.
    """
    point = int(stop * depth)
    points = [point]
    for size in sizes[:-1]:
        point = int(point + size + stop * step)
        points.append(point)
    return [min(point, stop) for point in points]


def dots(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens of a bare '.'."""
    return frozenset(tokenizer.index(b".").ids.tolist())


def behind_stop(ids: NDArray[np.int32], point: int, stops: frozenset[int]) -> int:
    """The last position at or before a point that one of these tokens stands before; 0 without
    any."""
    while point and int(ids[point - 1]) not in stops:
        point -= 1
    return point
