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
from needlemap.records.loaded import Loaded
from needlemap.registry import installed
from needlemap.reports.figures import (
    ALONE,
    EDGE,
    SEVERAL,
    TEXT,
    Drawing,
    Row,
    draw_rows,
    rows,
    rows_height,
)
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
    draw_legend,
    facts,
    legend_items,
    map_panel,
    map_title,
    missing_line,
    one_of,
    overall_short,
    scores,
)
from needlemap.reports.figures.sought import draw_sought
from needlemap.reports.figures.styles import find_style, is_other
from needlemap.reports.labels import length_range, unique_names
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.seek_report import seeks
from needlemap.stats.comparison import FamilyComparison
from needlemap.stats.means import Map

if TYPE_CHECKING:
    from needlemap.reports.figures import Drawing


# Points across that a panel needs.
LEAST = 112.0
# Points between panels.
BETWEEN = 10.0


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
    """Return runs as a figure; of two that can be paired also what changed.

    Raises SettingsError for runs of which only some seek.
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
        only = Shown(run.map, title or run.about.title)
        return Figure((only,), palette=palette, style=style)
    names = unique_names([run.map.model for run in runs], [Path(run.path) for run in runs])
    model = "" if is_other(style) else one_of({run.map.model for run in runs})
    names = [name.removeprefix(f"{model}@") if model else name for name in names]
    shown = tuple(
        Shown(replace(run.map, model=name), run.about.title)
        for run, name in zip(runs, names, strict=True)
    )
    comparison, why_not = (None, "") if is_other(style) else _compared(runs)
    return Figure(
        runs=shown,
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


def _compared(runs: Sequence[Loaded]) -> tuple[FamilyComparison | None, str]:
    if len(runs) != 2:
        return None, ""
    try:
        return compare_loaded(runs[0], runs[1])[0].only, ""
    except NeedlemapError as error:
        return None, str(error)


def draw(figure: Figure, width: float | None = None) -> Drawing:
    """Draw a figure.

    width: of the whole figure in points, None for a screen's. Raises SettingsError for an unknown
    palette.
    """
    if figure.sought:
        return draw_sought(figure.sought, figure.title, width)
    if is_other(figure.style):
        return _older(figure, width)
    panels, lines = panels_of(figure)
    total = width or (ALONE if len(panels) == 1 else SEVERAL)
    columns = columns_of(len(panels), total)
    # A single panel has the title of its own.
    title = figure.title if len(panels) > 1 else None
    heading = rows(title or "", [], room=total - 2 * EDGE)
    grid = FigureGrid.of(panels, columns, total - 2 * EDGE)
    parts, bottom = grid.draw(EDGE, EDGE + rows_height(heading) + (5 if heading else 0))
    legend, height = draw_grid_legend(grid, bottom + 4, total)
    footer = rows("", lines, room=total - 2 * EDGE)
    footer_y = bottom + 4 + height
    return Drawing(
        parts=(
            *draw_rows(heading, EDGE, EDGE),
            *parts,
            *legend,
            *draw_rows(footer, EDGE, footer_y),
        ),
        width=total,
        height=footer_y + rows_height(footer) + EDGE,
        printed=width is not None,
    )


def _older(figure: Figure, width: float | None) -> Drawing:
    """Draw all maps, one below the other, in another style."""
    style = find_style(str(figure.style))
    scale = scores(figure.palette or "amber")
    total = width or SEVERAL
    y = 0.0
    parts: list[str] = []
    for run in figure.runs:
        title = run.title or style.title(run.map)
        run_parts, y = style.draw(run.map, title, scale, total, y)
        parts += run_parts
    return Drawing(tuple(parts), total, y, width is not None)


def draw_grid_legend(grid: FigureGrid, y: float, total: float) -> tuple[list[str], float]:
    """Return the legend below the first map, and its height.

    It starts from the paper's edge if that saves a line.
    """
    items, left = legend_items(grid.panels, grid.width, grid.height), grid.lefts[0]
    below = draw_legend(items, EDGE + left, y, total - 2 * EDGE - left)
    edge = draw_legend(items, EDGE, y, total - 2 * EDGE)
    return min(below, edge, key=lambda drawn: drawn[1])


def panels_of(figure: Figure) -> tuple[list[MapPanel], list[str]]:
    """Return all panels, and the facts that they share, in words."""
    scale = scores(figure.palette)
    maps = [run.map for run in figure.runs]
    if len(maps) == 1:
        (run,) = figure.runs
        panel = map_panel(run.map, run.title or map_title(run.map), caption(run.map), scale)
        return [panel], [", ".join(facts(run.map)[1:])]
    common = [one_of(set(values)) for values in zip(*map(facts, maps), strict=True)]
    subject = [
        figure.model,
        one_of({other.task for other in maps}),
        one_of({length_range(other.lengths) for other in maps}),
    ]
    panels = [
        map_panel(run.map, _title(index, figure), _own_lines(run.map, common), scale)
        for index, run in enumerate(figure.runs)
    ]
    if figure.comparison is not None:
        panels.append(change_panel(figure.comparison, maps[0]))
    line = ", ".join(filter(None, [*subject, *common]))
    return panels, [line] if line else []


def _own_lines(map: Map, common: Sequence[str]) -> list[str]:
    """Return the facts of one of several panels. Shared facts stand once, above."""
    own_facts = [
        fact for fact, common_fact in zip(facts(map), common, strict=True) if not common_fact
    ]
    return [", ".join([overall_short(map), *own_facts]), *missing_line(map)]


def _title(index: int, figure: Figure) -> str:
    """Return the model, with A or B if the two are compared.

    Task and lengths follow if they differ.
    """
    run = figure.runs[index]
    maps = [shown.map for shown in figure.runs]
    parts = [run.map.model]
    if len({map.task for map in maps}) > 1 and run.map.task != run.map.model:
        parts.append(run.map.task)
    if len({map.lengths for map in maps}) > 1:
        parts.append(length_range(run.map.lengths))
    title = run.title or " · ".join(filter(None, parts))
    return title if figure.comparison is None else f"{'AB'[index]}: {title}"


def columns_of(count: int, total: float) -> int:
    """Return how many panels stand side by side.

    Rows are filled if that leaves at least half of what fits.
    """
    most = max(1, min(count, int(total / LEAST)))
    filled = [
        columns for columns in range(most, 0, -1) if count % columns == 0 and 2 * columns >= most
    ]
    return filled[0] if filled else ceil(count / ceil(count / most))


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
        """Return the grid that fills a width."""
        column_width = total / columns
        sides = any(len(panel.by_depth) > 1 for panel in panels) and column_width >= 190
        side = 12 + 0.14 * column_width if sides else 0.0
        top = 32.0 if column_width >= 190 else 20.0
        shared = len({panel.axes for panel in panels}) == 1
        width = column_width - 30
        height = 80.0
        lefts = (0.0,) * columns
        # Labels take room from the map, whose height decides which labels there are.
        for _ in range(3):
            lefts = tuple(
                _left(panels, column, columns, height, shared=shared) for column in range(columns)
            )
            rights = columns * (side + GAP if side else 8.0)
            width = (total - sum(lefts) - rights - BETWEEN * (columns - 1)) / columns
            height = max(panel.height(width) for panel in panels)
        return cls(panels, columns, width, height, lefts, side, top, shared)

    @property
    def counted(self) -> bool:
        """Return True if n of each length is shown: only a single panel has room for it."""
        return len(self.panels) == 1 and any(mean.n for mean in self.panels[0].by_length)

    def draw(self, x: float, y: float) -> tuple[list[str], float]:
        """Return all panels, the first one's corner at x and y, and where they end."""
        parts: list[str] = []
        for first in range(0, len(self.panels), self.columns):
            row = self.panels[first : first + self.columns]
            heads = [self._head(panel, column) for column, panel in enumerate(row)]
            map_y = y + max(map(rows_height, heads)) + 5 + (ROW if self.counted else 0)
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
                    + BETWEEN
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


def _left(
    panels: Sequence[MapPanel], column: int, columns: int, height: float, *, shared: bool
) -> float:
    """Return the room for the labels left of a column.

    A panel with another scale than its row's first has labels of its own.
    """
    if column == 0 or not shared:
        return max(panel.left(height) for panel in panels[column::columns])
    return max(
        panel.scale.room if panel.scale != panels[0].scale else 0.0
        for panel in panels[column::columns]
    )
