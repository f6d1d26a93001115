"""A map as a panel: its cells, score by length above it and by depth beside it, on axes of
their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from needlemap.reports.colours import (
    BAND,
    GRID,
    LINES,
    NOT_MEASURED,
    colour_of,
    hex_of,
    ink_on,
)
from needlemap.reports.figures import (
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
from needlemap.reports.figures.axis import Axis, Ticks, depth_ticks, length_ticks
from needlemap.reports.labels import percent_of, typeset
from needlemap.stats.effective import Mean as FamilyMean
from needlemap.stats.intervals import ClusterMean

GAP, ABOVE = 4.0, 7.0  # between a map and what stands beside and above it
ROW = 9.0  # of labels
TICK = 2.0
ARROW = 2.6  # of an interval that goes beyond its axis


class Box(NamedTuple):
    """A place on the paper, in points."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Scale:
    """What colours and margins stand for. name: on an axis; words: in the legend. unit: behind
    numbers, '%' or ''. domain, ticks: in that unit; of losses the domain begins with the
    greatest, which is drawn lowest. ends: what both ends of the colours mean."""

    name: str
    words: str
    unit: str
    domain: tuple[float, float]
    ticks: tuple[float, ...]
    colours: tuple[str, ...]
    ends: tuple[str, str] = ("", "")

    @property
    def signed(self) -> bool:
        """Whether it is of losses."""
        return self.domain[1] < 0

    @property
    def room(self) -> float:
        """What its labels and its name take, left of an axis."""
        return max(wide(self.label(tick)) for tick in self.ticks) + TICK + 2 + ROW

    def share(self, value: float) -> float:
        """Where in the domain a value lies, from 0 to 1."""
        return min(1.0, max(0.0, self.reach(value)))

    def reach(self, value: float) -> float:
        """The same of a value that may lie outside of it."""
        low, high = self.domain
        return (value - low) / (high - low)

    def colour(self, value: float) -> str:
        """The colour of a value."""
        return hex_of(colour_of(self.share(value), self.colours))

    def ink(self, value: float) -> str:
        """The colour of text on the colour of a value."""
        return ink_on(colour_of(self.share(value), self.colours))

    def label(self, value: float) -> str:
        """A tick's label."""
        return typeset(f"{value:g}{self.unit}")


SCORE = Scale("Score", "Score", "%", (0, 100), (0, 25, 50, 75, 100), LINES)


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """length: which of the lengths. top, bottom: shares of the height. value: of the scale,
    None where nothing was measured. partial: some trials are missing; thought: a thinking
    budget ended some answers. needle: the share of the height at which it really was. tip: all
    of it in words. unsent: nothing was sent. number: by which a page knows the cell. words: in
    it, where they have room."""

    length: float
    top: float
    bottom: float
    value: float | None
    partial: bool = False
    needle: float | None = None
    tip: str = ""
    thought: bool = False
    unsent: bool = False
    number: int | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class DrawnMean:
    """A point of a margin. place: on the axis, a share. Others in the scale's unit, None where
    not known."""

    place: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @classmethod
    def of(cls, place: float, mean: ClusterMean | FamilyMean | None) -> DrawnMean:
        """A mean, or none, in percent."""
        if mean is None:
            return cls(place)
        value, low, high = map(percent_of, (mean.score, mean.low, mean.high))
        return cls(place, value, low, high, getattr(mean, "n", None))


@dataclass(frozen=True, slots=True)
class MapPanel:
    """A map, ready to be drawn. depth_labels: of the values of its depths. depthless: it has
    none."""

    title: str
    lines: tuple[str, ...]
    lengths: Axis
    depths: Axis
    depth_labels: dict[float, str]
    cells: tuple[DrawnCell, ...]
    by_length: tuple[DrawnMean, ...]
    by_depth: tuple[DrawnMean, ...]
    scale: Scale
    depthless: bool = False

    @property
    def axes(self) -> tuple[object, ...]:
        """What panels that share their axes' labels have in common."""
        return self.lengths, self.depths, self.depthless

    def height(self, width: float) -> float:
        """The map's height: flat if it has few rows."""
        rows = len(self.depths.values)
        return min(0.62 * width, max(24.0, 14.0 * rows), 190.0)

    def in_figures(self, width: float, height: float) -> bool:
        """Whether cells of a map so large have room for a loss in figures."""
        wides = min((high - low for low, high in self.lengths.edges), default=0.0)
        highs = min((cell.bottom - cell.top for cell in self.cells), default=0.0)
        return wides * width >= wide("−100") + 2 and highs * height >= TEXT + 1

    def depth_ticks(self, height: float) -> Ticks:
        """Its labels of depths."""
        return depth_ticks(self.depths, self.depth_labels, lambda _: 1.1 * TEXT / height)

    def left(self, height: float) -> float:
        """Room for its labels of depths, and of scores above them."""
        labels = max((wide(label) for _, label in self.depth_ticks(height)), default=0.0)
        return max(labels + TICK + 2 + ROW, self.scale.room)


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
            parts += _signed(panel.scale, cell, place, in_figures=in_figures)
    return [*parts, rect(*box, "none", stroke=FAINT, stroke_width=0.5, pointer_events="none")]


def _of(cell: DrawnCell) -> dict[str, Any]:
    """By which a page knows what is on top of a cell, to set it on another colour."""
    return {} if cell.number is None else {"data_on": cell.number, "pointer_events": "none"}


def _cell(scale: Scale, cell: DrawnCell, place: Box, box: Box) -> list[str]:
    """A cell at its place in the map's box."""
    x, y, width, height = place
    known = {} if cell.number is None else {"data_cell": cell.number}
    if cell.unsent:
        dot = mark(
            x + width / 2, y + height / 2, min(0.8, width / 4, height / 4), "square", FAINT, FAINT
        )
        return [rect(x, y, width, height, NOT_MEASURED[0], tip=cell.tip, **known), dot]
    if cell.value is None:
        return [rect(x, y, width, height, HATCHED, tip=cell.tip, **known)]
    parts = [_filled(place, box, cell, scale.colour(cell.value))]
    if cell.partial:
        corner = min(0.5 * width, 0.7 * height, 4.0)
        points = [(x + width - corner, y), (x + width, y), (x + width, y + corner)]
        parts.append(area(points, scale.ink(cell.value), **_of(cell)))
    if cell.thought:
        reach = min(0.16 * width, 0.25 * height, 1.6)
        left, low = x + 2 * reach, y + height - 2 * reach
        parts.append(mark(left, low, reach, "circle", "white", INK))
    if cell.needle is not None and height >= 4:
        at = box.y + cell.needle * box.height
        ends = [(x + 0.2 * width, at), (x + 0.8 * width, at)]
        parts.append(line(ends, scale.ink(cell.value), 0.6, **_of(cell)))
    if cell.words and wide(cell.words) + 2 <= width and height >= TEXT + 1:
        middle, base, ink = x + width / 2, y + height / 2 + 0.35 * TEXT, scale.ink(cell.value)
        parts.append(
            text(middle, base, cell.words, anchor="middle", fill=ink, **_of(cell), class_="value")
        )
    return parts


def _signed(scale: Scale, cell: DrawnCell, place: Box, *, in_figures: bool) -> list[str]:
    """A loss in figures, none where nothing changed; where figures have no room a loss's dash:
    a grey print knows no colours."""
    value = cell.value or 0.0
    ink = scale.ink(value)
    x, y = place.x + place.width / 2, place.y + place.height / 2
    if in_figures:
        if not round(value):
            return []
        base = y + 0.35 * TEXT
        words = scale.label(round(value))
        return [text(x, base, words, anchor="middle", fill=ink, **_of(cell))]
    if value <= 0:
        return []
    ends = [(x - 0.3 * place.width, y), (x + 0.3 * place.width, y)]
    return [line(ends, ink, min(0.8, 0.25 * place.height), **_of(cell))]


def _filled(cell: Box, box: Box, of: DrawnCell, colour: str) -> str:
    """Its colour: over all of it, up to a hair's breadth where it is large."""
    x, y, width, height = cell
    apart = 0.4 if min(width, height) > 5 else -0.15  # a little over the next, or seams show
    right = min(x + width - apart, box.x + box.width)
    bottom = min(y + height - apart, box.y + box.height)
    known = {} if of.number is None else {"data_cell": of.number}
    return rect(x, y, right - x, bottom - y, colour, tip=of.tip, **known)


def length_axis(axis: Axis, box: Box) -> list[str]:
    """Ticks and labels of lengths below a box."""
    base = box.y + box.height
    drawn = []
    for share, label in length_ticks(axis, lambda label: (wide(label) + 4) / box.width):
        x = box.x + share * box.width
        drawn.append(line([(x, base), (x, base + TICK)], SOFT, 0.5))
        drawn.append(text(x, base + TICK + TEXT, label, anchor="middle"))
    middle = box.x + box.width / 2
    name = "Length (tokens, log scale)" if axis.kind == "log" else "Length (tokens)"
    return [*drawn, text(middle, base + TICK + TEXT + ROW, name, anchor="middle")]


def below(box: Box) -> float:
    """Where an axis of lengths ends."""
    return box.y + box.height + TICK + 2 * TEXT + 6


def draw_depth_axis(panel: MapPanel, box: Box) -> list[str]:
    """Ticks and labels left of a map."""
    drawn = []
    for share, label in panel.depth_ticks(box.height):
        y = box.y + share * box.height
        drawn.append(line([(box.x - TICK, y), (box.x, y)], SOFT, 0.5))
        drawn.append(text(box.x - TICK - 1.5, y + 0.35 * TEXT, label, anchor="end"))
    if panel.depthless:
        return drawn
    x, y = box.x - panel.left(box.height) + TEXT - 1, box.y + box.height / 2
    return [*drawn, text(x, y, "Depth", anchor="middle", turned=-90)]


@dataclass(frozen=True, slots=True)
class Plane:
    """Where scores by length, or by depth, are drawn. across: lengths run across it and scores
    up; else depths run down and scores across."""

    box: Box
    scale: Scale
    across: bool = True

    def at(self, place: float, value: float) -> Point:
        """The point of a place on the axis, a share of it, and a value."""
        share = self.scale.share(value)
        if self.across:
            return self.box.x + place * self.box.width, self.box.y + (1 - share) * self.box.height
        return self.box.x + share * self.box.width, self.box.y + place * self.box.height

    def beyond(self, mean: DrawnMean) -> list[str]:
        """An arrow at each edge that an interval goes beyond."""
        drawn, (least, most) = list[str](), self.scale.domain
        for end, edge, way in ((mean.low, least, 1), (mean.high, most, -1)):
            if end is not None and (self.scale.reach(edge) - self.scale.reach(end)) * way > 0:
                x, y = self.at(mean.place, edge)
                base = [(x - ARROW / 2, y - way * ARROW), (x + ARROW / 2, y - way * ARROW)]
                if not self.across:
                    base = [(x + way * ARROW, y - ARROW / 2), (x + way * ARROW, y + ARROW / 2)]
                drawn.append(area([*base, (x, y)], INK))
        return drawn

    def holds(self, mean: DrawnMean) -> bool:
        """Whether an interval leaves a part of the scale out: one that does not tells
        nothing."""
        if mean.low is None or mean.high is None:
            return False
        return self.scale.reach(mean.low) > 0 or self.scale.reach(mean.high) < 1

    def grid(self) -> list[str]:
        """A line at each of the scale's ticks."""
        return [line([self.at(0, tick), self.at(1, tick)], GRID, 0.4) for tick in self.scale.ticks]

    def labels(self) -> list[str]:
        """The scale's ticks and name, left of it; as many as have room, the ends always."""
        scale, box = self.scale, self.box
        few = len(scale.ticks) * 1.15 * TEXT > box.height
        found = (scale.ticks[0], scale.ticks[-1]) if few else scale.ticks
        ends = (
            text(box.x - 3, self.at(0, tick)[1] + 0.35 * TEXT, scale.label(tick), anchor="end")
            for tick in found
        )
        x = box.x - scale.room + TEXT - 1
        return [*ends, text(x, box.y + box.height / 2, scale.name, anchor="middle", turned=-90)]


def draw_counts(panel: MapPanel, box: Box) -> list[str]:
    """How many prompts each length's mean rests on, above it."""
    known = [(mean.place, f"{mean.n:,}") for mean in panel.by_length if mean.n]
    if not known:
        return []
    need = max(wide(words) for _, words in known) + 5
    step = max(1, ceil(need * len(known) / box.width))
    base = box.y - 3.5
    drawn = [
        text(box.x + place * box.width, base, words, anchor="middle", fill=SOFT)
        for place, words in known[::step]
    ]
    return [*drawn, text(box.x - 6, base, "n", anchor="end", fill=SOFT)]


def draw_top(panel: MapPanel, box: Box, *, labelled: bool) -> list[str]:
    """Score by length, above the map."""
    plane = Plane(box, panel.scale)
    labels = plane.labels() if labelled else []
    return [
        *plane.grid(),
        *labels,
        *draw_means(panel.by_length, plane, joined=panel.lengths.kind != "even"),
    ]


def draw_side(panel: MapPanel, box: Box) -> list[str]:
    """Score by depth, beside the map, its labels above."""
    plane, scale = Plane(box, panel.scale, across=False), panel.scale
    labels = [
        text(plane.at(0, tick)[0], box.y - 2.5, scale.label(tick), anchor="middle")
        for tick in (scale.ticks[0], scale.ticks[-1])
    ]
    name = text(box.x + box.width / 2, box.y - 2.5 - ROW, scale.name, anchor="middle")
    means = draw_means(panel.by_depth, plane, joined=panel.depths.kind != "even")
    return [*plane.grid(), *labels, name, *means]


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a line of means looks. shape: of its points. dash: of the line, if any. opacity: of
    its band."""

    colour: str = INK
    band: str = BAND
    shape: str = "circle"
    width: float = 0.8
    dash: str = ""
    opacity: float = 1.0


def draw_means(means: Sequence[DrawnMean], plane: Plane, *, joined: bool) -> list[str]:
    """Means with their 95 % intervals: joined, with a band, where the axis is a scale; else
    with bars."""
    look = Stroke()
    return [
        *draw_bands(means, plane, look, joined=joined),
        *draw_line(means, plane, look, joined=joined),
    ]


def draw_bands(
    means: Sequence[DrawnMean], plane: Plane, look: Stroke, *, joined: bool
) -> list[str]:
    """The intervals alone, to the edges of the scale. One that is as wide as the scale is a
    bar: a band of such is a rectangle that tells nothing."""
    drawn = []
    for part in unbroken(means):
        above = [plane.at(mean.place, mean.high) for mean in part if mean.high is not None]
        below = [plane.at(mean.place, mean.low) for mean in part if mean.low is not None]
        drawn += [arrow for mean in part for arrow in plane.beyond(mean)]
        if joined and len(above) > 1 and all(map(plane.holds, part)):
            drawn.append(area([*above, *reversed(below)], look.band, fill_opacity=look.opacity))
        else:
            drawn += [line(pair, look.colour, 0.7) for pair in zip(above, below, strict=True)]
    return drawn


def draw_line(means: Sequence[DrawnMean], plane: Plane, look: Stroke, *, joined: bool) -> list[str]:
    """The means alone."""
    drawn = []
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    for part in unbroken(means) if joined else []:
        points = [plane.at(mean.place, mean.value) for mean in part if mean.value is not None]
        drawn.append(line(points, look.colour, look.width, stroke_linejoin="round", **dash))
    room = plane.box.width if plane.across else plane.box.height
    size = 1.3 if room / max(1, len(means)) >= 5 else 0.0 if joined else 0.8
    known = [plane.at(mean.place, mean.value) for mean in means if mean.value is not None]
    return drawn + [mark(*point, size, look.shape, "white", look.colour) for point in known if size]


def unbroken(means: Sequence[DrawnMean]) -> list[list[DrawnMean]]:
    """Stretches without a gap."""
    parts: list[list[DrawnMean]] = [[]]
    for mean in means:
        if mean.value is None:
            parts.append([])
        else:
            parts[-1].append(mean)
    return [part for part in parts if part]
