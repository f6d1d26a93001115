"""Where the page's map has its cells: bands on a vertical axis from 0 (top) to rows, and its labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from needlemap.maps.map import Map
from needlemap.reports.labels import row_labels

T = TypeVar("T")

MAX_LABELS = 20
Bands = dict[tuple[int, float], tuple[float, float]]  # top and bottom of each cell, shares of the height


@dataclass(frozen=True, slots=True)
class Layout:
    """rows: where the vertical axis ends. depth_ticks: labels by place on it. cells: of each cell its `top`
    and `bottom`."""

    rows: float
    depth_ticks: dict[float, str]
    cells: tuple[dict[str, float], ...]


def make_layout(map: Map) -> Layout:
    """A row a depth, as high as another; where every length has depths of its own, the haystack's percent."""
    if map.ragged:
        bands = ragged_bands(map)
        found = [bands[cell.length_tokens, cell.depth] for cell in map.cells]
        ticks = {float(place): f"{place}%" for place in range(0, 101, 10)}
        return Layout(100.0, ticks, tuple({"top": 100 * low, "bottom": 100 * high} for low, high in found))
    labels = row_labels(map, map.depths)
    rank = {depth: float(place) for place, depth in enumerate(map.depths)}
    rows = [rank[cell.depth] for cell in map.cells]
    ticks = {rank[depth] + 0.5: labels[depth] for depth in thinned(map.depths, MAX_LABELS)}
    return Layout(float(len(rank)), ticks, tuple({"top": row, "bottom": row + 1.0} for row in rows))


def ragged_bands(map: Map) -> Bands:
    """Where every length has depths of its own: each cell reaches half way to its neighbours."""
    by_length: dict[int, list[float]] = defaultdict(list)
    for cell in map.cells:
        by_length[cell.length_tokens].append(cell.depth)
    bands: Bands = {}
    for length, found in by_length.items():
        depths = sorted(found)
        middles = [0.0, *((above + below) / 2 for above, below in pairwise(depths)), 1.0]
        bands.update({(length, at): band for at, band in zip(depths, pairwise(middles), strict=True)})
    return bands


def thinned(values: Sequence[T], most: int) -> list[T]:
    """Every k-th value, the first and the last included, so that at most `most` are left.

    >>> thinned([1, 2, 3, 4, 5, 6], 3)
    [1, 3, 6]
    """
    step = max(1, -(-len(values) // most))
    inner = list(values[::step])
    return inner if not values or (len(values) - 1) % step == 0 else [*inner[:-1], values[-1]]
