"""A cluster on paper: how long workers take over a walk, each with one cache.

What is left out: loading the model, writing answers (which share out evenly), and the scheduler's queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from needlemap.plan.cost import Shape, prefill_flops
from needlemap.plan.lanes import make_lanes
from needlemap.plan.units import make_units, next_unit

_WHOLE = 1e9  # what the largest cost is scaled to, since lanes are cut by whole numbers


@dataclass(frozen=True, slots=True)
class Cost:
    """What computing tokens takes: of `token` for each, and of `pair` for each token and token before it."""

    token: float
    pair: float = 0.0

    @classmethod
    def of_shape(cls, shape: Shape) -> Cost:
        """Floating-point operations of a decoder's prefill."""
        one, two = prefill_flops(shape, [(0, 1)]), prefill_flops(shape, [(0, 2)])
        pair = two - 2 * one  # two tokens make three pairs, twice one token two
        return cls(one - pair, pair)

    def first(self, tokens: int) -> float:
        """Of a prompt's first tokens, from nothing. What start..stop costs is first(stop) - first(start)."""
        return self.token * tokens + self.pair * tokens * (tokens + 1) / 2


@dataclass(frozen=True, slots=True)
class Walk:
    """Prompts in the order of a plan, by what they cost: `whole` from nothing, `common` the part that each
    shares with the one before. sizes, shared: the same in tokens."""

    sizes: tuple[int, ...]
    shared: tuple[int, ...]
    whole: tuple[float, ...]
    common: tuple[float, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], shared: Sequence[int], cost: Cost) -> Walk:
        """A walk of prompts of these many tokens."""
        whole, common = map(cost.first, sizes), map(cost.first, shared)
        return cls(tuple(sizes), tuple(shared), tuple(whole), tuple(common))

    @property
    def alone(self) -> float:
        """What one worker takes."""
        return sum(self.whole) - sum(self.common)

    def piece(self, start: int, stop: int, held: float = 0.0) -> float:
        """What prompts start..stop take, when `held` of the first is in the cache."""
        rest = (self.whole[place] - self.common[place] for place in range(start + 1, stop))
        return self.whole[start] - held + sum(rest)

    def held(self, last: int, start: int) -> float:
        """What a cache that holds prompt `last` has of prompt `start`: the least of all that lies between."""
        low, high = sorted((last, start))
        return min(self.common[low + 1 : high + 1])

    def most(self, workers: int) -> float:
        """The efficiency that no way of sharing out whole prompts exceeds: the longest is one worker's."""
        return self.alone / workers / max(self.alone / workers, *self.whole)


def lanes_take(walk: Walk, workers: int) -> float:
    """As `needlemap plan --workers` cuts: one contiguous lane each, the longest as short as can be."""
    lanes = make_lanes(walk.sizes, walk.shared, workers)
    return max(walk.piece(start, stop) for start, stop in lanes.bounds)


def costed_lanes_take(walk: Walk, workers: int) -> float:
    """Lanes that are cut by cost instead of by tokens, for those who know the model's shape."""
    scale = _WHOLE / max(walk.whole)
    whole, common = ([int(part * scale) for part in parts] for parts in (walk.whole, walk.common))
    lanes = make_lanes(whole, common, workers)
    return max(walk.piece(start, stop) for start, stop in lanes.bounds)


def units_take(walk: Walk, workers: int) -> float:
    """As workers of one run take them: units, the next one to whoever is free."""
    units = make_units(walk.sizes, walk.shared, workers)
    free, last, ended = set(range(len(units))), dict.fromkeys(range(workers), None), 0.0
    clock = [(0.0, worker) for worker in range(workers)]
    heapify(clock)
    while clock:
        now, worker = heappop(clock)
        before = last.pop(worker)
        taken = next_unit(units, free, set(last.values()) - {None}, before)
        if taken is None:
            ended = max(ended, now)
            continue
        free.remove(taken)
        unit = units[taken]
        held = walk.held(units[before].stop - 1, unit.start) if before is not None else 0.0
        last[worker] = taken
        heappush(clock, (now + walk.piece(unit.start, unit.stop, held), worker))
    return ended


def shared_cache_takes(walk: Walk, workers: int) -> float:
    """Lanes, were what other workers computed to be had for nothing."""
    rest = [size - common for size, common in zip(walk.whole, walk.common, strict=True)]
    scale = _WHOLE / max(rest)
    lanes = make_lanes([int(part * scale) for part in rest], [0] * len(rest), workers)
    return max(sum(rest[start:stop]) for start, stop in lanes.bounds)
