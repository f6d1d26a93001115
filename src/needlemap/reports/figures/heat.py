"""A map as a panel: its cells, score by length above it and by depth beside it, on axes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from needlemap.reports.figures.axis import Axis, Ticks, depth_ticks, length_ticks
from needlemap.reports.figures.canvas import (
    FAINT,
    HATCHED,
    INK,
    SOFT,
    TEXT,
    Point,
    area,
    line,
    mark,
    rect,
    text,
    wide,
)
from needlemap.reports.style import colour_of

BAND = "#C9D3DF"
LONE = 0.66  # of its cell's sides: what one trial alone fills
GAP, ABOVE = 4.0, 7.0  # between a map and what stands beside and above it
ROW = 9.0  # of labels
TICK = 2.0


class Box(NamedTuple):
    """A place on the paper, in points."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Scale:
    """What colours and margins stand for. name: on an axis; words: in the legend. unit: behind numbers, '%'
    or ''. domain, ticks: in that unit."""

    name: str
    words: str
    unit: str
    domain: tuple[float, float]
    ticks: tuple[float, ...]
    colours: tuple[str, ...]

    @property
    def signed(self) -> bool:
        """Whether it is of differences."""
        return self.domain[0] < 0

    def share(self, value: float) -> float:
        """Where in the domain a value lies, from 0 to 1."""
        low, high = self.domain
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def colour(self, value: float) -> str:
        """The colour of a value."""
        return "#{:02X}{:02X}{:02X}".format(*colour_of(self.share(value), self.colours))

    def label(self, value: float) -> str:
        """A tick's label; of differences with its sign."""
        signed = f"{value:+g}".replace("-", "−") if self.signed and value else f"{value:g}"
        return f"{signed}{self.unit}"


@dataclass(frozen=True, slots=True)
class Cell:
    """length: which of the lengths. top, bottom: shares of the height. value: of the scale, None where
    nothing was measured. partial: some trials are missing; lone: it rests on one. needle: the share of the
    height at which it really was. tip: all of it in words."""

    length: float
    top: float
    bottom: float
    value: float | None
    partial: bool = False
    lone: bool = False
    needle: float | None = None
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Mean:
    """A point of a margin. place: on the axis, a share. Others in the scale's unit, None where not known."""

    place: float
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class MapPanel:
    """A map, ready to be drawn. depth_labels: of the values of its depths. depthless: it has none."""

    title: str
    lines: tuple[str, ...]
    lengths: Axis
    depths: Axis
    depth_labels: dict[float, str]
    cells: tuple[Cell, ...]
    by_length: tuple[Mean, ...]
    by_depth: tuple[Mean, ...]
    scale: Scale
    depthless: bool = False

    @property
    def axes(self) -> tuple[object, ...]:
        """What panels that share their axes' labels have in common."""
        return self.lengths, self.depths, self.depthless

    def height(self, width: float) -> float:
        """Of the map: flat where it has few rows."""
        rows = len(self.depths.values)
        return min(0.62 * width, max(24.0, 14.0 * rows), 190.0)

    def in_figures(self, width: float, height: float) -> bool:
        """Whether cells of a map so large have room for a difference in figures."""
        wides = min((high - low for low, high in self.lengths.edges), default=0.0)
        highs = min((cell.bottom - cell.top for cell in self.cells), default=0.0)
        return wides * width >= wide("−100") + 2 and highs * height >= TEXT + 1

    def depth_ticks(self, height: float) -> Ticks:
        """Its labels of depths."""
        return depth_ticks(self.depths, self.depth_labels, lambda _: 1.1 * TEXT / height)

    def left(self, height: float) -> float:
        """Room for its labels of depths, and of scores above them."""
        labels = max((wide(label) for _, label in self.depth_ticks(height)), default=0.0)
        return max(labels + TICK + 2 + ROW, self.scale_room)

    @property
    def scale_room(self) -> float:
        """Room for its labels of scores and their name."""
        return max(wide(self.scale.label(tick)) for tick in self.scale.ticks) + TICK + 2 + ROW


def draw_cells(panel: MapPanel, box: Box) -> list[str]:
    """All cells, and a frame."""
    in_figures = panel.in_figures(box.width, box.height)
    parts = []
    for cell in panel.cells:
        left, right = (box.x + share * box.width for share in panel.lengths.edge(cell.length))
        top, bottom = (box.y + share * box.height for share in (cell.top, cell.bottom))
        place = Box(left, top, right - left, bottom - top)
        parts += _cell(panel.scale, cell, place, box)
        if panel.scale.signed and cell.value is not None:
            parts += _signed(panel.scale, cell.value, place, in_figures=in_figures)
    return [*parts, rect(*box, "none", stroke=FAINT, stroke_width=0.5)]


def _cell(scale: Scale, cell: Cell, place: Box, box: Box) -> list[str]:
    """A cell at its place in the map's box."""
    x, y, width, height = place
    if cell.value is None:
        return [rect(x, y, width, height, HATCHED, tip=cell.tip)]
    parts = [_filled(place, box, cell, scale.colour(cell.value))]
    if cell.partial:
        corner = min(0.5 * width, 0.7 * height, 4.0)
        parts.append(area([(x + width - corner, y), (x + width, y), (x + width, y + corner)], INK))
    if cell.needle is not None and height >= 4:
        at = box.y + cell.needle * box.height
        parts.append(line([(x + 0.2 * width, at), (x + 0.8 * width, at)], "white", 0.6))
    return parts


def _signed(scale: Scale, value: float, cell: Box, *, in_figures: bool) -> list[str]:
    """A difference in figures, or where these have no room a loss's dash: a grey print knows no colours."""
    colour = colour_of(scale.share(value), scale.colours)
    ink = (
        INK if sum(weight * part for weight, part in zip((3, 6, 1), colour, strict=True)) > 1150 else "white"
    )
    x, y = cell.x + cell.width / 2, cell.y + cell.height / 2
    if in_figures:
        return [text(x, y + 0.35 * TEXT, scale.label(round(value)), anchor="middle", fill=ink)]
    reach = 0.3 * cell.width
    return [line([(x - reach, y), (x + reach, y)], ink, min(0.8, 0.25 * cell.height))] if value < 0 else []


def _filled(cell: Box, box: Box, of: Cell, colour: str) -> str:
    """Its colour: over all of it, up to a hair's breadth where it is large; of one trial less."""
    x, y, width, height = cell
    if of.lone:
        wide_, high = LONE * width, LONE * height
        return rect(x + (width - wide_) / 2, y + (height - high) / 2, wide_, high, colour, tip=of.tip)
    apart = 0.4 if min(width, height) > 5 else -0.15  # a little over the next, or seams show
    right = min(x + width - apart, box.x + box.width)
    bottom = min(y + height - apart, box.y + box.height)
    return rect(x, y, right - x, bottom - y, colour, tip=of.tip)


def draw_length_axis(panel: MapPanel, box: Box, *, titled: bool = True) -> list[str]:
    """Ticks and labels below a map."""
    return length_axis(panel.lengths, box, titled=titled)


def length_axis(axis: Axis, box: Box, *, titled: bool = True) -> list[str]:
    """Ticks and labels of lengths below a box."""
    base = box.y + box.height
    drawn = []
    for share, label in length_ticks(axis, lambda label: (wide(label) + 4) / box.width):
        x = box.x + share * box.width
        drawn.append(line([(x, base), (x, base + TICK)], SOFT, 0.5))
        drawn.append(text(x, base + TICK + TEXT, label, anchor="middle"))
    middle = box.x + box.width / 2
    name = "Length (tokens, log scale)" if axis.kind == "log" else "Length (tokens)"
    return [*drawn, *([text(middle, base + TICK + TEXT + ROW, name, anchor="middle")] if titled else [])]


def draw_depth_axis(panel: MapPanel, box: Box, *, titled: bool = True) -> list[str]:
    """Ticks and labels left of a map."""
    drawn = []
    for share, label in panel.depth_ticks(box.height):
        y = box.y + share * box.height
        drawn.append(line([(box.x - TICK, y), (box.x, y)], SOFT, 0.5))
        drawn.append(text(box.x - TICK - 1.5, y + 0.35 * TEXT, label, anchor="end"))
    if panel.depthless or not titled:
        return drawn
    x, y = box.x - panel.scale_room + TEXT - 1, box.y + box.height / 2
    return [*drawn, text(x, y, "Depth", anchor="middle", turned=-90)]


def draw_top(panel: MapPanel, box: Box, *, labelled: bool) -> list[str]:
    """Score by length, above the map."""
    scale, even = panel.scale, panel.lengths.kind == "even"

    def at(mean: Mean, value: float) -> Point:
        return box.x + mean.place * box.width, box.y + (1 - scale.share(value)) * box.height

    drawn = _ground(
        box, [box.y + (1 - scale.share(value)) * box.height for value in scale.ticks], across=True
    )
    if labelled:
        for value in _few(scale.ticks, box.height / (1.15 * TEXT)):
            _, y = at(Mean(0, None, None, None), value)
            drawn.append(text(box.x - 3, y + 0.35 * TEXT, scale.label(value), anchor="end"))
        x = box.x - panel.scale_room + TEXT - 1
        drawn.append(text(x, box.y + box.height / 2, scale.name, anchor="middle", turned=-90))
    return drawn + draw_means(panel.by_length, at, joined=not even, room=box.width)


def draw_side(panel: MapPanel, box: Box) -> list[str]:
    """Score by depth, beside the map."""
    scale = panel.scale

    def at(mean: Mean, value: float) -> Point:
        return box.x + scale.share(value) * box.width, box.y + mean.place * box.height

    lines = [at(Mean(0, None, None, None), value)[0] for value in scale.ticks]
    drawn = _ground(box, lines, across=False)
    for x, value in ((lines[0], scale.ticks[0]), (lines[-1], scale.ticks[-1])):
        drawn.append(text(x, box.y - 2.5, scale.label(value), anchor="middle"))
    drawn.append(text(box.x + box.width / 2, box.y - 2.5 - ROW, scale.name, anchor="middle"))
    return drawn + draw_means(panel.by_depth, at, joined=panel.depths.kind != "even", room=box.height)


def _few(values: Sequence[float], room: float) -> Sequence[float]:
    """As many as have room, the ends always."""
    return values if len(values) <= room else (values[0], values[-1])


def _ground(box: Box, grid: Iterable[float], *, across: bool) -> list[str]:
    """A margin's grid."""
    right, bottom = box.x + box.width, box.y + box.height
    ends = [((box.x, at), (right, at)) if across else ((at, box.y), (at, bottom)) for at in grid]
    return [line(pair, "#DDDDDD", 0.4) for pair in ends]


def draw_means(
    means: Sequence[Mean], at: Callable[[Mean, float], Point], *, joined: bool, room: float,
    colour: str = INK, band: str = BAND, shape: str = "circle",
) -> list[str]:  # fmt: skip
    """Means with their 95 % intervals: joined, with a band, where the axis is a scale; else with bars."""
    drawn = []
    for part in _unbroken(means):
        bounded = [mean for mean in part if mean.low is not None and mean.high is not None]
        if joined and len(part) > 1:
            above, below = [at(m, m.high or 0.0) for m in bounded], [at(m, m.low or 0.0) for m in bounded]
            drawn += [area([*above, *reversed(below)], band)] if bounded else []
            drawn.append(
                line([at(mean, mean.value or 0.0) for mean in part], colour, 0.8, stroke_linejoin="round")
            )
        else:
            drawn += [line([at(m, m.low or 0.0), at(m, m.high or 0.0)], colour, 0.7) for m in bounded]
    known = [mean for mean in means if mean.value is not None]
    size = 1.3 if room / max(1, len(means)) >= 5 else 0.0 if joined else 0.8
    return drawn + [mark(*at(m, m.value or 0.0), size, shape, "white", colour) for m in known if size]


def _unbroken(means: Sequence[Mean]) -> list[list[Mean]]:
    """Stretches without a gap."""
    parts: list[list[Mean]] = [[]]
    for mean in means:
        if mean.value is None:
            parts.append([])
        else:
            parts[-1].append(mean)
    return [part for part in parts if part]
