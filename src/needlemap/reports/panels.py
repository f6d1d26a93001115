"""Several maps in one figure on one scale, and where two can be paired, what changed between them."""

from __future__ import annotations

from dataclasses import replace

from needlemap.maps.comparison import CellChange, Comparison, LengthDifference
from needlemap.maps.map import Map
from needlemap.reports.chart import Panel, dressed, map_panel, map_title, panel
from needlemap.reports.comparison import interval, points
from needlemap.reports.figure import Figure
from needlemap.reports.layout import make_layout
from needlemap.reports.marks import Measure, Pen, Spec
from needlemap.reports.palette import CHANGES
from needlemap.reports.sizes import PRINT, SCREEN, Style

LEAST = 180.0  # points across that a printed panel needs
CHANGE = Measure("B - A, points", "Difference", (-100, 100), (-100, -50, 0, 50, 100), CHANGES, zero=True)


def across(figure: Figure, total: float | None) -> int:
    """How many panels stand side by side. total: the figure's width, None on a screen."""
    room = 2 if total is None else max(1, int(total / LEAST))
    return min(figure.count, room)


def figure_chart(figure: Figure, total: float | None = None, width: float | None = None) -> Spec:
    """The whole figure. total: its width, which decides what stands side by side; width: of each map."""
    style = SCREEN if total is None else PRINT
    columns, runs = across(figure, total), figure.runs
    panels = [
        map_panel(
            run.map,
            _title(at, figure),
            figure.palette,
            style,
            width,
            legend=at + columns >= len(runs),  # where no other map stands below
            name=f"run {at}",
        )
        for at, run in enumerate(runs)
    ]
    if figure.comparison is not None:
        panels.append(change_panel(figure.comparison, runs[0].map, style, width))
    return dressed(panels, style, columns, figure.title)


def change_panel(
    comparison: Comparison, map: Map, style: Style = SCREEN, width: float | None = None
) -> Panel:
    """B - A in each cell of the first run's map; hatched where no trial has both scores."""
    layout = make_layout(map, style, width)
    changed = {(cell.length_tokens, cell.depth): cell for cell in comparison.cells}
    found = [changed.get((cell.length_tokens, cell.depth)) for cell in map.cells]
    lengths = {row.length_tokens: row for row in comparison.lengths}
    drawn = replace(
        layout,
        cells=tuple(_cell(row, cell) for row, cell in zip(layout.cells, found, strict=True)),
        means=tuple(
            _mean(row, lengths.get(row["length"]), counted=comparison.counted) for row in layout.means
        ),
        realised=False,
    )
    return panel(
        Pen(drawn, CHANGE, style),
        "B - A",
        change_caption(comparison, whole=None not in found),
        legend=True,
        name="changes",
    )


def change_caption(comparison: Comparison, *, whole: bool) -> list[str]:
    """n, difference and interval, what was left out. whole: whether every cell has a pair."""
    overall = comparison.overall
    shown = f" {interval(overall)}" if comparison.counted else ""
    left = f", {comparison.dropped} without both scores" if comparison.dropped else ""
    count = f"n = {overall.n:,} pairs" if comparison.counted else f"n not told ({overall.n:,} pairs of means)"
    bars = "; bars: 95 % intervals" if comparison.counted else ""
    return [
        f"{count}{left}, difference {points(overall.value)} points{shown}",
        f"Line: difference by length{bars}{'' if whole else '; hatched: no pair'}",
    ]


def _title(at: int, figure: Figure) -> str:
    """With A or B where the two are compared."""
    run = figure.runs[at]
    title = run.title or map_title(run.map)
    return title if figure.comparison is None else f"{'AB'[at]}: {title}"


def _cell(row: Spec, cell: CellChange | None) -> Spec:
    if cell is None:
        return {**row, "score": None, "state": "missing", "shown": "no pair", "n": 0, "interval": "-"}
    shown = {"shown": points(cell.change), "n": cell.n, "interval": "-", "missing": "0"}
    return {**row, "score": round(100 * cell.change, 4), "state": "scored", **shown}


def _mean(row: Spec, found: LengthDifference | None, *, counted: bool) -> Spec:
    if found is None:
        return {**row, "mean": None, "low": None, "high": None, "shown": "no pair"}
    difference = found.difference
    low, high = (round(100 * end, 4) if counted else None for end in (difference.low, difference.high))
    shown = {
        "shown": points(difference.value),
        "interval": interval(difference) if counted else "-",
        "n": difference.n,
    }
    return {**row, "mean": round(100 * difference.value, 4), "low": low, "high": high, **shown}
