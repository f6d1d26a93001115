"""Work units: pieces of a walk, small enough that no worker is waited for, cut where it costs least.

A lane is what one request at a time walks through; a unit is what a worker takes when it has none. The first
prompt of a unit may find nothing in its worker's cache and is computed whole then: that is what cutting costs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from needlemap.plan.lanes import make_lanes

PER_WORKER = 4  # units for each worker: the last one to end is waited for a quarter of its time at most
_SLACK = 1.25  # how much larger than an even share a unit may be, so that it can be cut between two chains


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a walk, prompts `start` up to `stop`. tokens: what it computes from an empty cache."""

    start: int
    stop: int
    tokens: int


def make_units(sizes: Sequence[int], shared: Sequence[int], workers: int) -> tuple[Unit, ...]:
    """A walk as about PER_WORKER units for each of `workers` that take one at a time.

    sizes: tokens of each prompt in the order of the walk; shared: tokens each has in common with the one
    before. Of all cuts into units of no more than _SLACK times the least possible largest, the one that
    computes fewest tokens again, and of these the one with fewest units.
    """
    if not sizes:
        return ()
    most = int(_SLACK * max(make_lanes(sizes, shared, workers * PER_WORKER).tokens))
    starts = _starts(sizes, shared, most)
    bounds = zip(starts, [*starts[1:], len(sizes)], strict=True)
    return tuple(Unit(start, stop, _computed(sizes, shared, start, stop)) for start, stop in bounds)


def next_unit(free: Collection[int], last: int | None) -> int:
    """Which of some free units (at least one) a worker takes: the one behind its last, whose beginning is in
    its cache; else the middle of the longest row of free ones, far from where others go on.

    >>> next_unit({0, 1, 2, 3}, None), next_unit({1, 2, 3}, None), next_unit({3, 5}, 4)
    (0, 2, 5)
    """
    if last is not None and last + 1 in free:
        return last + 1
    rows: list[list[int]] = []
    for unit in sorted(free):
        if rows and rows[-1][-1] == unit - 1:
            rows[-1].append(unit)
        else:
            rows.append([unit])
    row = max(rows, key=len)
    return row[0] if row[0] == 0 else row[len(row) // 2]


def _computed(sizes: Sequence[int], shared: Sequence[int], start: int, stop: int) -> int:
    return sizes[start] + sum(sizes[i] - shared[i] for i in range(start + 1, stop))


def _starts(sizes: Sequence[int], shared: Sequence[int], most: int) -> list[int]:
    """Where units start: a shortest path over the cuts, each costing what is shared there, in O(n log n).

    Prompts [i, j) fit into one unit if total[j] - total[i] + shared[i] <= most, with total[k] the tokens that
    one cache computes for the first k prompts. total only grows, so what once does not fit never will.
    """
    total = 0
    best: list[
        tuple[int, int, int]
    ] = []  # per prompt: the cheapest way to end a unit behind it, and its start
    heap: list[tuple[int, int, int, int]] = []  # tokens computed again, units, start, and how far it reaches
    for place, (size, common) in enumerate(zip(sizes, shared, strict=True)):
        lost, units = best[-1][:2] if best else (0, 0)
        heappush(heap, (lost + common, units + 1, place, total - common + most))
        total += size - common
        while heap[0][3] < total:
            heappop(heap)
        best.append(heap[0][:3])
    return _path(best)


def _path(best: Sequence[tuple[int, int, int]]) -> list[int]:
    starts, stop = [], len(best)
    while stop:
        stop = best[stop - 1][2]
        starts.append(stop)
    return starts[::-1]
