"""Place needles and the haystack's end, so that a prompt has exactly the wanted length.

Positions are haystack token indices. Needles are inserted at sentence ends, and lengths are exact
because seams are counted again; if the haystack's end cuts a sentence, "…" stands before a needle
there. In haystacks of lines or paragraphs, needles are inserted between two of these, and the
haystack ends with a whole one, so that a prompt is a little shorter than wanted. The older tools'
ways are in the wing `interop`.

An item's first needle is the one for the cell's depth; others may stand before or after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import HaystackError, TooShort
from needlemap.haystacks import Haystack
from needlemap.prompts import Message, Prompt, SeamCounter, SpanCounter, placed, restored
from needlemap.text import needs_space
from needlemap.text.tokens import Span, Tokenizer

if TYPE_CHECKING:
    from needlemap.tasks import Needle

_PADS = ("\n", " .", "\n\n", " . .", "\n\n\n", " . . .", "。", "……")
_TRIES = 8
# Tokens that seams may cost in addition to the parts' own, at most.
_SEAMS = 64
# Tokens outside the haystack up to which an error tries for the least length: each try counts all.
_MOST_TRIED = 20_000
# Cuts before the best one that are tried with each pad.
_LEGAL_ENDS = 8
# Between a cut sentence and a needle at the haystack's end.
_BROKEN_OFF = "…"
# Tokens that a further unit may save at its seams.
_MERGED = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """A template filled with its question and tokenised: all of a prompt but haystack and needles.

    Attributes:
        messages: Its messages.
        context: The number of the message that holds the haystack.
        before, after: The spans around the haystack in that message.
        outside_tokens: Tokens of the other messages.
    """

    messages: tuple[Message, ...]
    context: int
    before: tuple[Span, ...]
    after: tuple[Span, ...]
    outside_tokens: int


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt to be laid out.

    Attributes:
        frame: What is around its haystack.
        needles: Its needles by depth.
        room: The tokens that it may have.
        guess: About how many of these are haystack.
        chosen: The needle that a plan has set, and its position; None if none is set.
    """

    frame: Frame
    needles: Sequence[Needle]
    room: int
    guess: int
    chosen: tuple[int, int] | None = None


class PromptBuilder:
    """Builds the prompts of one haystack with one tokenizer.

    What it remembers are values of pure functions.

    Args:
        units: Whether the haystack's cuts are those of its units.
        counts: 'prompt' if a length counts the whole prompt, or else only haystack and needles.
        reserve_tokens: Taken off each length, for the answer.
        reserved_by: The flag that these come from.
        ids: Whether the model is fed token ids, so that nothing merges where spans meet, and
            lengths add up.
        ends: Whether the haystack is used whole, however much room there is.
        anchor: Haystack tokens that depths are shares of in prompts of every length; None for each
            prompt's own.
    """

    def __init__(
        self,
        haystack: Haystack,
        tokenizer: Tokenizer,
        *,
        units: bool = False,
        counts: str = "prompt",
        reserve_tokens: int = 0,
        reserved_by: str = "--reserve-tokens",
        ids: bool = False,
        ends: bool = False,
        anchor: int | None = None,
    ) -> None:
        self.haystack = haystack
        self._anchor = anchor
        self._whole = counts == "prompt"
        self._ends = ends
        self._reserve = reserve_tokens
        self._reserved_by = reserved_by
        self._seams = SpanCounter() if ids else SeamCounter(tokenizer, haystack.text, haystack.cuts)
        self._index = cache(tokenizer.index)
        self._mark = self._span(_BROKEN_OFF)
        # Where the first character ends.
        self._first = int(np.argmax(haystack.cuts.character > 0))
        self._units = haystack.cuts.ends() if units else None
        self._exact_lengths = not units

    @property
    def adds_up(self) -> bool | None:
        """Return True if the tokenizer's counts add up at the haystack's safe cuts.

        If the model is fed token ids, return None: nothing is counted at seams then.
        """
        if not isinstance(self._seams, SeamCounter):
            return None
        return self._seams.windowed

    def build(
        self,
        frame: Frame,
        needles: Sequence[Needle],
        length_tokens: int,
        position: int | None = None,
    ) -> Prompt:
        """Return the prompt of that length.

        Its needles stand by depth, and it lists them in the order given. position: haystack tokens
        before the first of them, if a plan chooses it; else its depth decides. Raises TooShort, or
        HaystackError if the haystack runs out.
        """
        fixed = self._fixed(frame, needles)
        guess = self.haystack_tokens(frame, needles, length_tokens)
        if guess > len(self.haystack.text):
            raise HaystackError(
                f"Haystack '{self.haystack.name}' has {len(self.haystack.text):,} tokens, a prompt "
                f"of {length_tokens:,} needs {length_tokens - self._reserve - fixed:,}."
            )
        order = by_depth(needles)
        chosen = None
        if position is not None and order:
            chosen = order.index(0), position
        request = PromptRequest(
            frame,
            [needles[index] for index in order],
            room=length_tokens - self._reserve,
            guess=guess,
            chosen=chosen,
        )
        prompt = self._fitting_prompt(request)
        if prompt is None or (self._ends and prompt.haystack_tokens < len(self.haystack.text)):
            least_length = self._reserve + self._least_room(request, fixed)
            raise TooShort(
                f"Length {length_tokens:,} leaves no room for {'its' if self._ends else 'a'} "
                f"haystack: {self._reserve} tokens are reserved, {fixed} are needle and template. "
                f"Use lengths of {least_length} or more, or a smaller {self._reserved_by}."
            )
        return restored(prompt, order)

    def prompt_without_haystack(self, frame: Frame, needles: Sequence[Needle]) -> Prompt:
        """Return the needles by depth, with the frame around them and no haystack."""
        ordered = [needles[index] for index in by_depth(needles)]
        context = self._context(ordered, [0] * len(ordered), stop=0, pad="")
        spans = (*frame.before, *context, *frame.after)
        return Prompt(
            _with_context(frame, spans),
            context=_place_of(frame, context),
            tokens=self._seams.count(spans) + frame.outside_tokens,
        )

    def haystack_tokens(self, frame: Frame, needles: Sequence[Needle], length_tokens: int) -> int:
        """Return about how many haystack tokens the prompt of that length holds.

        Tokens that merge at seams may change the number by one or two.
        """
        room = length_tokens - self._reserve - self._fixed(frame, needles)
        return min(room, len(self.haystack.text)) if self._ends else room

    def _fixed(self, frame: Frame, needles: Sequence[Needle]) -> int:
        """Return the tokens of a prompt that are not haystack, as far as they count."""
        fixed = sum(len(self._span(needle.text)) for needle in needles)
        if self._whole:
            fixed += sum(map(len, frame.before + frame.after)) + frame.outside_tokens
        return fixed

    def _fitting_prompt(self, request: PromptRequest) -> Prompt | None:
        """Return the prompt that fills the room, or None if none fits."""
        stop = self._anchor or max(0, request.guess)
        depths = moved_depths(request.needles, request.chosen, stop)
        positions = [
            self._position(depth, stop, exact=needle.exact)
            for depth, needle in zip(depths, request.needles, strict=True)
        ]
        return self._prompt_with_needles(request, positions_around(positions, request.chosen))

    def _prompt_with_needles(self, request: PromptRequest, positions: list[int]) -> Prompt | None:
        """Return the prompt with its needles there that fills the room, or None if none fits."""
        if self._units is None:
            return self._exact_prompt(request, positions)
        return self._prompt_of_units(request, positions, self._units)

    def _prompt_of_units(
        self, request: PromptRequest, positions: list[int], ends: NDArray[np.int64]
    ) -> Prompt | None:
        """Return the prompt with the most whole units of haystack that fit, or None if none fits.

        ends: where each unit ends.
        """
        positions = [int(self.haystack.cuts.sentence[position]) for position in positions]
        best_index = None
        index = max(0, int(np.searchsorted(ends, request.guess, side="right")) - 1)
        for _ in range(_TRIES):
            spare = self._spare_tokens(request, positions, int(ends[index]))
            if spare >= 0:
                best_index = index
                if index + 1 == len(ends) or ends[index + 1] - ends[index] > spare + _MERGED:
                    break
                index += 1
            elif best_index is not None or index == 0:
                break
            else:
                fitting_index = int(np.searchsorted(ends, ends[index] + spare, side="right")) - 1
                index = max(0, min(index - 1, fitting_index))

        if best_index is None:
            return None
        return self._prompt(request, positions, int(ends[best_index]))

    def _least_room(self, request: PromptRequest, fixed: int) -> int:
        """Return the smallest room that is enough for a prompt.

        It is found by trying, because seams move it off the sum of the parts.
        """
        if self._ends:
            return fixed + len(self.haystack.text) + _SEAMS
        enough = fixed + _SEAMS + (0 if self._units is None else int(self._units[0]))
        # Each try counts the whole prompt anew: of a huge one the sum of the parts is near enough.
        if fixed > _MOST_TRIED:
            return enough
        for room in range(max(request.room + 1, fixed - _SEAMS), enough):
            tried_request = PromptRequest(request.frame, request.needles, room, room - fixed)
            prompt = self._fitting_prompt(tried_request)
            if prompt is not None and not prompt.off_by:
                return room
        return enough

    def _exact_prompt(self, request: PromptRequest, positions: list[int]) -> Prompt | None:
        """Return the prompt whose haystack ends so that the count is right.

        If no cut between two characters gives that count, the prompt is padded. If even one
        character of haystack is too much, return None.
        """
        cuts, haystack_tokens = self.haystack.cuts, len(self.haystack.text)
        stop = request.guess
        best_stop = 0
        for _ in range(_TRIES):
            stop = int(cuts.character[max(self._first, min(stop, haystack_tokens))])
            spare = self._spare_tokens(request, positions, stop)
            if spare == 0:
                return self._prompt(request, positions, stop)
            if spare < 0 and stop == self._first:
                return None
            if spare > 0:
                best_stop = max(best_stop, stop)
            stop += spare
        return self._padded_prompt(request, positions, best_stop or self._first)

    def _padded_prompt(
        self, request: PromptRequest, positions: list[int], best_stop: int
    ) -> Prompt:
        """Return the prompt with a few characters at the haystack's end, if they make it exact.

        If no pad does, return the prompt with the haystack's end at `best_stop`.
        """
        stop = best_stop
        for _ in range(_LEGAL_ENDS):
            for pad in ("", *_PADS):
                if not self._spare_tokens(request, positions, stop, pad):
                    return self._prompt(request, positions, stop, pad)
            stop = max(self._first, int(self.haystack.cuts.character[stop - 1]))
        return self._prompt(request, positions, best_stop)

    def _position(self, depth: float, stop: int, *, exact: bool) -> int:
        """Return the position for a depth: the end of a sentence or unit near it.

        exact: return the start of the character at that very token.
        """
        if depth >= 1:
            # `_context` clamps it to the haystack's end, which is not known yet.
            return len(self.haystack.text)
        token = min(int(depth * stop), len(self.haystack.text))
        if self._units is not None:
            return int(self.haystack.cuts.sentence[token])
        if exact:
            return int(self.haystack.cuts.character[token])
        return self.haystack.cuts.insertion_point(token, stop)

    def _spare_tokens(
        self, request: PromptRequest, positions: list[int], stop: int, pad: str = ""
    ) -> int:
        """Return how many tokens of its room a prompt leaves; below 0 if it is too long."""
        frame = request.frame
        context = self._context(request.needles, positions, stop, pad)
        if not self._whole:
            return request.room - self._seams.count(context)
        tokens = self._seams.count((*frame.before, *context, *frame.after))
        return request.room - frame.outside_tokens - tokens

    def _context(
        self, needles: Sequence[Needle], positions: list[int], stop: int, pad: str
    ) -> list[Span]:
        """Return haystack and needles as spans. Needles get a space if two words would touch."""
        text = self.haystack.text
        spans = list[Span]()
        start = 0
        for needle, position in zip(needles, positions, strict=True):
            position = min(position, stop)
            if position > start:
                spans.append(Span(text, start, position))
                if position == stop and self._exact_lengths and self.haystack.broken_off(stop):
                    spans.append(self._mark)
            spans.append(self._needle_span(needle.text, spans, position, stop))
            start = position
        if stop > start:
            spans.append(Span(text, start, stop))
        if pad:
            spans.append(self._span(pad))
        return spans

    def _needle_span(self, needle: str, before: list[Span], position: int, stop: int) -> Span:
        """Return a needle, with a space on either side if it would touch a word there."""
        if not self._exact_lengths:
            return self._span(needle)
        # A character has at most four bytes.
        last = bytes(before[-1].data[-4:]).decode("utf-8", "ignore") if before else ""
        offset = int(self.haystack.text.offsets[position])
        following = self.haystack.text.data[offset : offset + 4] if position < stop else b""
        first = following.decode("utf-8", "ignore")
        text = needle
        if needs_space(last, needle):
            text = f" {text}"
        if needs_space(needle, first):
            text = f"{text} "
        return self._span(text)

    def _span(self, text: str) -> Span:
        """Return a short text, tokenised once."""
        return self._index(text.encode()).span()

    def _prompt(
        self, request: PromptRequest, positions: list[int], stop: int, pad: str = ""
    ) -> Prompt:
        """Return the prompt whose haystack ends there."""
        frame = request.frame
        context = self._context(request.needles, positions, stop, pad)
        spans = (*frame.before, *context, *frame.after)
        tokens = self._seams.count(spans) + frame.outside_tokens
        counted = tokens if self._whole else self._seams.count(context)
        settled = tuple(min(position, stop) for position in positions)
        return Prompt(
            _with_context(frame, spans),
            context=_place_of(frame, context),
            needles=placed(
                request.needles, settled, stop, context, (self.haystack.text, self._mark.text)
            ),
            tokens=tokens,
            haystack_tokens=stop,
            positions=settled,
            pad=pad,
            off_by=counted - request.room if self._exact_lengths else 0,
        )


def _with_context(frame: Frame, spans: tuple[Span, ...]) -> tuple[Message, ...]:
    """Return a frame's messages, of which the one with the haystack has these spans."""
    messages = list(frame.messages)
    messages[frame.context] = Message(messages[frame.context].role, spans)
    return tuple(messages)


def _place_of(frame: Frame, context: Sequence[Span]) -> tuple[int, int, int]:
    """Return the message that holds haystack and needles, and their first and last span there."""
    first = len(frame.before)
    return frame.context, first, first + len(context)


def by_depth(needles: Sequence[Needle]) -> list[int]:
    """Return the needles' indices by depth; those of one depth keep their order."""
    return sorted(range(len(needles)), key=lambda index: needles[index].depth)


def moved_depths(
    needles: Sequence[Needle], chosen: tuple[int, int] | None, stop: int
) -> list[float]:
    """Return the depths of needles, which are given by depth, after a plan moved one of them.

    chosen: the index and the position, of `stop`, of that needle; None if no needle was moved. The
    others move as far as it does. Needles that are `still` stay, and none passes them.
    """
    depths = [needle.depth for needle in needles]
    if chosen is None or not stop:
        return depths
    index, position = chosen
    shift = position / stop - depths[index]
    # Between the still needles before and after it.
    lowest = list(accumulate((row.depth if row.still else 0.0 for row in needles), max))
    highest = list(accumulate((row.depth if row.still else 1.0 for row in reversed(needles)), min))
    highest.reverse()
    return [
        needle.depth if needle.still else min(high, max(low, needle.depth + shift))
        for needle, low, high in zip(needles, lowest, highest, strict=True)
    ]


def positions_around(positions: list[int], chosen: tuple[int, int] | None) -> list[int]:
    """Return positions, in which a chosen one replaces its own and none of the others passes it.

    >>> positions_around([10, 20, 30], (1, 35))
    [10, 35, 35]
    """
    if chosen is None:
        return positions
    index, chosen_position = chosen
    before = [min(chosen_position, position) for position in positions[:index]]
    after = [max(chosen_position, position) for position in positions[index + 1 :]]
    return [*before, chosen_position, *after]
