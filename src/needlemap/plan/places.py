"""Which cells a haystack is asked for, and where in it their first needle goes, by mode.

'exact', 'single' and 'cold': every cell at its own depth (no position is set here). 'bins': a position inside
each cell's depth bin, shared by many lengths. 'lattice': absolute positions, every length asked along each,
so that a cell's depth is what the position comes to at that length.
"""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.plan.bins import Bins, bin_edges, make_bins
from needlemap.plan.cover import positions
from needlemap.settings.grid import Cell, Grid
from needlemap.text.cuts import Cuts

WALKED = ("exact", "bins", "lattice")  # modes whose prompts are asked as a walk of their prefix tree
ALONE = "cold"  # the mode whose prompts share nothing
_SLACK = 3  # tokens by which a haystack's final size may differ from the first guess


def places(
    mode: str, grid: Grid, sizes: Sequence[int], cuts: Cuts, tolerance: float | None = None
) -> list[tuple[Cell, int | None]]:
    """Cells with the haystack position of their first needle, None where the depth alone decides.

    sizes: haystack tokens of each of the grid's lengths. tolerance: half a bin as a share; None: half a step.
    """
    if mode == "lattice":
        return _lattice(grid, sizes, cuts)
    if mode != "bins":
        return [(cell, None) for cell in grid.cells]
    chosen = positions(_bins(grid, sizes, tolerance), cuts).tolist()
    return [
        (Cell(length, depth), chosen[row][column])
        for row, length in enumerate(grid.lengths)
        for column, depth in enumerate(grid.depths)
    ]


def in_bin(grid: Grid, depth: float, realised: float, tolerance: float | None = None) -> bool:
    """Whether a realised depth lies in the bin of a meant one."""
    low, high = bin_edges(grid.depths, tolerance)[grid.depths.index(depth)]
    return low <= realised <= high


def make_bins_of(grid: Grid, sizes: Sequence[int], tolerance_percent: float | None) -> Bins:
    """The depth bins of a grid whose lengths hold these many haystack tokens."""
    tolerance = None if tolerance_percent is None else tolerance_percent / 100
    return make_bins(sizes, bin_edges(grid.depths, tolerance))


def _bins(grid: Grid, sizes: Sequence[int], tolerance: float | None) -> Bins:
    """Bins that hold for haystacks a few tokens shorter or longer than guessed."""
    edges = bin_edges(grid.depths, tolerance)
    shorter = make_bins([max(1, size - _SLACK) for size in sizes], edges)
    longer = make_bins([size + _SLACK for size in sizes], edges)
    bins = make_bins(sizes, edges)
    low, high = longer.low, shorter.high
    narrow = low > high
    low[narrow], high[narrow] = bins.low[narrow], bins.high[narrow]
    return Bins(low, high, bins.sizes)


def _lattice(grid: Grid, sizes: Sequence[int], cuts: Cuts) -> list[tuple[Cell, int | None]]:
    """Positions at the grid's depths of its longest haystack, each asked at every length that reaches it.

    A cell's depth is what its point comes to before it moves back to a sentence end, so that repeats with
    other documents fall into the same cells.
    """
    longest = min(max(0, max(sizes) - _SLACK), len(cuts.sentence) - 1)
    points = sorted({int(depth * longest) for depth in grid.depths})
    return [
        (Cell(length, point / size if point else 0.0), cuts.place(point, longest))
        for length, size in zip(grid.lengths, sizes, strict=True)
        for point in points
        if not point or point <= size - _SLACK  # 0 always: a length without room is an error, not left out
    ]
