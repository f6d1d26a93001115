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
from needlemap.reports.labels import (
    length_range,
    unique_names,
)
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.seek_report import seeks
from needlemap.stats.comparison import FamilyComparison
from needlemap.stats.means import Map

if TYPE_CHECKING:
    from needlemap.reports.figures import Drawing


LEAST = 112.0  # points across that a panel needs
BETWEEN = 10.0  # panels


@dataclass(frozen=True, slots=True)
class Shown:
    """One run in a figure. title: over its map, None for the one of model, task and
    lengths."""

    map: Map
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs in their order, and of two runs the comparison, if it is to be shown.

    title: over several maps. palette: of the scores, None for the default. style: of an older
    tool, if any. model: what all runs have in common, and is not said of each. why_not: why
    two runs are not compared. sought: runs that seek, whose picture is another one.
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
    """Runs as a figure; of two that can be paired also what changed. Raises SettingsError for
    runs of which only some seek."""
    check_style(style)
    if any(map(seeks, runs)):
        if not all(map(seeks, runs)):
            raise SettingsError(
                "Runs that seek have a picture of their own. Draw them apart from the others."
            )
        return Figure((), title=title, sought=tuple(runs))
    if len(runs) == 1:
        (run,) = runs
        alone = Shown(run.map, title or run.about.title)
        return Figure((alone,), None, None, palette, style)
    names = unique_names([run.map.model for run in runs], [Path(run.path) for run in runs])
    model = "" if is_other(style) else one_of({run.map.model for run in runs})
    names = [name.removeprefix(f"{model}@") if model else name for name in names]
    shown = tuple(
        Shown(replace(run.map, model=name), run.about.title)
        for run, name in zip(runs, names, strict=True)
    )
    comparison, why_not = (None, "") if is_other(style) else _compared(runs)
    return Figure(shown, comparison, title, palette, style, model, why_not)


def check_style(style: str | None) -> None:
    """Raises SettingsError for an unknown one."""
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
    """The picture. width: of the whole figure in points, None for a screen's. Raises
    SettingsError for an unknown palette."""
    if figure.sought:
        return draw_sought(figure.sought, figure.title, width)
    if is_other(figure.style):
        return _older(figure, width)
    panels, lines = panels_of(figure)
    total = width or (ALONE if len(panels) == 1 else SEVERAL)
    columns = columns_of(len(panels), total)
    heading = rows((len(panels) > 1 and figure.title) or "", [], total - 2 * EDGE)
    grid = FigureGrid.of(panels, columns, total - 2 * EDGE)
    parts, bottom = grid.draw(EDGE, EDGE + rows_height(heading) + (5 if heading else 0))
    legend, height = draw_grid_legend(grid, bottom + 4, total)
    below, foot = bottom + 4 + height, rows("", lines, total - 2 * EDGE)
    drawn = (*draw_rows(heading, EDGE, EDGE), *parts, *legend, *draw_rows(foot, EDGE, below))
    return Drawing(drawn, total, below + rows_height(foot) + EDGE, width is not None)


def _older(figure: Figure, width: float | None) -> Drawing:
    """All maps, one below the other, in another style."""
    style, scale = find_style(str(figure.style)), scores(figure.palette or "amber")
    total, y, parts = width or SEVERAL, 0.0, list[str]()
    for run in figure.runs:
        title = run.title or style.title(run.map)
        drawn, y = style.draw(run.map, title, scale, total, y)
        parts += drawn
    return Drawing(tuple(parts), total, y, width is not None)


def draw_grid_legend(grid: FigureGrid, y: float, total: float) -> tuple[list[str], float]:
    """Below the first map; from the paper's edge where that saves a line. And its height."""
    items, left = legend_items(grid.panels, grid.width, grid.height), grid.lefts[0]
    below = draw_legend(items, EDGE + left, y, total - 2 * EDGE - left)
    edge = draw_legend(items, EDGE, y, total - 2 * EDGE)
    return min(below, edge, key=lambda drawn: drawn[1])


def panels_of(figure: Figure) -> tuple[list[MapPanel], list[str]]:
    """All panels, and the facts that they share, in words."""
    scale, maps = scores(figure.palette), [run.map for run in figure.runs]
    if len(maps) == 1:
        (run,) = figure.runs
        own = map_panel(run.map, run.title or map_title(run.map), caption(run.map), scale)
        return [own], [", ".join(facts(run.map)[1:])]
    common = [one_of(set(said)) for said in zip(*map(facts, maps), strict=True)]
    what = [
        figure.model,
        one_of({each.task for each in maps}),
        one_of({length_range(each.lengths) for each in maps}),
    ]
    panels = [
        map_panel(run.map, _title(at, figure), _own_lines(run.map, common), scale)
        for at, run in enumerate(figure.runs)
    ]
    if figure.comparison is not None:
        panels.append(change_panel(figure.comparison, maps[0]))
    said = ", ".join(filter(None, [*what, *common]))
    return panels, [said] if said else []


def _own_lines(map: Map, common: Sequence[str]) -> list[str]:
    """The facts of one of several panels. Shared facts stand once, above."""
    own = [said for said, once in zip(facts(map), common, strict=True) if not once]
    return [", ".join([overall_short(map), *own]), *missing_line(map)]


def _title(at: int, figure: Figure) -> str:
    """The model, with A or B where the two are compared; the task and the lengths where they
    differ."""
    run = figure.runs[at]
    maps = [each.map for each in figure.runs]
    task = (
        run.map.task
        if len({map.task for map in maps}) > 1 and run.map.task != run.map.model
        else ""
    )
    lengths = length_range(run.map.lengths) if len({map.lengths for map in maps}) > 1 else ""
    title = run.title or " · ".join(filter(None, (run.map.model, task, lengths)))
    return title if figure.comparison is None else f"{'AB'[at]}: {title}"


def columns_of(count: int, total: float) -> int:
    """How many panels stand side by side: rows are filled where that leaves at least half of
    what fits."""
    most = max(1, min(count, int(total / LEAST)))
    full = [
        columns for columns in range(most, 0, -1) if count % columns == 0 and 2 * columns >= most
    ]
    return full[0] if full else ceil(count / ceil(count / most))


@dataclass(frozen=True, slots=True)
class FigureGrid:
    """Panels in rows. width, height: of each map. lefts: room for labels left of each column.
    side, top: of the margins, 0 for none. shared: whether all have the same axes, so that the
    outer ones are labelled."""

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
        """The grid that fills a width."""
        each = total / columns
        sides = any(len(panel.by_depth) > 1 for panel in panels) and each >= 190
        side, top = (12 + 0.14 * each if sides else 0.0), (32.0 if each >= 190 else 20.0)
        shared = len({panel.axes for panel in panels}) == 1
        width, height, lefts = each - 30, 80.0, (0.0,) * columns
        for _ in range(3):  # labels take room from the map whose height says which labels there are
            lefts = tuple(
                _left(panels, at, columns, height, shared=shared) for at in range(columns)
            )
            rights = columns * (side + GAP if side else 8.0)
            width = (total - sum(lefts) - rights - BETWEEN * (columns - 1)) / columns
            height = max(panel.height(width) for panel in panels)
        return cls(panels, columns, width, height, lefts, side, top, shared)

    @property
    def counted(self) -> bool:
        """Whether n of each length is shown: a single panel has room for it."""
        return len(self.panels) == 1 and any(mean.n for mean in self.panels[0].by_length)

    def draw(self, x: float, y: float) -> tuple[list[str], float]:
        """All panels, the first one's corner at x and y; and where they end."""
        parts: list[str] = []
        for first in range(0, len(self.panels), self.columns):
            row = self.panels[first : first + self.columns]
            heads = [self._head(panel, at) for at, panel in enumerate(row)]
            begin = y + max(map(rows_height, heads)) + 5 + (ROW if self.counted else 0)
            left = x
            for at, (panel, head) in enumerate(zip(row, heads, strict=True)):
                corner = left + (self.lefts[at] if self.columns > 1 else 0.0)
                parts += draw_rows(head, corner, y)
                box = Box(left + self.lefts[at], begin + self.top + ABOVE, self.width, self.height)
                low = first + at + self.columns >= len(self.panels) or not self.shared
                parts += self._panel(panel, box, labelled=at == 0 or not self.shared, low=low)
                left += (
                    self.lefts[at] + self.width + (self.side + GAP if self.side else 8.0) + BETWEEN
                )
            last = first + self.columns >= len(self.panels) or not self.shared
            y = begin + self.top + ABOVE + self.height + (TICK + TEXT + ROW + 4 if last else 8)
        return parts, y

    def _head(self, panel: MapPanel, at: int) -> list[Row]:
        room = self.width + self.side + (self.lefts[at] if self.columns == 1 else 0)
        return rows(panel.title, panel.lines, room)

    def _panel(self, panel: MapPanel, box: Box, *, labelled: bool, low: bool) -> list[str]:
        parts = draw_cells(panel, box)
        above = Box(box.x, box.y - ABOVE - self.top, box.width, self.top)
        parts += draw_top(panel, above, labelled=labelled or panel.scale != self.panels[0].scale)
        parts += draw_counts(panel, above) if self.counted else []
        if self.side and panel.by_depth:
            parts += draw_side(
                panel, Box(box.x + box.width + GAP + 4, box.y, self.side - 16, box.height)
            )
        parts += draw_depth_axis(panel, box) if labelled else []
        return parts + (length_axis(panel.lengths, box) if low else [])


def _left(
    panels: Sequence[MapPanel], at: int, columns: int, height: float, *, shared: bool
) -> float:
    """Room for the labels left of a column; of another scale than its row's first its own."""
    if at == 0 or not shared:
        return max(panel.left(height) for panel in panels[at::columns])
    return max(
        panel.scale.room if panel.scale != panels[0].scale else 0.0 for panel in panels[at::columns]
    )
