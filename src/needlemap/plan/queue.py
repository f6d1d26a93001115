"""Handing out a walk to concurrent requests: each keeps to its lane, and helps another when that is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from needlemap.plan.lanes import Lanes

T = TypeVar("T")


class LaneQueue(Generic[T]):
    """The items of a walk, lane by lane.

    A lane that is done takes over the later half of the longest one left: both halves stay contiguous, and no
    worker waits.
    """

    def __init__(self, items: Sequence[T], lanes: Lanes) -> None:
        self._items = items
        self._left = [list(bounds) for bounds in lanes.bounds]

    def __len__(self) -> int:
        return len(self._left)

    def next(self, lane: int) -> T | None:
        """The next item for a lane; None when nothing is left for anybody."""
        own = self._left[lane]
        if own[0] == own[1]:
            longest = max(self._left, key=lambda bounds: bounds[1] - bounds[0])
            middle = (longest[0] + longest[1]) // 2
            own[0], own[1], longest[1] = middle, longest[1], middle
            if own[0] == own[1]:
                return None
        own[0] += 1
        return self._items[own[0] - 1]
