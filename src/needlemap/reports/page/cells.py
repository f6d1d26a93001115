"""The cells of a run as columns: what the page's map is drawn from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from needlemap.maps.map import CellScore, Map
from needlemap.reports.layout import Layout
from needlemap.reports.page.numbers import mean, share
from needlemap.runs.record import Record

Place = tuple[int, float]  # length in tokens, depth


def cell_columns(map: Map, layout: Layout, records: Sequence[Record]) -> dict[str, list[Any]]:
    """Columns of equal length, in the order of the map's cells: by length, then depth."""
    rank = {length: at for at, length in enumerate(map.lengths)}
    found = by_cell(map, records)
    return {
        "length": [rank[cell.length_tokens] for cell in map.cells],
        "depth": [share(cell.depth) for cell in map.cells],
        "top": [share(row["top"]) for row in layout.cells],
        "bottom": [share(row["bottom"]) for row in layout.cells],
        "score": [share(cell.score) for cell in map.cells],
        "n": [cell.n for cell in map.cells],
        "low": [share(cell.low) for cell in map.cells],
        "high": [share(cell.high) for cell in map.cells],
        "realised": [share(cell.realised) for cell in map.cells],
        "missing": [cell.missing for cell in map.cells],
        "failures": [dict(sorted(cell.failures.items())) for cell in map.cells],
        "repeated": [cell.repeated for cell in map.cells],
        "tokens": [mean(tokens_of(record) for record in row) for row in found],
        "cached": [mean(record.cached_tokens for record in row) for row in found],
        "planned": [mean(record.shared_tokens for record in row) for row in found],
    }


def by_cell(map: Map, records: Sequence[Record]) -> list[list[Record]]:
    """The records of each cell, by repeat, in the order of the map's cells."""
    found: dict[Place, list[Record]] = defaultdict(list)
    for record in records:
        found[record.length_tokens, record.depth].append(record)
    return [sorted(found[place(cell)], key=_repeat) for cell in map.cells]


def place(cell: CellScore) -> Place:
    """Where a cell stands."""
    return cell.length_tokens, cell.depth


def tokens_of(record: Record) -> int | None:
    """A prompt's tokens: as the server counted them, else as we did; None where nobody did."""
    ours = record.prompt.tokens if record.prompt else None
    return ours if record.prompt_tokens is None else record.prompt_tokens


def _repeat(record: Record) -> tuple[int, str]:
    return record.repeat, record.key
