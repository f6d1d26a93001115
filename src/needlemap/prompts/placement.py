"""Where needles go and where the haystack ends, so that a prompt has exactly the asked length.

Positions are haystack token indices. `sentence` is needlemap's own way: at a sentence end,
lengths exact by counting seams again; where the end cuts a sentence, "…" stands before a
needle there. `unit` is its way with haystacks of lines or paragraphs: needles between two of
them, and the haystack ends with a whole one, so that a prompt is a little shorter than asked.
The older tools' ways are in `prompts/older_placement.py`.

An item's first needle is the one that the cell's depth is meant for; others may stand before
or behind it.
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
from needlemap.text.tokens import Span, Tokenizer

if TYPE_CHECKING:
    from needlemap.tasks import Needle

_PADS = ("\n", " .", "\n\n", " . .", "\n\n\n", " . . .", "。", "……")
_TRIES = 8
_SEAMS = 64  # tokens that seams may cost beyond the parts' own, at most
_MOST_TRIED = 20_000  # tokens beside the haystack, up to which an error tries for the least length
_LEGAL_ENDS = 8  # cuts before the best one that are tried with each pad
_BROKEN_OFF = "…"  # between a cut sentence and a needle at the haystack's end
_MERGED = 3  # tokens that a further unit may save at its seams


@dataclass(frozen=True, slots=True)
class Frame:
    """A template filled with its question and tokenised: all of a prompt but haystack and
    needles.

    before, after: the spans around the context, in message `context`. outside_tokens: tokens
    of the others.
    """

    messages: tuple[Message, ...]
    context: int
    before: tuple[Span, ...]
    after: tuple[Span, ...]
    outside_tokens: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt to be laid out: what is around its haystack, its needles by depth, the room for
    it in tokens, about how many of these are haystack, and which needle a plan has set at which
    position."""

    frame: Frame
    needles: Sequence[Needle]
    room: int
    guess: int
    chosen: tuple[int, int] | None = None


class PromptBuilder:
    """Builds the prompts of one haystack with one tokenizer; what it remembers are pure
    functions' values.

    counts: whether a length counts the whole prompt, or only the context (haystack and
    needles). reserve_tokens: taken off each length, for the answer; reserved_by: the flag that
    it comes of. units: the haystack's cuts are those of its units. ids: the model is fed token
    ids, so that nothing merges where spans meet, and lengths add up. ends: the haystack is
    asked whole, however much room there is. anchor: haystack tokens that depths are shares of
    in prompts of every length; None: each prompt's own.
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
        self._whole, self._ends = counts == "prompt", ends
        self._reserve, self._reserved_by = reserve_tokens, reserved_by
        self._seams = SpanCounter() if ids else SeamCounter(tokenizer, haystack.text, haystack.cuts)
        self._index = cache(tokenizer.index)
        self._mark = self._span(_BROKEN_OFF)
        self._first = int(np.argmax(haystack.cuts.character > 0))  # where the first character ends
        self._units = haystack.cuts.ends() if units else None
        self._exact_lengths = not units

    @property
    def adds_up(self) -> bool | None:
        """Whether the tokenizer's counts add up at the haystack's safe cuts; None: not tried."""
        return self._seams.windowed if isinstance(self._seams, SeamCounter) else None

    def build(
        self,
        frame: Frame,
        needles: Sequence[Needle],
        length_tokens: int,
        position: int | None = None,
    ) -> Prompt:
        """The prompt of that length. Its needles stand by depth; it lists them in the order
        they came.

        position: haystack tokens before the needle that came first, for plans that choose it;
        else its depth decides. Raises TooShort, or HaystackError when the haystack runs out.
        """
        fixed = self._fixed(frame, needles)
        guess = self.haystack_tokens(frame, needles, length_tokens)
        if guess > len(self.haystack.text):
            raise HaystackError(
                f"Haystack '{self.haystack.name}' has {len(self.haystack.text):,} tokens, a prompt "
                f"of "
                f"{length_tokens:,} needs {length_tokens - self._reserve - fixed:,}."
            )
        order = by_depth(needles)
        chosen = None if position is None or not order else (order.index(0), position)
        hidden = [needles[place] for place in order]
        wanted = Wanted(frame, hidden, length_tokens - self._reserve, guess, chosen)
        prompt = self._fitted(wanted)
        if prompt is None or (self._ends and prompt.haystack_tokens < len(self.haystack.text)):
            least = self._reserve + self._least(wanted, fixed)
            raise TooShort(
                f"Length {length_tokens:,} leaves no room for {'its' if self._ends else 'a'} "
                f"haystack: "
                f"{self._reserve} tokens are reserved, {fixed} are needle and template. Use "
                f"lengths of "
                f"{least} or more, or a smaller {self._reserved_by}."
            )
        return restored(prompt, order)

    def alone(self, frame: Frame, needles: Sequence[Needle]) -> Prompt:
        """The needles in the order of their depths, with the frame around them and no
        haystack."""
        hidden = [needles[place] for place in by_depth(needles)]
        context = self._context(hidden, [0] * len(hidden), 0, "")
        spans = (*frame.before, *context, *frame.after)
        message = Message(frame.messages[frame.context].role, spans)
        around = frame.messages[: frame.context], frame.messages[frame.context + 1 :]
        place = (frame.context, len(frame.before), len(frame.before) + len(context))
        tokens = self._seams.count(spans) + frame.outside_tokens
        return Prompt((*around[0], message, *around[1]), context=place, tokens=tokens)

    def haystack_tokens(self, frame: Frame, needles: Sequence[Needle], length_tokens: int) -> int:
        """About how many haystack tokens the prompt of that length holds: seams may move it by
        one or two."""
        room = length_tokens - self._reserve - self._fixed(frame, needles)
        return min(room, len(self.haystack.text)) if self._ends else room

    def _fixed(self, frame: Frame, needles: Sequence[Needle]) -> int:
        """Tokens of a prompt that are not haystack, as far as they count."""
        fixed = sum(len(self._span(needle.text)) for needle in needles)
        if self._whole:
            fixed += sum(map(len, frame.before + frame.after)) + frame.outside_tokens
        return fixed

    def _fitted(self, wanted: Wanted) -> Prompt | None:
        """The prompt that fills the room; None where none fits."""
        stop = self._anchor or max(0, wanted.guess)
        depths = moved(wanted.needles, wanted.chosen, stop)
        places = zip(depths, wanted.needles, strict=True)
        own = [self._own(depth, stop, needle.exact) for depth, needle in places]
        return self._laid_out(wanted, around(own, wanted.chosen))

    def _laid_out(self, wanted: Wanted, positions: list[int]) -> Prompt | None:
        """The prompt with its needles there that fills the room; None where none fits."""
        if self._units is None:
            return self._exact(wanted, positions)
        return self._in_units(wanted, positions, self._units)

    def _in_units(
        self, wanted: Wanted, positions: list[int], ends: NDArray[np.int64]
    ) -> Prompt | None:
        """The most whole units of haystack, which end there, that fit; None where not even one
        does."""
        best = -1
        positions = [int(self.haystack.cuts.sentence[position]) for position in positions]
        place = max(0, int(np.searchsorted(ends, wanted.guess, side="right")) - 1)
        for _ in range(_TRIES):
            left = self._left(wanted, positions, int(ends[place]))
            if left >= 0:
                best = place
                if place + 1 == len(ends) or ends[place + 1] - ends[place] > left + _MERGED:
                    break
                place += 1
            elif best >= 0 or not place:
                break
            else:
                fitting = int(np.searchsorted(ends, ends[place] + left, side="right")) - 1
                place = max(0, min(place - 1, fitting))
        return self._prompt(wanted, positions, int(ends[best])) if best >= 0 else None

    def _least(self, wanted: Wanted, fixed: int) -> int:
        """A room that would do, the smallest by trying: seams move it off the sum of the
        parts."""
        if self._ends:
            return fixed + len(self.haystack.text) + _SEAMS
        most = fixed + _SEAMS + (0 if self._units is None else int(self._units[0]))
        # Each try counts the whole prompt anew: of a huge one the sum of the parts is near enough.
        least = most if fixed > _MOST_TRIED else max(wanted.room + 1, fixed - _SEAMS)
        for room in range(least, most):
            prompt = self._fitted(Wanted(wanted.frame, wanted.needles, room, room - fixed))
            if prompt is not None and not prompt.off_by:
                return room
        return most

    def _exact(self, wanted: Wanted, positions: list[int]) -> Prompt | None:
        """Move the haystack's end until the count is right; where a character is in the way,
        pad.

        None where even one character of haystack is too much.
        """
        cuts, most = self.haystack.cuts, len(self.haystack.text)
        stop, best = wanted.guess, 0
        for _ in range(_TRIES):
            stop = int(cuts.character[max(self._first, min(stop, most))])
            off = self._left(wanted, positions, stop)
            if off == 0:
                return self._prompt(wanted, positions, stop)
            if off < 0 and stop == self._first:
                return None
            best = max(best, stop) if off > 0 else best
            stop += off
        return self._padded(wanted, positions, best or self._first)

    def _padded(self, wanted: Wanted, positions: list[int], best: int) -> Prompt:
        """A few characters at the haystack's end, where no cut between characters gives the
        exact length."""
        stop = best
        for _ in range(_LEGAL_ENDS):
            for pad in ("", *_PADS):
                if not self._left(wanted, positions, stop, pad):
                    return self._prompt(wanted, positions, stop, pad)
            stop = max(self._first, int(self.haystack.cuts.character[stop - 1]))
        return self._prompt(wanted, positions, best)

    def _own(self, depth: float, stop: int, exact: bool = False) -> int:
        """The position for a depth: the end of a sentence or unit near it; the very end for
        depth 1. exact: the start of a character at that very token."""
        if depth >= 1:
            return len(self.haystack.text)  # clamped to the end, wherever that will be
        wanted = min(int(depth * stop), len(self.haystack.text))
        if self._units is not None:
            return int(self.haystack.cuts.sentence[wanted])
        if exact:
            return int(self.haystack.cuts.character[wanted])
        return self.haystack.cuts.insertion_point(wanted, stop)

    def _left(self, wanted: Wanted, positions: list[int], stop: int, pad: str = "") -> int:
        """Tokens of the room that a prompt leaves; below 0 where it is too long."""
        frame, context = wanted.frame, self._context(wanted.needles, positions, stop, pad)
        if not self._whole:
            return wanted.room - self._seams.count(context)
        return (
            wanted.room
            - frame.outside_tokens
            - self._seams.count((*frame.before, *context, *frame.after))
        )

    def _context(
        self, needles: Sequence[Needle], positions: list[int], stop: int, pad: str
    ) -> list[Span]:
        """Haystack and needles as spans. Needles get a space where two words would touch."""
        text, spans, at = self.haystack.text, [], 0
        for needle, position in zip(needles, positions, strict=True):
            position = min(position, stop)
            if position > at:
                spans.append(Span(text, at, position))
                if position == stop and self._exact_lengths and self.haystack.broken_off(stop):
                    spans.append(self._mark)
            spans.append(self._glued(needle.text, spans, position, stop))
            at = position
        if stop > at:
            spans.append(Span(text, at, stop))
        if pad:
            spans.append(self._span(pad))
        return spans

    def _glued(self, needle: str, before: list[Span], position: int, stop: int) -> Span:
        if not self._exact_lengths:
            return self._span(needle)
        last = bytes(before[-1].data[-4:]).decode("utf-8", "ignore")[-1:] if before else ""
        offset = int(self.haystack.text.offsets[position])
        following = self.haystack.text.data[offset : offset + 4] if position < stop else b""
        first = following.decode("utf-8", "ignore")[:1]
        lead = " " if touch(last, needle[:1]) else ""
        return self._span(lead + needle + (" " if touch(needle[-1:], first) else ""))

    def _span(self, text: str) -> Span:
        """A short text, tokenised once."""
        return self._index(text.encode()).span()

    def _prompt(self, wanted: Wanted, positions: list[int], stop: int, pad: str = "") -> Prompt:
        frame, context = wanted.frame, self._context(wanted.needles, positions, stop, pad)
        spans = (*frame.before, *context, *frame.after)
        message = Message(frame.messages[frame.context].role, spans)
        tokens = self._seams.count(spans) + frame.outside_tokens
        counted = tokens if self._whole else self._seams.count(context)
        settled = tuple(min(position, stop) for position in positions)
        return Prompt(
            (*frame.messages[: frame.context], message, *frame.messages[frame.context + 1 :]),
            context=(frame.context, len(frame.before), len(frame.before) + len(context)),
            needles=placed(
                wanted.needles, settled, stop, context, (self.haystack.text, self._mark.text)
            ),
            tokens=tokens,
            haystack_tokens=stop,
            positions=settled,
            pad=pad,
            off_by=counted - wanted.room if self._exact_lengths else 0,
        )


def by_depth(needles: Sequence[Needle]) -> list[int]:
    """The needles' places in the order of their depths; those of one depth keep their
    order."""
    return sorted(range(len(needles)), key=lambda place: needles[place].depth)


def moved(needles: Sequence[Needle], chosen: tuple[int, int] | None, stop: int) -> list[float]:
    """Depths as meant. If a position, of `stop`, was chosen for one needle, the others move
    along with it. Those that are still stay, and none passes them. needles: by depth.
    """
    depths = [needle.depth for needle in needles]
    if chosen is None or not stop:
        return depths
    shift = chosen[1] / stop - depths[chosen[0]]
    least = accumulate((needle.depth if needle.still else 0.0 for needle in needles), max)
    most = [
        *accumulate((needle.depth if needle.still else 1.0 for needle in reversed(needles)), min)
    ]
    return [
        needle.depth if needle.still else min(high, max(low, needle.depth + shift))
        for needle, low, high in zip(needles, least, reversed(most), strict=True)
    ]


def around(positions: list[int], chosen: tuple[int, int] | None) -> list[int]:
    """Positions of which one was chosen, if it was; the others stay before or behind it.

    >>> around([10, 20, 30], (1, 35))
    [10, 35, 35]
    """
    if chosen is None:
        return positions
    place, position = chosen
    before = [min(position, earlier) for earlier in positions[:place]]
    return [*before, position, *(max(position, later) for later in positions[place + 1 :])]


def touch(left: str, right: str) -> bool:
    """Whether two characters need a space between them: both are no white space and of spaced
    scripts."""
    if not left or not right or left.isspace() or right.isspace():
        return False
    return ord(left) < 0x2E80 and ord(right) < 0x2E80
