"""The plan of a run: the prefix tree of its prompts, the walk that computes each token once, and
its lanes.

Prompts are compared by their spans, so that two prompts of 100,000 tokens cost a few microseconds,
and by token ids where the spans part. Sorted by token ids, prompts are a depth-first walk of their
tree: a single cache, cropped and extended, then computes as many tokens as the tree has nodes, the
least there is.

Some caches must be told where prompts part. Recurrent models keep a copy of their state there
(`with_partings`). Providers want breakpoints: a prompt marks the end of what it shares with the one
before
(to be read) and with the one behind (to be written for it). They keep nothing shorter than a least
length.

A run is in that order where its mode shares prefixes. Where a limit may cut it short, it is walked
length by length, so that what was asked is a map. A walk is cut into lanes, contiguous pieces, one
per concurrent request or replica, so that sharing survives: the first prompt of a lane is computed
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from needlemap.plan.cover import ALONE, WALKED
from needlemap.prompts import Message, Prompt
from needlemap.text.tokens import Span

if TYPE_CHECKING:
    from needlemap.trials import Trial

LEAST_TOKENS = 1024
Side = Callable[[int], int | None] | None
T = TypeVar("T")


def parting(left: Prompt, right: Prompt) -> tuple[int, int]:
    """Tokens two prompts begin with in common, and -1, 0 or 1 as left sorts before, as or behind
    right."""
    ours, theirs = _Reader(left), _Reader(right)
    shared = 0
    while True:
        one, other = ours.rest(), theirs.rest()
        if one is None or other is None:
            return shared, (one is not None) - (other is not None)
        size = min(len(one), len(other))
        if not (one.text is other.text and one.start == other.start):
            differing = np.flatnonzero(one.ids[:size] != other.ids[:size])
            if len(differing):
                place = int(differing[0])
                return shared + place, 1 if one.ids[place] > other.ids[place] else -1
        shared += size
        ours.skip(size)
        theirs.skip(size)


def shared_tokens(left: Prompt, right: Prompt) -> int:
    """Tokens that two prompts begin with in common."""
    return parting(left, right)[0]


def walk_order(prompts: Sequence[Prompt]) -> list[int]:
    """The places of prompts in a depth-first walk of their tree; equal prompts keep their order."""
    return [place for place, _ in sorted(enumerate(prompts), key=cmp_to_key(_compared))]


def reused(prompts: Iterable[Prompt]) -> list[int]:
    """For each prompt, asked in this order, the tokens it shares with the one before; 0 for the
    first."""
    listed = list(prompts)
    return [0, *(shared_tokens(left, right) for left, right in pairwise(listed))][: len(listed)]


def _compared(left: tuple[int, Prompt], right: tuple[int, Prompt]) -> int:
    return parting(left[1], right[1])[1]


class _Reader:
    """Reads a prompt's spans in order, a piece at a time."""

    def __init__(self, prompt: Prompt) -> None:
        self._spans = [span for span in prompt.spans if len(span)]
        self._place = self._offset = 0

    def rest(self) -> Span | None:
        """What is left of the present span; None at the end."""
        if self._place == len(self._spans):
            return None
        span = self._spans[self._place]
        return Span(span.text, span.start + self._offset, span.stop) if self._offset else span

    def skip(self, size: int) -> None:
        """Go on by `size` tokens of the present span."""
        self._offset += size
        if self._offset == len(self._spans[self._place]):
            self._place, self._offset = self._place + 1, 0


def with_breakpoints(walk: Sequence[Prompt], least_tokens: int = LEAST_TOKENS) -> list[Prompt]:
    """The prompts of a walk, with the breakpoints that let each read what its neighbours wrote."""
    shared = [*reused(walk), 0]
    return [
        broken(
            prompt,
            sorted(
                {point for point in (shared[place], shared[place + 1]) if point >= least_tokens}
            ),
        )
        for place, prompt in enumerate(walk)
    ]


def with_partings(walk: Sequence[Prompt]) -> list[Prompt]:
    """The prompts of a walk, with the lengths at which those asked later part from them."""
    places = partings(reused(walk))
    return [replace(prompt, partings=found) for prompt, found in zip(walk, places, strict=True)]


def partings(shared: Sequence[int]) -> list[tuple[int, ...]]:
    """For prompts that share so many tokens with the one before: the lengths, ascending, at which
    later ones part from each. What any later one shares is the least that was shared on the way to
    it.

    >>> partings([0, 5, 3, 4, 0])
    [(3, 5), (3,), (4,), (), ()]
    """
    found: list[tuple[int, ...]] = [()]
    for tokens in reversed(shared[1:]):
        nearer = tuple(place for place in found[-1] if place < tokens)
        found.append((*nearer, tokens) if tokens else ())
    return found[::-1][: len(shared)]


def broken(prompt: Prompt, points: Sequence[int]) -> Prompt:
    """A prompt whose context message is split at these token counts from the prompt's start.

    Points outside that message fall away. The text stays as it is.
    """
    number, first, last = prompt.context
    start = sum(len(span) for message in prompt.messages[:number] for span in message.spans)
    spans: list[Span] = []
    breaks: list[int] = []
    edges: list[int] = []  # how many pieces stand before each of the message's own spans
    for span in prompt.messages[number].spans:
        edges.append(len(spans))
        for piece in _split(
            span, [point - start for point in points if start < point < start + len(span)]
        ):
            start += len(piece)
            if start in points:
                breaks.append(len(spans))
            spans.append(piece)
    edges.append(len(spans))
    message = Message(prompt.messages[number].role, tuple(spans))
    return replace(
        prompt,
        messages=(*prompt.messages[:number], message, *prompt.messages[number + 1 :]),
        context=(number, edges[first], edges[last]),
        breakpoints=tuple(breaks),
    )


def _split(span: Span, points: Sequence[int]) -> list[Span]:
    """A span in pieces that end at these of its tokens, and at its end."""
    stops = sorted({*points, len(span)})
    starts = [0, *stops[:-1]]
    return [
        Span(span.text, span.start + start, span.start + stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


def ordered(trials: Iterable[Trial], mode: str, side: Side = None) -> list[Trial]:
    """Trials in the order they are asked. Modes 'single' and 'cold' keep the order of the grid.
    Those that serve each other (see `Traits.side`) are walked together."""
    listed = list(trials)
    if mode not in WALKED:
        return listed
    walk = [listed[place] for place in walk_order([trial.prompt for trial in listed])]
    return (
        walk
        if side is None
        else sorted(walk, key=lambda trial: side(trial.prompt.asked_tokens) or 0)
    )


def by_length(walk: Iterable[Trial]) -> list[list[Trial]]:
    """Ordered trials length by length, the shortest first, each at all its depths, repeat after
    repeat."""
    found: dict[int, list[Trial]] = {}
    for trial in sorted(walk, key=lambda trial: (trial.cell.length_tokens, trial.repeat)):
        found.setdefault(trial.cell.length_tokens, []).append(trial)
    return list(found.values())


def shared(walk: Sequence[Trial], mode: str, side: Side = None) -> list[int]:
    """For each of the ordered trials the tokens its prompt shares with the one before; 0 where none
    are, or where the model's cache does not serve it (see `Traits.side`)."""
    if mode == ALONE:
        return [0] * len(walk)
    common = in_common(walk)
    if side is None:
        return common
    sides = [side(trial.prompt.asked_tokens) for trial in walk]
    serves = [False, *(left == right is not None for left, right in pairwise(sides))]
    return [tokens * served for tokens, served in zip(common, serves, strict=False)]


def in_common(walk: Sequence[Trial]) -> list[int]:
    """For each of the ordered trials the tokens its prompt begins with in common with the one
    before.

    Never more than it has: spans apart may count a token more than joined.
    """
    prompts = [trial.prompt for trial in walk]
    return [
        min(tokens, prompt.asked_tokens)
        for tokens, prompt in zip(reused(prompts), prompts, strict=True)
    ]


def laned(
    walk: Sequence[Trial], mode: str, count: int, side: Side = None
) -> tuple[list[Trial], Lanes]:
    """Ordered trials that know what they share with the one before them in their lane, and the
    lanes: at most `count`; where nothing is shared, of about equally many tokens."""
    common = shared(walk, mode, side)
    lanes = make_lanes([trial.prompt.asked_tokens for trial in walk], common, count)
    if mode == ALONE:
        return list(walk), lanes
    for start, _ in lanes.bounds:
        common[start] = 0
    pairs = zip(walk, common, strict=True)
    return [replace(trial, shared_tokens=tokens) for trial, tokens in pairs], lanes


@dataclass(frozen=True, slots=True)
class Lanes:
    """A walk cut into pieces. bounds: (start, stop) of each lane in the walk; tokens: what each
    computes.

    loss: tokens computed more than by one lane alone.
    """

    bounds: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...]
    loss: int

    @property
    def idle(self) -> float:
        """Share of the lanes' time that they wait for the longest one, in [0, 1]."""
        longest = max(self.tokens, default=0)
        return 1 - sum(self.tokens) / (longest * len(self.tokens)) if longest else 0.0


def speed_up(sizes: Sequence[int], shared: Sequence[int], lanes: Lanes) -> float:
    """How many times faster lanes are, side by side, than one cache that walks all prompts."""
    longest = max(lanes.tokens, default=0)
    return (sum(sizes) - sum(shared)) / longest if longest else 1.0


def useful(sizes: Sequence[int], shared: Sequence[int], count: int, share: float) -> int:
    """The most lanes, of up to `count`, that are each worth `share` of a worker that has all to
    itself."""
    low, high = 1, max(1, count)
    if speed_up(sizes, shared, make_lanes(sizes, shared, high)) >= share * high:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if speed_up(sizes, shared, make_lanes(sizes, shared, middle)) >= share * middle:
            low = middle
        else:
            high = middle - 1
    return low


def make_lanes(sizes: Sequence[int], shared: Sequence[int], count: int) -> Lanes:
    """At most `count` lanes with the least possible longest one.

    sizes: tokens of each prompt in the order of the walk; shared: tokens each has in common with
    the one before. Found by bisecting the longest lane's tokens and filling lanes greedily.
    """
    if not sizes:
        return Lanes((), (), 0)
    low, high = max(sizes), sum(size - common for size, common in zip(sizes, shared, strict=True))
    high = max(low, high)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(sizes, shared, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    starts = _filled(sizes, shared, low)
    bounds = tuple(zip(starts, [*starts[1:], len(sizes)], strict=True))
    tokens = tuple(
        sizes[start] + sum(sizes[i] - shared[i] for i in range(start + 1, stop))
        for start, stop in bounds
    )
    return Lanes(bounds, tokens, sum(shared[start] for start in starts))


def _filled(sizes: Sequence[int], shared: Sequence[int], most: int) -> list[int]:
    """Where lanes start when each takes prompts as long as it computes at most `most` tokens."""
    starts, load = [0], sizes[0]
    for place in range(1, len(sizes)):
        load += sizes[place] - shared[place]
        if load > most:
            starts.append(place)
            load = sizes[place]
    return starts


class Halves:
    """How a lane that is done takes over from others where all have one cache: the later half of
    the longest."""

    def left(self, start: int, stop: int) -> int:
        """How much the items from `start` to `stop` still take."""
        return stop - start

    def split(self, start: int, stop: int) -> int | None:
        """The first of these items, which another lane takes from there on; None for no item."""
        return (start + stop) // 2 if stop > start else None


class Costs(Halves):
    """The same where each lane has a cache of its own: only what brings the end nearer, and only
    while all that is computed again stays within a share of what the walk saves."""

    SHARE = 0.01

    def __init__(self, own: Sequence[int], anew: Sequence[int]) -> None:
        """own: tokens that an item takes in the lane that asked the one before it; anew: in another
        one."""
        self._own, self._anew = own, anew
        self._spare = self.SHARE * (sum(anew) - sum(own))

    def left(self, start: int, stop: int) -> int:
        """Tokens that the items still take in their own lane."""
        return sum(self._own[start:stop])

    def split(self, start: int, stop: int) -> int | None:
        """Where the two lanes are done soonest; None where the one that has them is."""
        best, soonest = None, self.left(start, stop)
        kept, given = 0, soonest
        for place in range(start, stop):
            given -= self._own[place]
            done = max(kept, self._anew[place] + given)
            if done < soonest and self._again(place) <= self._spare:
                best, soonest = place, done
            kept += self._own[place]
        self._spare -= 0 if best is None else self._again(best)
        return best

    def _again(self, place: int) -> int:
        """Tokens that another lane computes again."""
        return self._anew[place] - self._own[place]


class LaneQueue(Generic[T]):
    """The items of one or more walks, each cut into lanes; a walk begins when all of the one before
    is out.

    A lane that is done takes over a part of the longest one left: both parts stay contiguous, and
    no worker waits. Where nothing is worth taking (`Costs`), it goes on with the next walk.
    """

    def __init__(
        self,
        *walks: tuple[Sequence[T], Lanes],
        most: int = 0,
        takeover: Callable[[Sequence[T]], Halves] = lambda _: Halves(),
    ) -> None:
        """most: so many take from it at a time, where the walks have lanes for them together.
        takeover: how lanes take over from each other in a walk of these items."""
        counts = [len(lanes.bounds) for _, lanes in walks]
        self._width = max(min(most, sum(counts)), *counts, 0)
        self._walks = [(items, self._padded(lanes), takeover(items)) for items, lanes in walks]

    def __len__(self) -> int:
        return self._width

    def next(self, lane: int) -> T | None:
        """The next item for a lane; None when nothing is left for it."""
        for items, left, takeover in tuple(self._walks):
            place = _place(left, lane, takeover)
            if place is not None:
                return items[place]
            if all(start == stop for start, stop in left):
                self._walks.pop(0)
        return None

    def _padded(self, lanes: Lanes) -> list[list[int]]:
        """What is left of each lane: at first all; nothing of lanes that a short walk does not
        have."""
        bounds = [list(each) for each in lanes.bounds]
        return bounds + [[0, 0] for _ in range(self._width - len(bounds))]


def _place(left: list[list[int]], lane: int, takeover: Halves) -> int | None:
    """The next place for a lane in the walk, taken off what is left of it; None when nothing is."""
    own = left[lane]
    if own[0] == own[1]:
        longest = max(left, key=lambda bounds: takeover.left(*bounds))
        place = takeover.split(*longest)
        if place is None:
            return None
        own[0], own[1], longest[1] = place, longest[1], place
    own[0] += 1
    return own[0] - 1
