"""Where each cell of a map is drawn, and the rows of data that a chart is made of. Pure, no drawing library.

A full grid has one row of equal height per depth. Where every length has depths of its own (lattice mode), a
cell reaches half way to its neighbours at the same length, and the vertical axis is depth itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from needlemap.maps.map import CellScore, Map
from needlemap.plan.bins import bin_edges
from needlemap.reports.labels import (
    WHOLE,
    Margin,
    interval_label,
    length_labels,
    length_margins,
    missing_label,
    row_labels,
    score_label,
)
from needlemap.reports.style import SCREEN, Style
from needlemap.settings.grid import percent

T = TypeVar("T")

MAX_LABELS = 36
WIDE, HIGH = 0.56, 1.25  # of a letter's size: the width of a letter, the height of a line
GRAIN = 5  # cells end at such parts of a point, whole pixels of a print at 360 to the inch: no seams
TICKED = 0.6  # of a label's height: rows that are lower have no room for ticks


@dataclass(frozen=True, slots=True)
class Layout:
    """width, height: points of the map itself. rows: the vertical axis runs from 0 (top) to rows.

    length_ticks: labels by length in tokens. depth_ticks: labels by place on the vertical axis. realised:
    whether ticks say where in its bin the needle really was (mode bins, which chooses it). depthless: as the
    map's.
    """

    width: float
    height: float
    rows: float
    length_ticks: dict[int, str]
    depth_ticks: dict[float, str]
    cells: tuple[dict[str, Any], ...]
    means: tuple[dict[str, Any], ...]
    realised: bool
    depthless: bool = False


def make_layout(map: Map, style: Style = SCREEN, width: float | None = None) -> Layout:
    """The layout of a map: sizes, ticks, one data row per cell and per length. width: at most so wide."""
    bands, rows, ticks = _ragged_bands(map) if map.ragged else _even_bands(map)
    labels = length_labels(map.lengths)
    bins = dict(zip(map.depths, bin_edges(map.depths), strict=True)) if map.mode == "bins" else {}
    columns = max(1, len(map.lengths))
    wide, high = (_screen_size if width is None else _print_size)(columns, max(1, len(ticks)), width or 0.0)
    return Layout(
        wide,
        high,
        rows,
        {length: labels[length] for length in thinned(map.lengths, _room(labels.values(), wide, style))},
        {place: ticks[place] for place in thinned(list(ticks), _lines(high, style))},
        tuple(_cell_row(map, cell, band, bins) for cell, band in zip(map.cells, bands, strict=True)),
        tuple(_mean_row(margin) for margin in length_margins(map)),
        bool(bins) and high / max(1.0, rows) >= TICKED * style.label,
        map.depthless,
    )


def _room(labels: Collection[str], width: float, style: Style) -> int:
    """How many of these labels have room side by side; turned, more do."""
    if style.slanted:
        return MAX_LABELS
    letters = max(map(len, labels), default=1) + 1.2
    return max(1, min(MAX_LABELS, int(width / (letters * WIDE * style.label))))


def _lines(height: float, style: Style) -> int:
    """How many lines of labels have room one over the other."""
    return max(1, min(MAX_LABELS, int(height / (HIGH * style.label))))


def thinned(values: Sequence[T], most: int) -> list[T]:
    """Every k-th value, the first included, so that at most `most` are left.

    >>> thinned([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    step = max(1, -(-len(values) // most))
    return list(values[::step])


def _even_bands(map: Map) -> tuple[list[tuple[float, float]], float, dict[float, str]]:
    labels = row_labels(map, map.depths)
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


def _screen_size(columns: int, rows: int, _: float) -> tuple[float, float]:
    """Whole pixels per column and row, or seams show between them."""
    wide = min(max(18 * columns, 300 if columns < 3 else 480), 720)
    high = min(max(12 * rows, 120 if rows < 3 else 240), 420)
    return columns * max(2, round(wide / columns)), rows * max(2, round(high / rows))


def _print_size(columns: int, rows: int, width: float) -> tuple[float, float]:
    """As wide as there is room for, a map of half that height; columns and rows of whole printed pixels."""
    high = min(max(0.5 * width, 60.0 if rows < 3 else 90.0), 200.0)
    return _whole(width, columns), _whole(high, rows)


def _whole(size: float, parts: int) -> float:
    return parts * max(1, int(GRAIN * size / parts)) / GRAIN


def _cell_row(
    map: Map, cell: CellScore, band: tuple[float, float], bins: Mapping[float, tuple[float, float]]
) -> dict[str, Any]:
    depth = f"{percent(cell.depth):.4g} %, realised {percent(cell.realised):.4g} %"
    return {
        **_realised(cell, band, bins),
        "length": cell.length_tokens,
        "top": band[0],
        "bottom": band[1],
        "score": _percent(cell.score),
        "state": _state(cell),
        "tokens": f"{cell.length_tokens:,} tokens",
        "depth": WHOLE if map.depthless else depth,
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
        "mean": _percent(margin.score),
        "low": _percent(margin.low),
        "high": _percent(margin.high),
        "tokens": f"{margin.length_tokens:,} tokens",
        **_counts(margin),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 4)


def _counts(of: CellScore | Margin) -> dict[str, Any]:
    return {
        "shown": "not measured" if of.score is None else score_label(of.score),
        "n": of.n,
        "interval": interval_label(of.low, of.high),
        "missing": missing_label(of.missing, of.failures),
    }
