"""Maps made by hand, for all report tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from needlemap.maps.intervals import wilson
from needlemap.maps.map import CellScore, Map

MakeCell = Callable[..., CellScore]
MakeMap = Callable[..., Map]
MakeGrid = Callable[[int, int], Map]


def cell(
    length_tokens: int,
    depth: float,
    score: float | None,
    *,
    n: int = 4,
    missing: int = 0,
    failures: dict[str, int] | None = None,
) -> CellScore:
    """A cell whose numbers agree with each other."""
    scored = 0 if score is None else n
    low, high = wilson((score or 0.0) * scored, scored) or (None, None)
    return CellScore(length_tokens, depth, depth, score, scored, low, high, missing, failures or {})


def a_map(cells: Sequence[CellScore], model: str = "a-model", task: str = "single") -> Map:
    """A map of these cells."""
    ordered = sorted(cells, key=lambda each: (each.length_tokens, each.depth))
    return Map(tuple(ordered), model, "cl100k_base", task, "levenshtein", "exact")


def grid_map(columns: int, rows: int) -> Map:
    """A full grid: lengths of 1k, 2k, ...; scores fall with length."""
    return a_map(
        [
            cell(1000 * (column + 1), row / max(1, rows - 1), 1 - 0.5 * column / columns)
            for column in range(columns)
            for row in range(rows)
        ]
    )


@pytest.fixture
def make_cell() -> MakeCell:
    """make_cell(length_tokens, depth, score, n=, missing=, failures=)."""
    return cell


@pytest.fixture
def make_map() -> MakeMap:
    """make_map(cells, model=, task=)."""
    return a_map


@pytest.fixture
def make_grid() -> MakeGrid:
    """make_grid(columns, rows)."""
    return grid_map


@pytest.fixture
def mixed() -> Map:
    """3 lengths x 3 depths: scored, zero, failed, not asked and partly missing cells."""
    return a_map(
        [
            cell(1000, 0.0, 1.0),
            cell(1000, 0.5, 0.75),
            cell(1000, 1.0, 1.0),
            cell(4000, 0.0, 1.0),
            cell(4000, 0.5, 0.0),
            cell(4000, 1.0, None, missing=4, failures={"timed out": 3}),
            cell(128_000, 0.0, 0.5, n=2, missing=2, failures={"rate limited": 2}),
            cell(128_000, 0.5, None, missing=4),
            cell(128_000, 1.0, 0.25),
        ]
    )
