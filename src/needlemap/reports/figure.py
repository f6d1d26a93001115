"""A figure of one or several runs, written as PNG, SVG or PDF, for a screen or at a given width.

All maps are on one scale; of two runs that can be paired it also shows what changed between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import write_report
from needlemap.maps.comparison import CellChange, FamilyComparison, LengthDifference
from needlemap.maps.map import Map
from needlemap.records.loaded import Loaded
from needlemap.reports.chart import Panel, dressed, map_panel, map_title, panel
from needlemap.reports.labels import interval, points, told_apart
from needlemap.reports.layout import make_layout
from needlemap.reports.marks import Measure, Pen, Spec
from needlemap.reports.paired import compare_loaded
from needlemap.reports.style import CHANGES, PRINT, SCREEN, Style
from needlemap.text.printable import printable

SCREEN_PPI, PRINT_PPI = 144, 360  # whole pixels to a point: two, and five
TRIES = 8  # to come to a width: letters that are wider than they are taken to be need some
_ROOT = re.compile(r'width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"><rect width="[\d.]+" height="[\d.]+"')


@dataclass(frozen=True, slots=True)
class Shown:
    """One run in a figure. title: over its map, None for the one made of model, task and lengths."""

    map: Map
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs in their order, and of two runs the comparison, if it is to be shown.

    title: over several maps. palette: of the scores.
    """

    runs: tuple[Shown, ...]
    comparison: FamilyComparison | None = None
    title: str | None = None
    palette: str | None = None

    @property
    def count(self) -> int:
        """How many panels."""
        return len(self.runs) + (self.comparison is not None)


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG picture and its size in points. printed: whether its size is physical."""

    svg: str
    width: float
    height: float
    printed: bool = False


def write_figure(figure: Figure, path: Path | str, *, width: float | None = None) -> Path:
    """Write the figure in the format that the suffix names; folders are made. Raises SettingsError.

    width: of the whole figure in points, which it gets exactly; None for a screen's.
    """
    target = Path(path)
    content = figure_bytes(figure, target.suffix, width=width)
    return write_report(target, content)


def figure_bytes(figure: Figure, suffix: str, *, width: float | None = None) -> bytes:
    """The file's content. suffix: .png, .svg or .pdf. Raises SettingsError for any other."""
    kind = suffix.lower().lstrip(".")
    if kind not in WRITERS:
        raise SettingsError(f"Cannot write a map as '{suffix}'. Give a name that ends in {', '.join(KINDS)}.")
    return WRITERS[kind](drawn(figure, width))


def drawn(figure: Figure, width: float | None = None) -> Drawing:
    """The figure as SVG. A width leaves the maps what letters and axes beside them do not take."""

    if width is None:
        return _rendered(figure_chart(figure))
    side_by_side = across(figure, width)
    each = 0.75 * width / side_by_side
    found = _rendered(figure_chart(figure, width, each))
    for _ in range(TRIES):
        each += (width - found.width) / side_by_side
        found = _rendered(figure_chart(figure, width, each))
        if found.width <= width:
            break
    return _exactly(found, width)


def _rendered(spec: dict[str, object]) -> Drawing:
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(_drawable(spec)))
    found = _ROOT.search(svg)
    if found is None:
        raise RuntimeError(f"vl-convert begins a picture in another way than it did: {svg[:300]}")
    return Drawing(svg, float(found[1]), float(found[2]))


def _drawable(part: Any) -> Any:
    """A specification whose texts, which may be a stranger's, hold no control codes: one of them (NUL) ends
    the whole process in the library that draws."""
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, dict):
        return {name: _drawable(value) for name, value in part.items()}
    return [_drawable(value) for value in part] if isinstance(part, list | tuple) else part


def _exactly(drawing: Drawing, width: float) -> Drawing:
    """The picture in the middle of a page of that width; made smaller in the odd case that it is wider."""
    shown = max(width, drawing.width)
    height = drawing.height * width / shown
    side, box = (shown - drawing.width) / 2, f'width="{shown:g}" height="{drawing.height:g}"'
    root = (
        f'width="{width:g}" height="{height:g}" viewBox="{-side:g} 0 {shown:g} {drawing.height:g}">'
        f'<rect x="{-side:g}" {box}'
    )
    return Drawing(_ROOT.sub(root, drawing.svg, count=1), width, height, printed=True)


def _png(drawing: Drawing) -> bytes:
    import vl_convert

    ppi = PRINT_PPI if drawing.printed else SCREEN_PPI
    return bytes(vl_convert.svg_to_png(drawing.svg, ppi=ppi))


def _svg(drawing: Drawing) -> bytes:
    """With its size in points where that is meant; plain numbers are pixels, 96 to the inch."""
    if not drawing.printed:
        return drawing.svg.encode()
    size = f'width="{drawing.width:g}" height="{drawing.height:g}"'
    return drawing.svg.replace(size, f'width="{drawing.width:g}pt" height="{drawing.height:g}pt"', 1).encode()


def _pdf(drawing: Drawing) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(drawing.svg))


WRITERS: dict[str, Callable[[Drawing], bytes]] = {"png": _png, "svg": _svg, "pdf": _pdf}
FIGURES = tuple(f".{kind}" for kind in WRITERS)
KINDS = (*FIGURES, ".html", ".csv", ".parquet")  # all that a report can be


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
    comparison: FamilyComparison, map: Map, style: Style = SCREEN, width: float | None = None
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


def change_caption(comparison: FamilyComparison, *, whole: bool) -> list[str]:
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


def figure_of(
    runs: Sequence[Loaded], *, title: str | None = None, palette: str | None = None
) -> tuple[Figure, str]:
    """Runs as a figure; of two that can be paired also what changed. Second: why not, empty otherwise."""
    if len(runs) == 1:
        (run,) = runs
        return Figure((Shown(run.map, title or run.about.get("title")),), palette=palette), ""
    names = told_apart([run.map.model for run in runs], [Path(run.path) for run in runs])
    shown = tuple(
        Shown(replace(run.map, model=name), run.about.get("title"))
        for run, name in zip(runs, names, strict=True)
    )
    comparison, why_not = _compared(runs)
    return Figure(shown, comparison, title, palette), why_not


def _compared(runs: Sequence[Loaded]) -> tuple[FamilyComparison | None, str]:
    if len(runs) != 2:
        return None, ""
    try:
        return compare_loaded(runs[0], runs[1])[0].only, ""
    except NeedlemapError as error:
        return None, str(error)
