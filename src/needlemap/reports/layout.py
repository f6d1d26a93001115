"""Where each cell of a map is drawn, and the rows of data that a chart is made of. Pure, no drawing library.

A full grid has one row of equal height per depth. Where every length has depths of its own (lattice mode), a
cell reaches half way to its neighbours at the same length, and the vertical axis is depth itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from needlemap.grid import percent
from needlemap.maps.map import CellScore, Map
from needlemap.plan.bins import bin_edges
from needlemap.reports.labels import depth_labels, interval_label, length_labels, missing_label, score_label
from needlemap.reports.margins import Margin, length_margins

T = TypeVar("T")

MAX_LENGTH_LABELS = 36
MAX_DEPTH_LABELS = 36
RAGGED_BELOW = 0.5  # share of lengths x depths that are cells


@dataclass(frozen=True, slots=True)
class Layout:
    """width, height: pixels of the map itself. rows: the vertical axis runs from 0 (top) to rows.

    length_ticks: labels by length in tokens. depth_ticks: labels by place on the vertical axis. realised:
    whether cells say where in their bin the needle really was (mode bins, which chooses it).
    """

    width: int
    height: int
    rows: float
    length_ticks: dict[int, str]
    depth_ticks: dict[float, str]
    cells: tuple[dict[str, Any], ...]
    means: tuple[dict[str, Any], ...]
    realised: bool


def make_layout(map: Map) -> Layout:
    """The layout of a map: sizes, ticks, one data row per cell and per length."""
    bands, rows, ticks = _ragged_bands(map) if is_ragged(map) else _even_bands(map)
    labels = length_labels(map.lengths)
    bins = dict(zip(map.depths, bin_edges(map.depths), strict=True)) if map.mode == "bins" else {}
    return Layout(
        _width(max(1, len(map.lengths))),
        _height(max(1, len(ticks))),
        rows,
        {length: labels[length] for length in thinned(map.lengths, MAX_LENGTH_LABELS)},
        {place: ticks[place] for place in thinned(list(ticks), MAX_DEPTH_LABELS)},
        tuple(_cell_row(cell, band, bins) for cell, band in zip(map.cells, bands, strict=True)),
        tuple(_mean_row(margin) for margin in length_margins(map)),
        bool(bins),
    )


def thinned(values: Sequence[T], most: int) -> list[T]:
    """Every k-th value, the first included, so that at most `most` are left.

    >>> thinned([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    step = max(1, -(-len(values) // most))
    return list(values[::step])


def is_ragged(map: Map) -> bool:
    """Whether lengths have depths of their own, so that lengths x depths is mostly holes."""
    return len(map.cells) < RAGGED_BELOW * len(map.lengths) * len(map.depths)


def _even_bands(map: Map) -> tuple[list[tuple[float, float]], float, dict[float, str]]:
    labels = depth_labels(map.depths)
    rank = {depth: place for place, depth in enumerate(map.depths)}
    bands = [(float(rank[cell.depth]), rank[cell.depth] + 1.0) for cell in map.cells]
    return bands, float(len(rank)), {rank[depth] + 0.5: label for depth, label in labels.items()}


def _ragged_bands(map: Map) -> tuple[list[tuple[float, float]], float, dict[float, str]]:
    edges: dict[tuple[int, float], tuple[float, float]] = {}
    for length in map.lengths:
        depths = sorted(cell.depth for cell in map.cells if cell.length_tokens == length)
        middles = [0.0, *((above + below) * 50 for above, below in pairwise(depths)), 100.0]
        edges.update({(length, depth): band for depth, band in zip(depths, pairwise(middles), strict=True)})
    ticks = {float(place): f"{place}%" for place in range(0, 101, 10)}
    return [edges[cell.length_tokens, cell.depth] for cell in map.cells], 100.0, ticks


def _width(columns: int) -> int:
    """Whole pixels per column, or seams show between them."""
    wished = min(max(18 * columns, 300 if columns < 3 else 480), 720)
    return columns * max(2, round(wished / columns))


def _height(rows: int) -> int:
    wished = min(max(12 * rows, 120 if rows < 3 else 240), 420)
    return rows * max(2, round(wished / rows))


def _cell_row(
    cell: CellScore, band: tuple[float, float], bins: Mapping[float, tuple[float, float]]
) -> dict[str, Any]:
    return {
        **_realised(cell, band, bins),
        "length": cell.length_tokens,
        "top": band[0],
        "bottom": band[1],
        "score": None if cell.score is None else round(cell.score * 100, 4),
        "state": _state(cell),
        "tokens": f"{cell.length_tokens:,} tokens",
        "depth": f"{percent(cell.depth):.4g} %, realised {percent(cell.realised):.4g} %",
        **_counts(cell),
    }


def _realised(
    cell: CellScore, band: tuple[float, float], bins: Mapping[float, tuple[float, float]]
) -> dict[str, float]:
    """Where between its band's edges a cell's needle really was; nothing where no bin was to choose from."""
    if cell.depth not in bins or cell.score is None:
        return {}
    low, high = bins[cell.depth]
    share = min(1.0, max(0.0, (cell.realised - low) / (high - low))) if high > low else 0.5
    return {"at": round(band[0] + share * (band[1] - band[0]), 4)}


def _state(cell: CellScore) -> str:
    if cell.score is None:
        return "missing"
    return "partial" if cell.missing else "scored"


def _mean_row(margin: Margin) -> dict[str, Any]:
    return {
        "length": margin.length_tokens,
        "mean": None if margin.score is None else round(margin.score * 100, 4),
        "tokens": f"{margin.length_tokens:,} tokens",
        **_counts(margin),
    }


def _counts(of: CellScore | Margin) -> dict[str, Any]:
    return {
        "shown": "not measured" if of.score is None else score_label(of.score),
        "n": of.n,
        "interval": interval_label(of.low, of.high),
        "missing": missing_label(of.missing, of.failures),
    }
