"""Work units: pieces of a walk's lanes, small enough that what a lost worker leaves is soon done by others.

A worker goes through a lane, unit by unit, since each begins with what the one before left in its cache. One
that is done takes a lane that nobody has begun, or what somebody left, or the later half of what another has
before it. Units are cut where little is shared: whoever takes one out of turn computes its beginning anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from needlemap.plan.lanes import make_lanes

PER_LANE = 8
_SLACK = 1.25  # how much larger than an even share a unit may be, so that it can be cut between two chains
# A row of free units that its worker will reach is shared from this length on. With two or one, computing the
# beginning anew took longer than waiting in the simulation of benchmarks/scaling.py.
_WORTH_SHARING = 3


@dataclass(frozen=True, slots=True)
class Unit:
    """Prompts `start` up to `stop` of a walk. tokens: what they compute from an empty cache."""

    start: int
    stop: int
    tokens: int
    lane: int


@dataclass(frozen=True, slots=True)
class Row:
    """Free units of one lane, one behind the other. attended: whether a worker is on its way to them."""

    units: tuple[int, ...]
    attended: bool


def make_units(sizes: Sequence[int], shared: Sequence[int], workers: int) -> tuple[Unit, ...]:
    """A walk as lanes for workers that take one unit at a time, each lane as up to PER_LANE units or so.

    sizes: tokens of each prompt in the order of the walk; shared: tokens each has in common with the one
    before.
    """
    lanes = make_lanes(sizes, shared, workers).bounds
    return tuple(
        Unit(start + first, stop + first, tokens, lane)
        for lane, (first, last) in enumerate(lanes)
        for start, stop, tokens in _pieces(sizes[first:last], shared[first:last])
    )


def rows(units: Sequence[Unit], free: Collection[int], held: Collection[int]) -> list[Row]:
    """The free units of each lane in rows. held: units that workers have."""
    found: list[list[int]] = []
    for unit in sorted(free):
        if found and found[-1][-1] == unit - 1 and units[unit].lane == units[unit - 1].lane:
            found[-1].append(unit)
        else:
            found.append([unit])
    return [Row(tuple(row), _attended(units, row[0], held)) for row in found]


def worth_taking(rows: Sequence[Row]) -> list[Row]:
    """Those that a worker takes from; of the others somebody is sooner done."""
    return [row for row in rows if not row.attended or len(row.units) >= _WORTH_SHARING]


def next_unit(
    units: Sequence[Unit], free: Collection[int], held: Collection[int], last: int | None, luck: int = 0
) -> int | None:
    """Which unit a worker takes behind its last one; None when there is nothing worth taking.

    luck: any number, so that workers who begin at once do not all want the same one.
    """
    if last is not None and last + 1 in free and units[last + 1].lane == units[last].lane:
        return last + 1
    there = worth_taking(rows(units, free, held))
    if alone := [row for row in there if not row.attended]:
        return alone[luck % len(alone)].units[0]
    if not there:
        return None
    longest = max(there, key=lambda row: len(row.units)).units
    return longest[len(longest) // 2]


def _attended(units: Sequence[Unit], first: int, held: Collection[int]) -> bool:
    return first - 1 in held and units[first - 1].lane == units[first].lane


def _pieces(sizes: Sequence[int], shared: Sequence[int]) -> list[tuple[int, int, int]]:
    """A lane's units: of all cuts into units of no more than _SLACK times the least possible largest, the one
    that computes fewest tokens again, and of these the one with fewest units."""
    common = [0, *shared[1:]]  # what the first prompt shares is with another lane
    starts = _starts(sizes, common, int(_SLACK * max(make_lanes(sizes, common, PER_LANE).tokens)))
    bounds = zip(starts, [*starts[1:], len(sizes)], strict=True)
    return [(start, stop, _computed(sizes, common, start, stop)) for start, stop in bounds]


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
    ] = []  # per prompt, the cheapest way to end a unit behind it, and its start
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
