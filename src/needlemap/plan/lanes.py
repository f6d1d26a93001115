"""Lanes: contiguous pieces of a walk, one per concurrent request or replica, so that sharing survives.

The first prompt of a lane finds nothing in its cache and is computed whole: that is what cutting costs.
Each request keeps to its lane, and helps another when that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True)
class Lanes:
    """A walk cut into pieces. bounds: (start, stop) of each lane in the walk; tokens: what each computes.

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
    """The most lanes, of up to `count`, that are each worth `share` of a worker that has all to itself."""
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

    sizes: tokens of each prompt in the order of the walk; shared: tokens each has in common with the one
    before. Found by bisecting the longest lane's tokens and filling lanes greedily.
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
        sizes[start] + sum(sizes[i] - shared[i] for i in range(start + 1, stop)) for start, stop in bounds
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


T = TypeVar("T")


class LaneQueue(Generic[T]):
    """The items of one or more walks, each cut into lanes; a walk begins when all of the one before is out.

    A lane that is done takes over the later half of the longest one left: both halves stay contiguous, and no
    worker waits.
    """

    def __init__(self, *walks: tuple[Sequence[T], Lanes], most: int = 0) -> None:
        """most: so many take from it at a time, where the walks have lanes for them together."""
        counts = [len(lanes.bounds) for _, lanes in walks]
        self._width = max(min(most, sum(counts)), *counts, 0)
        self._walks = [(items, self._padded(lanes)) for items, lanes in reversed(walks)]

    def __len__(self) -> int:
        return self._width

    def next(self, lane: int) -> T | None:
        """The next item for a lane; None when nothing is left for anybody."""
        while self._walks:
            items, left = self._walks[-1]
            place = _place(left, lane)
            if place is not None:
                return items[place]
            self._walks.pop()
        return None

    def _padded(self, lanes: Lanes) -> list[list[int]]:
        """What is left of each lane: at first all; nothing of lanes that a short walk does not have."""
        bounds = [list(each) for each in lanes.bounds]
        return bounds + [[0, 0] for _ in range(self._width - len(bounds))]


def _place(left: list[list[int]], lane: int) -> int | None:
    """The next place for a lane in the walk, taken off what is left of it; None when nothing is."""
    own = left[lane]
    if own[0] == own[1]:
        longest = max(left, key=lambda bounds: bounds[1] - bounds[0])
        middle = (longest[0] + longest[1]) // 2
        own[0], own[1], longest[1] = middle, longest[1], middle
        if own[0] == own[1]:
            return None
    own[0] += 1
    return own[0] - 1
