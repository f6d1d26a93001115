"""The heat map: one Altair (Vega-Lite) chart that page, notebook, PNG, SVG and PDF are made from.

It does not write files: see figure.py. Chinese and other names are drawn with the fonts of the machine that
draws: the reader's for SVG and HTML; for PNG and PDF a CJK font (Noto Sans CJK, say) must be installed here.
"""

from __future__ import annotations

import json
import textwrap
from typing import Any
from unicodedata import east_asian_width

import altair as alt

from needlemap.maps.map import Map
from needlemap.reports.labels import all_failures, length_range, missing_label, score_label
from needlemap.reports.layout import Layout, make_layout
from needlemap.reports.palette import palette_colours

FONT = "DejaVu Sans, Helvetica, Arial, Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif"
HATCH = ("#F2F2F2", "#8C8C8C")
INK = "#222222"
SPACE_BESIDE = 150  # pixels right and left of the map that a title may use too
COUNTS = ("n:Q", "interval:N", "missing:N")


def heat_map(map: Map, *, title: str | None = None, palette: str = "amber") -> alt.LayerChart:
    """The chart of a map: lengths across, depths down, scores 0..100, mean over depths as a line.

    title: instead of model, task, tokenizer and lengths. Raises SettingsError for an unknown palette.
    """
    layout, colours = make_layout(map), palette_colours(palette)
    drawn = [_scored(layout, colours), _missing(layout), _partial(layout)]
    drawn += [_realised(layout)] if layout.realised else []
    cells = alt.layer(*drawn, data=_data(layout.cells))
    means = alt.layer(_mean_line(layout), _mean_points(layout), data=_data(layout.means))
    chart = alt.layer(cells, means).resolve_scale(y="independent")
    return _dressed(
        chart.properties(width=layout.width, height=layout.height, title=_title(map, title, layout))
    )


def _data(rows: tuple[dict[str, object], ...]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def _scored(layout: Layout, colours: tuple[str, ...]) -> alt.Chart:
    stops = [100 * place / (len(colours) - 1) for place in range(len(colours))]
    scale = alt.Scale(domain=stops, range=list(colours), interpolate="rgb", clamp=True)
    bar = alt.Legend(
        title="Score", values=[0, 25, 50, 75, 100], gradientLength=min(layout.height, 240), offset=14
    )
    colour = alt.Color("score:Q", scale=scale, legend=bar)
    scored: alt.Chart = _cell_mark(layout).transform_filter("datum.score !== null").encode(color=colour)
    return scored


def _missing(layout: Layout) -> alt.Chart:
    """Cells without any score: hatched, a pattern no palette has."""
    return _cell_mark(layout, fill=_hatch(layout)).transform_filter("datum.state === 'missing'")


def _partial(layout: Layout) -> alt.Chart:
    """A dark corner on scored cells that lack trials."""
    size = min(8.0, 0.6 * layout.width / max(1, len(layout.means)))
    mark = alt.Chart().mark_point(shape="M0,0L-1,0L0,1Z", filled=True, color=INK, size=size**2, opacity=0.8)
    corner: alt.Chart = mark.transform_filter("datum.state === 'partial'").encode(
        x=_length_axis(layout, band=1.0), y=_depth_axis(layout)
    )
    return corner


def _realised(layout: Layout) -> alt.Chart:
    """A white tick in each cell at the depth where its needle really was."""
    size = 0.6 * layout.width / max(1, len(layout.means))
    mark = alt.Chart().mark_tick(orient="horizontal", size=size, thickness=1.2, color="white", opacity=0.9)
    place = _depth_axis(layout)
    place.shorthand = "at:Q"
    ticks: alt.Chart = mark.transform_filter("isValid(datum.at)").encode(x=_length_axis(layout), y=place)
    return ticks


def _cell_mark(layout: Layout, fill: Any = alt.Undefined) -> alt.Chart:
    roomy = layout.width / max(1, len(layout.means)) >= 8
    mark = alt.Chart().mark_rect(stroke="white", strokeWidth=0.5 if roomy else 0, fill=fill)
    rectangle: alt.Chart = mark.encode(
        x=_length_axis(layout), y=_depth_axis(layout), y2="bottom:Q", tooltip=_tooltips("depth:N", "score")
    )
    return rectangle


def _mean_line(layout: Layout) -> alt.LayerChart:
    line = alt.Chart().encode(x=_length_axis(layout), y=_mean_axis())
    halo = line.mark_line(color="white", strokeWidth=4, strokeJoin="round", opacity=0.85)
    return alt.LayerChart(layer=[halo, line.mark_line(color=INK, strokeWidth=1.6, strokeJoin="round")])


def _mean_points(layout: Layout) -> alt.Chart:
    size = 42 if len(layout.means) <= 60 else 8
    mark = alt.Chart().mark_point(
        filled=True, fill="white", stroke=INK, strokeWidth=1.2, size=size, opacity=1
    )
    points: alt.Chart = mark.encode(
        x=_length_axis(layout), y=_mean_axis(), tooltip=_tooltips("mean over depths")
    )
    return points


def _tooltips(*names: str) -> list[alt.Tooltip]:
    """First the length; the last name is what the score is called; then n, interval and missing."""
    return [
        alt.Tooltip("tokens:N", title="length"),
        *(alt.Tooltip(name, title=name.split(":")[0]) for name in names[:-1]),
        alt.Tooltip("shown:N", title=names[-1]),
        *(alt.Tooltip(name, title=name.split(":")[0]) for name in COUNTS),
    ]


def _length_axis(layout: Layout, band: float = 0.5) -> alt.X:
    crowded = len(layout.length_ticks) > 14
    axis = alt.Axis(
        title="Length (tokens)",
        values=list(layout.length_ticks),
        labelExpr=_lookup({str(length): label for length, label in layout.length_ticks.items()}),
        labelAngle=-45 if crowded else 0,
        labelOverlap=False,
        domain=False,
    )
    scale = alt.Scale(domain=[row["length"] for row in layout.means], paddingInner=0, paddingOuter=0)
    return alt.X("length:O", axis=axis, scale=scale, bandPosition=band)


def _depth_axis(layout: Layout) -> alt.Y:
    axis = alt.Axis(
        title="Depth",
        values=list(layout.depth_ticks),
        labelExpr=_lookup({f"{place:g}": label for place, label in layout.depth_ticks.items()}),
        labelOverlap=False,
        grid=False,
        domain=False,
    )
    scale = alt.Scale(domain=[0, layout.rows], reverse=True, nice=False, zero=False)
    return alt.Y("top:Q", axis=axis, scale=scale)


def _mean_axis() -> alt.Y:
    axis = alt.Axis(title="Mean over depths", orient="right", values=[0, 25, 50, 75, 100], grid=False)
    return alt.Y("mean:Q", axis=axis, scale=alt.Scale(domain=[0, 100], nice=False))


def _lookup(labels: dict[str, str]) -> str:
    """A Vega expression that names a tick: our own labels, so no user text reaches the expression."""
    return f"({json.dumps(labels)})[datum.value]"


def _hatch(layout: Layout) -> alt.LinearGradient:
    """Diagonal stripes as a gradient with hard stops: Vega has no patterns; SVG, PDF and canvas keep this.

    The gradient's end is in shares of the cell, chosen so that the stripes lie at 45 degrees.
    """
    wide, high = layout.width / max(1, len(layout.means)), layout.height / max(1, len(layout.depth_ticks))
    stripes = min(12, max(2, round((wide + high) / 11)))
    scale = (wide + high) / (wide**2 + high**2)
    stops = [
        alt.GradientStop(offset=round((place + end) / (2 * stripes), 4), color=HATCH[place % 2])
        for place in range(2 * stripes)
        for end in (0, 1)
    ]
    return alt.LinearGradient(
        gradient="linear", x1=0, y1=0, x2=round(wide * scale, 4), y2=round(high * scale, 4), stops=stops
    )


def _title(map: Map, title: str | None, layout: Layout) -> alt.TitleParams:
    width = layout.width + SPACE_BESIDE
    known = title or f"{map.model} · {map.task} · {length_range(map.lengths)}"
    lines = [
        f"Overall {score_label(map.overall)} · n = {map.n} trials, 95 % Wilson intervals in tooltips",
        f"Tokenizer {map.tokenizer} · scorer {map.scorer} · mode {map.mode}"
        + (" · white ticks: realised depth in its bin" if layout.realised else ""),
        *_missing_line(map),
    ]
    subtitle = [part for line in lines for part in _wrapped(line, width / 6.4)]
    return alt.TitleParams(text=_wrapped(known, width / 8.6), subtitle=subtitle)


def _missing_line(map: Map) -> list[str]:
    """What is missing and how it is drawn; no line when nothing is."""
    missing = sum(cell.missing for cell in map.cells)
    signs = [
        *(["hatched: whole cell"] if any(cell.score is None for cell in map.cells) else []),
        *(["dark corner: part of it"] if any(cell.n and cell.missing for cell in map.cells) else []),
    ]
    return [f"Missing {missing_label(missing, all_failures(map))} · {'; '.join(signs)}"] if missing else []


def _wrapped(text: str, columns: float) -> list[str]:
    """Lines of at most so many letters; wide letters count twice."""
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    share = 1 + wide / max(1, len(text))
    limit = max(12, int(columns / share))
    return [part for line in text.splitlines() for part in textwrap.wrap(line, limit)] or [""]


def _dressed(chart: alt.LayerChart) -> alt.LayerChart:
    dressed: alt.LayerChart = (
        chart.configure(font=FONT, background="white", padding=10)
        .configure_title(
            anchor="start",
            frame="bounds",
            fontSize=14,
            subtitleFontSize=11,
            subtitleColor="#555555",
            offset=10,
        )
        .configure_axis(
            labelFontSize=10, titleFontSize=11, titleFontWeight="normal", ticks=False, labelPadding=4
        )
        .configure_legend(labelFontSize=10, titleFontSize=11, titleFontWeight="normal")
        .configure_view(stroke="#BBBBBB")
    )
    return dressed
