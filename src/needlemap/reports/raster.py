"""A map merged into as many rows and columns as there is room for: what each place of a terminal shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from needlemap.maps.map import CellScore, Map
from needlemap.reports.labels import depth_labels, row_labels
from needlemap.reports.margins import length_margins
from needlemap.runs.outcomes import SKIPPED

T = TypeVar("T")
RAGGED_ROWS = 20


@dataclass(frozen=True, slots=True)
class Spot:
    """One place: the mean score in [0, 1] of its cells, or None and whether one of them failed.

    exists: False where the grid has no cell at all.
    """

    score: float | None
    failed: bool = False
    exists: bool = True


NOWHERE = Spot(None, exists=False)


@dataclass(frozen=True, slots=True)
class Raster:
    """columns: the lengths in each column. labels: where each row starts. spots: row by row.

    means: per column, the mean over its lengths of the mean over depths. most: cells merged in one spot.
    """

    columns: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    spots: tuple[tuple[Spot, ...], ...]
    means: tuple[Spot, ...]
    most: int


def make_raster(map: Map, max_columns: int, max_rows: int) -> Raster:
    """A raster of at most max_columns x max_rows places; adjoining lengths and depths share a place."""
    columns, (rows, labels) = _grouped(map.lengths, max_columns), depth_rows(map, max_rows)
    column_of = {length: place for place, group in enumerate(columns) for length in group}
    row_of = {depth: place for place, group in enumerate(rows) for depth in group}
    members: dict[tuple[int, int], list[CellScore]] = defaultdict(list)
    for cell in map.cells:
        members[row_of[cell.depth], column_of[cell.length_tokens]].append(cell)
    spots = tuple(
        tuple(_spot(members.get((row, column), [])) for column in range(len(columns)))
        for row in range(len(rows))
    )
    return Raster(
        columns,
        labels,
        spots,
        _means(map, columns),
        max((len(cells) for cells in members.values()), default=1),
    )


def depth_rows(map: Map, max_rows: int) -> tuple[tuple[tuple[float, ...], ...], tuple[str, ...]]:
    """The depths in each row, and the rows' labels: where each starts.

    Where every length has depths of its own, rows are equal parts of the haystack instead.
    """
    if not map.ragged:
        rows = _grouped(map.depths, max_rows)
        labels = row_labels(map, [row[0] for row in rows])
        return rows, tuple(labels.values())
    parts = min(max_rows, RAGGED_ROWS)
    rows = tuple(
        tuple(depth for depth in map.depths if min(int(depth * parts), parts - 1) == part)
        for part in range(parts)
    )
    return rows, tuple(depth_labels([part / parts for part in range(parts)]).values())


def _grouped(values: Sequence[T], most: int) -> tuple[tuple[T, ...], ...]:
    size = max(1, -(-len(values) // max(1, most)))
    return tuple(tuple(values[start : start + size]) for start in range(0, len(values), size))


def _spot(cells: Sequence[CellScore]) -> Spot:
    if not cells:
        return NOWHERE
    return Spot(_mean(cell.score for cell in cells), any(_failed(cell.failures) for cell in cells))


def _failed(failures: Mapping[str, int]) -> bool:
    """Whether something failed; what a limit skipped was only not asked."""
    return any(kind != SKIPPED for kind in failures)


def _means(map: Map, columns: Sequence[Sequence[int]]) -> tuple[Spot, ...]:
    margins = {margin.length_tokens: margin for margin in length_margins(map)}
    return tuple(
        Spot(
            _mean(margins[length].score for length in column),
            any(_failed(margins[length].failures) for length in column),
        )
        for column in columns
    )


def _mean(scores: Iterable[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None
