"""What a page draws: the SVG that figures draw, without titles, in a size that suits a phone and
a screen.

A map's cells have numbers, by which the page's script finds them to open their trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from needlemap.reports.figures.curves import draw_lines
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.figure import LEGEND_GAP, FigureGrid, draw_grid_legend
from needlemap.reports.figures.heat import DrawnCell, MapPanel
from needlemap.reports.figures.panels import axes_of, change_panel, map_panel, score_scale
from needlemap.reports.figures.shapes import EDGE
from needlemap.reports.figures.squares import draw_squares
from needlemap.reports.labels import in_percent
from needlemap.reports.report import Report
from needlemap.stats.comparison import FamilyComparison
from needlemap.stats.effective import parse_rule
from needlemap.stats.means import Map

# The width of a map with its margins, in points.
ACROSS = 330.0


def run_panel(score_map: Map) -> MapPanel:
    """Return the map of a run as a page draws it: cells by number, their scores in them."""
    panel = map_panel(score_map, "", (), score_scale(None))
    cells = (
        replace(cell, tip="", number=number, words=value_label(cell.value))
        for number, cell in enumerate(panel.cells)
    )
    return replace(panel, cells=tuple(cells))


def value_label(value: float | None) -> str:
    """Return a score in a cell, without decimals: only a perfect one is 100.

    >>> value_label(99.6), value_label(100.0), value_label(None)
    ('99', '100', '')
    """
    if value is None:
        return ""
    return "100" if value >= 100 else f"{min(in_percent(value / 100, 0), 99):.0f}"


def difference_panel(comparison: FamilyComparison, score_map: Map) -> MapPanel:
    """Return the panel of changes, in the cells of the first run's map that have a pair."""
    panel = change_panel(comparison, score_map)
    numbers: dict[tuple[int, float], int] = {}
    for number, change in enumerate(comparison.cells):
        numbers[change.length_tokens, change.depth] = number
    places = axes_of(score_map)[2]
    cells = (
        replace(cell, tip="", number=numbers.get(place))
        for place, cell in zip(places, panel.cells, strict=True)
    )
    return replace(panel, title="", lines=(), cells=tuple(cells))


def shares(panel: MapPanel) -> list[float | None]:
    """Return the share of the colour scale at which each numbered cell lies, by number."""
    share_by_number = {
        cell.number: _share(panel, cell) for cell in panel.cells if cell.number is not None
    }
    return [share_by_number[number] for number in sorted(share_by_number)]


def _share(panel: MapPanel, cell: DrawnCell) -> float | None:
    return None if cell.value is None else round(panel.scale.share(cell.value), 6)


def draw_panel(panel: MapPanel) -> str:
    """Return a map with its margins and its legend as SVG."""
    grid = FigureGrid.of([panel], 1, ACROSS - 2 * EDGE)
    parts, bottom = grid.draw(EDGE, EDGE)
    legend_y = bottom + LEGEND_GAP
    legend, legend_height = draw_grid_legend(grid, legend_y, ACROSS)
    return Drawing((*parts, *legend), ACROSS, legend_y + legend_height + EDGE).inline("")


def draw_chart(report: Report, rule: str) -> str:
    """Return a report's lines as SVG, or '' if it has no lines."""
    if not report.chart:
        return ""
    picture = draw_lines(report.chart, report.axis, parse_rule(rule) if rule else None)
    return picture.inline(f"{report.axis}: {', '.join(line.name for line in report.chart)}")


def draw_pictures(report: Report) -> Iterator[tuple[float, str]]:
    """Yield a report's time lines as SVG, each with its width in points."""
    for squares in report.squares:
        picture = draw_squares(squares)
        sentences = (square.says for _, row in squares.rows for square in row)
        yield picture.width, picture.inline(f"{squares.title}: {'; '.join(sentences)}")
