"""Where the older tools put needles, for the presets that follow them: tokens of parts are
added up.

`token`: cuts fall anywhere (OpenCompass). `period`: behind a bare '.' (needlehaystack).
docs/from-opencompass.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from needlemap.haystacks import Haystack
from needlemap.interop.formulas import behind_full_stop, chained_positions, full_stops
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
            return chained_positions(needles[0].depth, sizes, stop, self._chained)
        return [int(stop * needle.depth) for needle in needles]


class PeriodBuilder(TokenBuilder):
    """Builds prompts as needlehaystack does. options: as `PromptBuilder` has them."""

    def __init__(self, haystack: Haystack, tokenizer: Tokenizer, **options: Any) -> None:
        super().__init__(haystack, tokenizer, **options)
        self._stops = full_stops(tokenizer)

    def _positions(self, needles: Sequence[Needle], stop: int) -> list[int]:
        """Where needles go by depth: behind the nearest bare '.' before."""
        points = super()._positions(needles, stop)
        if self._chained is not None:
            return points
        ids = self.haystack.text.ids
        return [
            behind_full_stop(ids, point, self._stops) if point < stop else stop for point in points
        ]
