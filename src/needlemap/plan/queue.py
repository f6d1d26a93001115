"""Handing out a walk to concurrent requests: each keeps to its lane, and helps another when that is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from needlemap.plan.lanes import Lanes

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
