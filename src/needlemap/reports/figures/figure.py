"""A figure of one or several runs, written as PNG, SVG or PDF, for a screen or at a given
width.

Several panels have one legend, and axes that they share are labelled once. Of two runs that
can be paired it also shows what changed between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.records.families import kind_of
from needlemap.records.loaded import Loaded
from needlemap.registry import installed
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.heat import (
    ABOVE,
    GAP,
    ROW,
    TICK,
    Box,
    MapPanel,
    draw_cells,
    draw_counts,
    draw_depth_axis,
    draw_side,
    draw_top,
    length_axis,
)
from needlemap.reports.figures.panels import (
    caption,
    change_panel,
    common_value,
    draw_legend,
    legend_items,
    map_facts,
    map_panel,
    map_title,
    missing_line,
    score_scale,
    short_overall_line,
)
from needlemap.reports.figures.shapes import (
    ALONE,
    EDGE,
    SEVERAL,
    TEXT,
    Row,
    draw_rows,
    rows,
    rows_height,
)
from needlemap.reports.figures.sought import draw_sought
from needlemap.reports.figures.styles import find_style, is_other
from needlemap.reports.labels import length_range, unique_names
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.seek_report import seeks
from needlemap.stats.comparison import FamilyComparison
from needlemap.stats.means import Map

if TYPE_CHECKING:
    from needlemap.reports.figures.drawing import Drawing


LEAST_PANEL_WIDTH = 112.0
# Narrower columns have no room for score by depth, and less for score by length.
WIDE_COLUMN = 190.0
# Points between panels, and to the headings above and the legend below them.
PANEL_GAP, HEADING_GAP, LEGEND_GAP = 10.0, 5.0, 4.0


@dataclass(frozen=True, slots=True)
class Shown:
    """One run in a figure.

    title: over its map, None for the one of model, task and lengths.
    """

    map: Map
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs in their order, and of two runs the comparison, if it is to be shown.

    Attributes:
        title: The title over several maps.
        palette: The palette of the scores; None for the default.
        style: The style of an older tool, if any.
        model: What all runs have in common, which is not repeated for each.
        why_not: Why two runs are not compared.
        sought: Runs that seek, whose picture is another one.
    """

    runs: tuple[Shown, ...]
    comparison: FamilyComparison | None = None
    title: str | None = None
    palette: str | None = None
    style: str | None = None
    model: str = ""
    why_not: str = ""
    sought: tuple[Loaded, ...] = ()


def figure_of(
    runs: Sequence[Loaded],
    *,
    title: str | None = None,
    palette: str | None = None,
    style: str | None = None,
) -> Figure:
    """Return runs as a figure. If two can be paired, it also has the comparison of the two.

    If only some of the runs seek, SettingsError is raised.
    """
    check_style(style)
    if any(map(seeks, runs)):
        if not all(map(seeks, runs)):
            raise SettingsError(
                "Runs that seek have a picture of their own. Draw them apart from the others."
            )
        return Figure((), title=title, sought=tuple(runs))

    if len(runs) == 1:
        (run,) = runs
        single_run = Shown(run.map, title or run.about.title)
        return Figure((single_run,), palette=palette, style=style)

    names = unique_names([run.map.model for run in runs], [Path(run.path) for run in runs])
    model = "" if is_other(style) else common_value({run.map.model for run in runs})
    names = [name.removeprefix(f"{model}@") if model else name for name in names]
    shown_runs = tuple(
        Shown(replace(run.map, model=name), run.about.title)
        for run, name in zip(runs, names, strict=True)
    )
    comparison, why_not = (None, "") if is_other(style) else _comparison_of(runs)
    return Figure(
        runs=shown_runs,
        comparison=comparison,
        title=title,
        palette=palette,
        style=style,
        model=model,
        why_not=why_not,
    )


def check_style(style: str | None) -> None:
    """Raise SettingsError for an unknown style."""
    styles = ("needlemap", *installed("styles"))
    if style is not None and style not in styles:
        raise SettingsError(f"Unknown style '{style}'. {did_you_mean(style, styles)}")


def _comparison_of(runs: Sequence[Loaded]) -> tuple[FamilyComparison | None, str]:
    if len(runs) != 2:
        return None, ""
    first, second = (Path(run.path) for run in runs)
    # Two families of a suite are two tasks of one model.
    if first.parent == second.parent and kind_of(first) == kind_of(second) == "suite":
        return None, ""
    try:
        return compare_loaded(runs[0], runs[1])[0].only, ""
    except NeedlemapError as error:
        return None, str(error)


def draw(figure: Figure, width: float | None = None) -> Drawing:
    """Draw a figure, or raise SettingsError if its palette is unknown.

    width: of the whole figure in points; None for the width of a screen.
    """
    if figure.sought:
        return draw_sought(figure.sought, figure.title, width)
    if is_other(figure.style):
        return _draw_other_style(figure, width)

    panels, lines = panels_of(figure)
    paper_width = width or (ALONE if len(panels) == 1 else SEVERAL)
    room = paper_width - 2 * EDGE

    # A single panel has a title of its own.
    title = figure.title if len(panels) > 1 else None
    heading = rows(title or "", [], room=room)
    grid_y = EDGE
    if heading:
        grid_y = EDGE + rows_height(heading) + HEADING_GAP

    grid = FigureGrid.of(panels, columns_of(len(panels), paper_width), room)
    parts, grid_bottom = grid.draw(EDGE, grid_y)
    legend_y = grid_bottom + LEGEND_GAP
    legend, legend_height = draw_grid_legend(grid, legend_y, paper_width)
    footer = rows("", lines, room=room)
    footer_y = legend_y + legend_height

    return Drawing(
        parts=(
            *draw_rows(heading, EDGE, EDGE),
            *parts,
            *legend,
            *draw_rows(footer, EDGE, footer_y),
        ),
        width=paper_width,
        height=footer_y + rows_height(footer) + EDGE,
        printed=width is not None,
    )


def _draw_other_style(figure: Figure, width: float | None) -> Drawing:
    """Draw all maps, one below the other, in another style."""
    style = find_style(str(figure.style))
    scale = score_scale(figure.palette or "amber")
    paper_width = width or SEVERAL
    y = 0.0
    parts: list[str] = []
    for run in figure.runs:
        title = run.title or style.title(run.map)
        run_parts, y = style.draw(run.map, title, scale, paper_width, y)
        parts += run_parts
    return Drawing(tuple(parts), paper_width, y, width is not None)


def draw_grid_legend(grid: FigureGrid, y: float, paper_width: float) -> tuple[list[str], float]:
    """Return the legend, and its height.

    It starts under the first map, or at the paper's edge if that saves a line.
    """
    items, map_left = legend_items(grid.panels, grid.width, grid.height), grid.lefts[0]
    under_map = draw_legend(items, EDGE + map_left, y, paper_width - 2 * EDGE - map_left)
    from_edge = draw_legend(items, EDGE, y, paper_width - 2 * EDGE)
    return min(under_map, from_edge, key=lambda legend_and_height: legend_and_height[1])


def panels_of(figure: Figure) -> tuple[list[MapPanel], list[str]]:
    """Return all panels, and a line of the facts that they share."""
    scale = score_scale(figure.palette)
    maps = [run.map for run in figure.runs]
    if len(maps) == 1:
        (run,) = figure.runs
        panel = map_panel(run.map, run.title or map_title(run.map), caption(run.map), scale)
        return [panel], [", ".join(map_facts(run.map)[1:])]
    common_facts = [common_value(set(values)) for values in zip(*map(map_facts, maps), strict=True)]
    subject = [
        figure.model,
        common_value({one_map.task for one_map in maps}),
        common_value({length_range(one_map.lengths) for one_map in maps}),
    ]
    panels = [
        map_panel(run.map, _title(index, figure), _own_lines(run.map, common_facts), scale)
        for index, run in enumerate(figure.runs)
    ]
    if figure.comparison is not None:
        panels.append(change_panel(figure.comparison, maps[0]))
    line = ", ".join(filter(None, [*subject, *common_facts]))
    return panels, [line] if line else []


def _own_lines(score_map: Map, common_facts: Sequence[str]) -> list[str]:
    """Return the lines of one of several panels, without the facts that all panels share."""
    own_facts = [
        fact
        for fact, common_fact in zip(map_facts(score_map), common_facts, strict=True)
        if not common_fact
    ]
    return [", ".join([short_overall_line(score_map), *own_facts]), *missing_line(score_map)]


def _title(index: int, figure: Figure) -> str:
    """Return a run's title, with A or B before it if two runs are compared.

    Without a title of its own it is the model, then task and lengths if runs differ in these.
    """
    run = figure.runs[index]
    maps = [run_shown.map for run_shown in figure.runs]
    parts = [run.map.model]
    if len({score_map.task for score_map in maps}) > 1 and run.map.task != run.map.model:
        parts.append(run.map.task)
    if len({score_map.lengths for score_map in maps}) > 1:
        parts.append(length_range(run.map.lengths))
    title = run.title or " · ".join(filter(None, parts))
    return title if figure.comparison is None else f"{'AB'[index]}: {title}"


def columns_of(count: int, width: float) -> int:
    """Return the number of panels in a row.

    If all rows can be filled with at least half of the panels that fit, they are filled.
    """
    most_columns = max(1, min(count, int(width / LEAST_PANEL_WIDTH)))
    filling = [
        columns
        for columns in range(most_columns, 0, -1)
        if count % columns == 0 and 2 * columns >= most_columns
    ]
    return filling[0] if filling else ceil(count / ceil(count / most_columns))


@dataclass(frozen=True, slots=True)
class FigureGrid:
    """Panels in rows.

    Attributes:
        width, height: The size of each map.
        lefts: The room for labels left of each column.
        side, top: The room for the margins; 0 for none.
        shared: Whether all have the same axes, so that only the outer ones are labelled.
    """

    panels: Sequence[MapPanel]
    columns: int
    width: float
    height: float
    lefts: tuple[float, ...]
    side: float
    top: float
    shared: bool

    @classmethod
    def of(cls, panels: Sequence[MapPanel], columns: int, total: float) -> FigureGrid:
        """Return the grid that fills a total width."""
        column_width = total / columns
        is_wide = column_width >= WIDE_COLUMN
        has_sides = is_wide and any(len(panel.by_depth) > 1 for panel in panels)
        side = 12 + 0.14 * column_width if has_sides else 0.0
        top = 32.0 if is_wide else 20.0
        shared = len({panel.axes for panel in panels}) == 1
        width = column_width - 30
        height = 80.0
        lefts = (0.0,) * columns
        # Labels take room from the map, whose height decides which labels there are.
        for _ in range(3):
            lefts = tuple(
                _label_room(panels, column, columns, height, shares_axes=shared)
                for column in range(columns)
            )
            rights = columns * (side + GAP if side else 8.0)
            width = (total - sum(lefts) - rights - PANEL_GAP * (columns - 1)) / columns
            height = max(panel.height(width) for panel in panels)
        return cls(panels, columns, width, height, lefts, side, top, shared)

    @property
    def counted(self) -> bool:
        """Return True if n of each length is shown, because only a single panel has room."""
        return len(self.panels) == 1 and any(mean.n for mean in self.panels[0].by_length)

    def draw(self, x: float, y: float) -> tuple[list[str], float]:
        """Return all panels from the corner x, y on, and the y of their lower end."""
        parts: list[str] = []
        for first in range(0, len(self.panels), self.columns):
            row = self.panels[first : first + self.columns]
            heads = [self._head(panel, column) for column, panel in enumerate(row)]
            map_y = y + max(map(rows_height, heads)) + HEADING_GAP
            if self.counted:
                map_y += ROW

            left = x
            for column, (panel, head) in enumerate(zip(row, heads, strict=True)):
                corner = left + (self.lefts[column] if self.columns > 1 else 0.0)
                parts += draw_rows(head, corner, y)
                box = Box(
                    left + self.lefts[column], map_y + self.top + ABOVE, self.width, self.height
                )
                is_lowest = first + column + self.columns >= len(self.panels) or not self.shared
                parts += self._panel(
                    panel, box, labelled=column == 0 or not self.shared, low=is_lowest
                )
                left += (
                    self.lefts[column]
                    + self.width
                    + (self.side + GAP if self.side else 8.0)
                    + PANEL_GAP
                )
            is_last = first + self.columns >= len(self.panels) or not self.shared
            y = map_y + self.top + ABOVE + self.height + (TICK + TEXT + ROW + 4 if is_last else 8)
        return parts, y

    def _head(self, panel: MapPanel, column: int) -> list[Row]:
        room = self.width + self.side + (self.lefts[column] if self.columns == 1 else 0)
        return rows(panel.title, panel.lines, room)

    def _panel(self, panel: MapPanel, box: Box, *, labelled: bool, low: bool) -> list[str]:
        parts = draw_cells(panel, box)
        above = Box(box.x, box.y - ABOVE - self.top, box.width, self.top)
        parts += draw_top(panel, above, labelled=labelled or panel.scale != self.panels[0].scale)
        if self.counted:
            parts += draw_counts(panel, above)
        if self.side and panel.by_depth:
            right = Box(box.x + box.width + GAP + 4, box.y, self.side - 16, box.height)
            parts += draw_side(panel, right)
        if labelled:
            parts += draw_depth_axis(panel, box)
        if low:
            parts += length_axis(panel.lengths, box)
        return parts


def _label_room(
    panels: Sequence[MapPanel], column: int, columns: int, height: float, *, shares_axes: bool
) -> float:
    """Return the room for the labels left of a column.

    If panels share their axes, only the first column has labels, and panels with a scale other
    than the first panel's.
    """
    if column == 0 or not shares_axes:
        return max(panel.left(height) for panel in panels[column::columns])
    return max(
        panel.scale.room if panel.scale != panels[0].scale else 0.0
        for panel in panels[column::columns]
    )
