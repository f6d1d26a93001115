"""Place needles where the older tools do, for the presets that follow them.

`token` cuts the haystack anywhere (OpenCompass), `period` behind a bare '.' (needlehaystack). The
length of a prompt is the sum of the tokens of its parts. See docs/from-opencompass.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from needlemap.haystacks import Haystack
from needlemap.interop.formulas import behind_full_stop, chained_positions, full_stops
from needlemap.prompts import Prompt
from needlemap.prompts.placement import Frame, PromptBuilder, PromptRequest, positions_around
from needlemap.text.tokens import Tokenizer

if TYPE_CHECKING:
    from needlemap.tasks import Needle


class TokenBuilder(PromptBuilder):
    """Build prompts as OpenCompass does.

    chained: the increment, as a share, of OpenCompass's first formula of positions, or None to
    place each needle by its own depth. options: those of `PromptBuilder`.
    """

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
        """Return the tokens that the other parts leave, or all of a shorter haystack."""
        room = super().haystack_tokens(frame, needles, length_tokens)
        return min(room, len(self.haystack.text))

    def _fitting_prompt(self, request: PromptRequest) -> Prompt | None:
        """Return a prompt whose haystack has the tokens that the other parts leave.

        If they leave none, return None.
        """
        if request.guess < 1:
            return None
        positions = positions_around(
            self._positions(request.needles, request.guess), request.chosen
        )
        prompt = self._prompt(request, positions, request.guess)
        room = request.room - self._fixed(request.frame, request.needles)
        return replace(prompt, off_by=request.guess - room)

    def _positions(self, needles: Sequence[Needle], stop: int) -> list[int]:
        """Return where needles go by depth, among the haystack's first `stop` tokens."""
        if self._chained is not None:
            needle_tokens = [len(self._span(needle.text)) for needle in needles]
            return chained_positions(
                needles[0].depth, needle_tokens, haystack_tokens=stop, step=self._chained
            )
        return [int(stop * needle.depth) for needle in needles]


class PeriodBuilder(TokenBuilder):
    """Build prompts as needlehaystack does. options: those of `TokenBuilder`."""

    def __init__(self, haystack: Haystack, tokenizer: Tokenizer, **options: Any) -> None:
        super().__init__(haystack, tokenizer, **options)
        self._stops = full_stops(tokenizer)

    def _positions(self, needles: Sequence[Needle], stop: int) -> list[int]:
        """Return where needles go: behind the last bare '.' before their depth, or at the end."""
        positions = super()._positions(needles, stop)
        if self._chained is not None:
            return positions
        ids = self.haystack.text.ids
        return [
            behind_full_stop(ids, position, stops=self._stops) if position < stop else stop
            for position in positions
        ]
