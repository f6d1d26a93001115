"""What a map is drawn with, as Vega-Lite: cells, ticks, the line of means, axes. What is drawn: chart.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from needlemap.reports.layout import Layout
from needlemap.reports.style import Style

Spec = dict[str, Any]  # a part of a Vega-Lite specification

HATCH = ("#F2F2F2", "#8C8C8C")
INK = "#222222"
COUNTS = ("n", "interval", "missing")
SLANT_FROM = 15  # labels


@dataclass(frozen=True, slots=True)
class Measure:
    """What colours and line stand for: name and line_name are titles, domain what colours reach over.

    values: ticks of the colour bar. zero: whether the line at 0 is drawn.
    """

    name: str
    line_name: str
    domain: tuple[float, float]
    values: tuple[float, ...]
    colours: tuple[str, ...]
    zero: bool = False


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws one layout in one style."""

    layout: Layout
    measure: Measure
    style: Style

    @property
    def column(self) -> float:
        """Width of a column."""
        return self.layout.width / max(1, len(self.layout.means))

    def scored(self, *, legend: bool) -> Spec:
        """Cells in their colours."""
        low, high = self.measure.domain
        steps = len(self.measure.colours) - 1
        stops = [low + (high - low) * place / steps for place in range(steps + 1)]
        scale = {"domain": stops, "range": list(self.measure.colours), "interpolate": "rgb", "clamp": True}
        colour = {**_number("score"), "scale": scale, "legend": self._legend() if legend else None}
        return self._cells("datum.score !== null", color=colour)

    def missing(self) -> Spec:
        """Cells without any score: hatched, a pattern no palette has."""
        found = self._cells("datum.state === 'missing'")
        return {**found, "mark": {**found["mark"], "fill": self._hatch()}}

    def partial(self) -> Spec:
        """A dark corner on scored cells that lack trials."""
        size = min(0.8 * self.style.label, 0.6 * self.column)
        corner = {"type": "point", "shape": "M0,0L-1,0L0,1Z", "filled": True, "color": INK, "opacity": 0.8}
        return {
            "transform": [{"filter": "datum.state === 'partial'"}],
            "mark": {**corner, "size": size**2},
            "encoding": {"x": self._length(band=1.0), "y": self._depth("top")},
        }

    def realised(self) -> Spec:
        """A white tick in each cell at the depth where its needle really was."""
        tick = {"type": "tick", "orient": "horizontal", "color": "white", "opacity": 0.9}
        return {
            "transform": [{"filter": "isValid(datum.at)"}],
            "mark": {**tick, "size": 0.6 * self.column, "thickness": 0.75 * self.style.line},
            "encoding": {"x": self._length(), "y": self._depth("at")},
        }

    def bars(self) -> Spec:
        """The 95 % interval of each mean, black on a white halo."""
        width = self.style.line
        halo = {"type": "rule", "color": "white", "strokeWidth": 1.75 * width, "opacity": 0.85}
        return {
            "transform": [{"filter": "isValid(datum.low)"}],
            "encoding": {"x": self._length(), "y": self._mean("low"), "y2": {"field": "high"}},
            "layer": [
                {"mark": halo},
                {"mark": {"type": "rule", "color": INK, "strokeWidth": 0.75 * width}},
            ],
        }

    def line(self) -> Spec:
        """Means joined, black on a white halo."""
        line, width = {"type": "line", "strokeJoin": "round"}, self.style.line
        return {
            "encoding": {"x": self._length(), "y": self._mean("mean")},
            "layer": [
                {"mark": {**line, "color": "white", "strokeWidth": 2.5 * width, "opacity": 0.85}},
                {"mark": {**line, "color": INK, "strokeWidth": width}},
            ],
        }

    def points(self) -> Spec:
        """Means, with tooltips."""
        size = self.style.point if self.column >= 0.8 * self.style.label else self.style.point / 5
        point = {"type": "point", "filled": True, "fill": "white", "stroke": INK, "opacity": 1}
        return {
            "mark": {**point, "size": size, "strokeWidth": 0.75 * self.style.line},
            "encoding": {
                "x": self._length(),
                "y": self._mean("mean"),
                "tooltip": _tooltips(self.measure.line_name),
            },
        }

    def zero(self) -> Spec:
        """Where the line says that nothing changed."""
        rule = {"type": "rule", "color": INK, "strokeDash": [2, 2], "strokeWidth": 0.5 * self.style.line}
        return {"mark": rule, "encoding": {"y": {"datum": 0}}}

    def _cells(self, which: str, **encoding: Spec) -> Spec:
        stroke = 0.05 * self.style.label if self.column >= 0.8 * self.style.label else 0
        places = {"x": self._length(), "y": self._depth("top"), "y2": {"field": "bottom"}}
        return {
            "transform": [{"filter": which}],
            "mark": {"type": "rect", "stroke": "white", "strokeWidth": stroke},
            "encoding": {
                **places,
                **encoding,
                "tooltip": _tooltips("depth", self.measure.name.lower()),
            },
        }

    def _legend(self) -> Spec:
        named = {"title": self.measure.name, "values": list(self.measure.values)}
        if not self.style.legend_below:
            return {**named, "gradientLength": min(self.layout.height, 240), "offset": 14}
        below = {"orient": "bottom", "direction": "horizontal", "titleOrient": "left"}
        size = {"gradientLength": 0.6 * self.layout.width, "gradientThickness": 0.8 * self.style.label}
        return {**named, **below, **size, "offset": self.style.gap}

    def _length(self, band: float = 0.5) -> Spec:
        ticks = self.layout.length_ticks
        axis = {
            "title": "Length (tokens)",
            "values": list(ticks),
            "labelExpr": _lookup({str(length): label for length, label in ticks.items()}),
            "labelAngle": -45 if self.style.slanted and len(ticks) >= SLANT_FROM else 0,
            "labelOverlap": False,
            "domain": False,
        }
        order = [row["length"] for row in self.layout.means]
        scale = {"domain": order, "paddingInner": 0, "paddingOuter": 0}
        return {"field": "length", "type": "ordinal", "axis": axis, "scale": scale, "bandPosition": band}

    def _depth(self, field: str) -> Spec:
        ticks = self.layout.depth_ticks
        axis = {
            "title": None if self.layout.depthless else "Depth",
            "values": list(ticks),
            "labelExpr": _lookup({f"{place:g}": label for place, label in ticks.items()}),
            "labelOverlap": False,
            "grid": False,
            "domain": False,
        }
        scale = {"domain": [0, self.layout.rows], "reverse": True, "nice": False, "zero": False}
        return {**_number(field), "axis": axis, "scale": scale}

    def _mean(self, field: str) -> Spec:
        values = list(self.measure.values)
        axis = {
            "title": self.measure.line_name, "orient": "right", "values": values, "grid": False,
            "domain": False,
        }  # fmt: skip
        return {**_number(field), "axis": axis, "scale": {"domain": list(self.measure.domain), "nice": False}}

    def _hatch(self) -> Spec:
        """Diagonal stripes as a gradient with hard stops: Vega has no patterns; SVG and PDF keep this.

        The gradient's end is in shares of the cell, chosen so that the stripes lie at 45 degrees.
        """
        wide, high = self.column, self.layout.height / max(1, len(self.layout.depth_ticks))
        stripes = min(12, max(2, round((wide + high) / (1.1 * self.style.label))))
        scale = (wide + high) / (wide**2 + high**2)
        stops = [
            {"offset": round((place + end) / (2 * stripes), 4), "color": HATCH[place % 2]}
            for place in range(2 * stripes)
            for end in (0, 1)
        ]
        ends = {"x1": 0, "y1": 0, "x2": round(wide * scale, 4), "y2": round(high * scale, 4)}
        return {"gradient": "linear", **ends, "stops": stops}


def _number(field: str) -> Spec:
    return {"field": field, "type": "quantitative"}


def _tooltips(*names: str) -> list[Spec]:
    """First the length; the last name is what the score is called; then n, interval and missing."""
    return [
        _tooltip("tokens", "length"),
        *(_tooltip(name, name) for name in names[:-1]),
        _tooltip("shown", names[-1]),
        *(_tooltip(name, name) for name in COUNTS),
    ]


def _tooltip(field: str, title: str) -> Spec:
    return {"field": field, "type": "nominal", "title": title}


def _lookup(labels: dict[str, str]) -> str:
    """A Vega expression that names a tick: our own labels, so no user text reaches the expression."""
    return f"({json.dumps(labels)})[datum.value]"
