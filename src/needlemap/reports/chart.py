"""The heat map: one Vega-Lite specification that notebook, PNG, SVG and PDF are made from.

It does not write files: see figure.py. Chinese and other names are drawn with the fonts of the machine that
draws: the reader's for SVG; for PNG and PDF a CJK font (Noto Sans CJK, say) must be installed here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from needlemap.maps.map import Map
from needlemap.reports.labels import all_failures, interval_label, length_range, missing_label, score_label
from needlemap.reports.layout import Layout, make_layout
from needlemap.reports.marks import Measure, Pen, Spec
from needlemap.reports.style import SCREEN, Style, palette_colours

if TYPE_CHECKING:
    import altair


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched
GREY = "#555555"


@dataclass(frozen=True, slots=True)
class Panel:
    """One map of a figure as Vega-Lite, and its data by name."""

    spec: Spec
    data: Mapping[str, list[Spec]]


def heat_map(map: Map, *, title: str | None = None, palette: str | None = None) -> altair.LayerChart:
    """The chart of a map: lengths across, depths down, scores 0..100, means with their intervals as a line.

    title: instead of model, task and lengths. Raises SettingsError for an unknown palette.
    """
    import altair  # late: figures on disk need none of it

    spec = dressed([map_panel(map, title or map_title(map), palette)])
    chart: altair.LayerChart = altair.LayerChart.from_dict(spec)
    return chart


def map_panel(
    map: Map,
    title: str,
    palette: str | None,
    style: Style = SCREEN,
    width: float | None = None,
    *,
    legend: bool = True,
    name: str = "map",
) -> Panel:
    """A map for a figure of one or several. width: of the map itself, None for a screen's."""
    layout = make_layout(map, style, width)
    return panel(Pen(layout, scores(palette), style), title, caption(map, layout), legend=legend, name=name)


def scores(palette: str | None) -> Measure:
    """Scores of 0 to 100, never stretched to the data. Raises SettingsError for an unknown palette."""
    colours = palette_colours(palette)
    return Measure("Score", "Mean", (0, 100), (0, 25, 50, 75, 100), colours)


def panel(pen: Pen, title: str, lines: Sequence[str], *, legend: bool, name: str) -> Panel:
    """Cells, and over them the line of means with an axis of its own. name: of its data."""
    layout, style = pen.layout, pen.style
    drawn = [pen.scored(legend=legend), pen.missing(), pen.partial()]
    drawn += [pen.realised()] if layout.realised else []
    over = [*([pen.zero()] if pen.measure.zero else []), pen.bars(), pen.line(), pen.points()]
    cells, means = f"cells of {name}", f"means of {name}"
    whole = layout.width + style.beside
    heading = {
        "text": wrapped(title, whole / (style.bold * style.title)),
        "subtitle": [part for line in lines for part in wrapped(line, whole / (style.plain * style.text))],
    }
    spec = {
        "width": layout.width,
        "height": layout.height,
        "title": heading,
        "layer": [{"data": {"name": cells}, "layer": drawn}, {"data": {"name": means}, "layer": over}],
        "resolve": {"scale": {"y": "independent"}},
    }
    return Panel(spec, {cells: list(layout.cells), means: list(layout.means)})


def map_title(map: Map) -> str:
    """Model, task and lengths."""
    return f"{map.model} · {map.task} · {length_range(map.lengths)}"


def caption(map: Map, layout: Layout) -> list[str]:
    """What a reader must know to believe the map: n, mode, tokenizer, scorer, what is missing."""
    total = map.total
    interval = f" {interval_label(total.low, total.high)}" if total and total.low is not None else ""
    count = f"n = {map.n:,} prompts" if map.counted else f"n not told ({map.n:,} cells, each a mean)"
    facts = [count, f"mode {map.mode}", f"overall {score_label(map.overall)}{interval}"]
    line = "; bars: 95 % intervals" if map.counted else ""
    signs = "; white ticks: realised depth in its bin" if layout.realised else ""
    return [
        ", ".join([*facts, f"tokenizer {map.tokenizer}", f"scorer {map.scorer}"]),
        f"Line: mean by length{line}{signs}",
        *_missing_line(map),
    ]


def dressed(
    panels: Sequence[Panel], style: Style = SCREEN, columns: int = 1, title: str | None = None
) -> Spec:
    """A whole figure with its letters and gaps. columns: panels side by side. title: over several."""
    specs = [each.spec for each in panels]
    whole = columns * (specs[0]["width"] + style.beside) / (style.bold * style.title)
    heading = {"title": {"text": wrapped(title, whole)}} if title else {}
    apart = {"resolve": {"scale": {"color": "independent"}}}
    several = {"concat": specs, "columns": columns, **apart, **heading}
    return {
        "$schema": SCHEMA,
        **(specs[0] if len(specs) == 1 else several),
        "datasets": {name: rows for each in panels for name, rows in each.data.items()},
        "background": "white",
        "padding": style.gap,
        "config": _config(style),
    }


def _config(style: Style) -> Spec:
    letters = {"labelFontSize": style.label, "titleFontSize": style.text, "titleFontWeight": "normal"}
    near = {"labelPadding": 0.4 * style.label, "titlePadding": 0.4 * style.label, "ticks": False}
    title = {"anchor": "start", "frame": "bounds", "fontSize": style.title, "offset": 0.6 * style.title}
    return {
        "font": style.font,
        "concat": {"spacing": style.between},
        "title": {**title, "subtitleFontSize": style.text, "subtitleColor": GREY},
        "axis": {**letters, **near},
        "legend": letters,
        "view": {"stroke": "#BBBBBB", "strokeWidth": 0.6 * style.line},
    }


def _missing_line(map: Map) -> list[str]:
    """What is missing and how it is drawn; no line when nothing is."""
    signs = [
        *(["hatched: whole cell"] if any(cell.score is None for cell in map.cells) else []),
        *(["dark corner: part of it"] if any(cell.n and cell.missing for cell in map.cells) else []),
    ]
    shown = missing_label(map.missing, all_failures(map))
    return [f"Missing {shown}; {'; '.join(signs)}"] if map.missing else []


def wrapped(text: str, columns: float) -> list[str]:
    """Lines of at most so many letters; wide letters count twice."""
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    share = 1 + wide / max(1, len(text))
    limit = max(12, int(columns / share))
    return [part for line in text.splitlines() for part in textwrap.wrap(line, limit)] or [""]


def with_text(chart: Any, text: str, include: object = None, exclude: object = None) -> Any:
    """A chart's bundle of representations (and its metadata, if any) with a text for plain consoles."""
    shown = chart._repr_mimebundle_(include, exclude)
    bundle, *metadata = shown if isinstance(shown, tuple) else (shown or {},)
    whole = {**bundle, "text/plain": text}
    return (whole, *metadata) if metadata else whole
