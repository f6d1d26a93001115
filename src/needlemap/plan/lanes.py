"""Lanes: contiguous pieces of a walk, what each costs, and the queue that they are asked
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from needlemap.plan.cover import ALONE
from needlemap.plan.tree import Side, shared

if TYPE_CHECKING:
    from needlemap.trials import Trial

T = TypeVar("T")
# Prompt tokens that are computed in about the time that a short answer takes.
ANSWER_TOKENS = 500


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
    """A walk cut into pieces. bounds: (start, stop) of each lane in the walk; tokens: what
    each computes.

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
    """The most lanes, of up to `count`, that are each worth `share` of a worker that has all
    to itself."""
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

    sizes: tokens of each prompt in the order of the walk; shared: tokens each has in common
    with the one before. Found by bisecting the longest lane's tokens and filling lanes
    greedily.
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
    """Where lanes start when each takes prompts as long as it computes at most `most`
    tokens."""
    starts, load = [0], sizes[0]
    for place in range(1, len(sizes)):
        load += sizes[place] - shared[place]
        if load > most:
            starts.append(place)
            load = sizes[place]
    return starts


class Halves:
    """How a lane that is done takes over from others where all have one cache: the later half
    of the longest."""

    def left(self, start: int, stop: int) -> int:
        """How much the items from `start` to `stop` still take."""
        return stop - start

    def split(self, start: int, stop: int) -> int | None:
        """The first of these items, which another lane takes from there on; None for no
        item."""
        return (start + stop) // 2 if stop > start else None


class Costs(Halves):
    """The same where each lane has a cache of its own: only what brings the end nearer, and
    only while all that is computed again stays within a share of what the walk saves."""

    SHARE = 0.01

    def __init__(self, own: Sequence[int], anew: Sequence[int]) -> None:
        """own: tokens that an item takes in the lane that asked the one before it; anew: in
        another one."""
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
    """The items of one or more walks, each cut into lanes; a walk begins when all of the one
    before is out.

    A lane that is done takes over a part of the longest one left: both parts stay contiguous,
    and no worker waits. Where nothing is worth taking (`Costs`), it goes on with the next
    walk.
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
            place = _next_place(left, lane, takeover)
            if place is not None:
                return items[place]
            if all(start == stop for start, stop in left):
                self._walks.pop(0)
        return None

    def _padded(self, lanes: Lanes) -> list[list[int]]:
        """The rest of each lane: at first all; nothing of lanes that a short walk does not
        have."""
        bounds = [list(each) for each in lanes.bounds]
        return bounds + [[0, 0] for _ in range(self._width - len(bounds))]


def _next_place(left: list[list[int]], lane: int, takeover: Halves) -> int | None:
    """The next place for a lane in the walk, taken off what is left of it; None when nothing
    is."""
    own = left[lane]
    if own[0] == own[1]:
        longest = max(left, key=lambda bounds: takeover.left(*bounds))
        place = takeover.split(*longest)
        if place is None:
            return None
        own[0], own[1], longest[1] = place, longest[1], place
    own[0] += 1
    return own[0] - 1
