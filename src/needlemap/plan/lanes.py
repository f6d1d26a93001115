"""Lanes: contiguous pieces of a walk, one per concurrent request or worker, so that sharing survives.

The first prompt of a lane finds nothing in its cache and is computed whole: that is what cutting costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
