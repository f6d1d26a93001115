"""A map as a panel: its cells, score by length above it and by depth beside it, on axes of
their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from needlemap.reports.colours import (
    BAND,
    FAINT,
    GRID,
    INK,
    LINES,
    NOT_MEASURED,
    SOFT,
    colour_of,
    hex_of,
    ink_on,
)
from needlemap.reports.figures.axis import Axis, Ticks, depth_ticks, length_ticks
from needlemap.reports.figures.shapes import (
    HATCHED,
    TEXT,
    Point,
    area,
    line,
    mark,
    rect,
    text,
    text_width,
)
from needlemap.reports.labels import percent_of, typeset
from needlemap.stats.effective import Mean as FamilyMean
from needlemap.stats.intervals import ClusterMean

# Between a map and what stands next to it and above it.
GAP, ABOVE = 4.0, 7.0
# The height of a row of labels.
ROW = 9.0
TICK = 2.0
# The arrow of an interval that goes beyond its axis.
ARROW = 2.6


class Box(NamedTuple):
    """A place on the paper, in points."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Scale:
    """What colours and margins stand for.

    Attributes:
        name: Its name on an axis.
        words: Its name in the legend.
        unit: What stands behind numbers: '%' or ''.
        domain, ticks: Values in that unit. The domain of losses starts with the greatest, which is
            drawn lowest.
        ends: What both ends of the colours mean.
    """

    name: str
    words: str
    unit: str
    domain: tuple[float, float]
    ticks: tuple[float, ...]
    colours: tuple[str, ...]
    ends: tuple[str, str] = ("", "")

    @property
    def signed(self) -> bool:
        """Return True if the scale is of losses."""
        return self.domain[1] < 0

    @property
    def room(self) -> float:
        """Return the room that its labels and its name take, left of an axis."""
        return max(text_width(self.label(tick)) for tick in self.ticks) + TICK + 2 + ROW

    def share(self, value: float) -> float:
        """Return the share of the domain at which a value lies, from 0 to 1."""
        return min(1.0, max(0.0, self.reach(value)))

    def reach(self, value: float) -> float:
        """Return the share of the domain at which a value lies, which may be outside 0 to 1."""
        low, high = self.domain
        return (value - low) / (high - low)

    def colour(self, value: float) -> str:
        """Return the colour of a value."""
        return hex_of(colour_of(self.share(value), self.colours))

    def ink(self, value: float) -> str:
        """Return the colour of text on the colour of a value."""
        return ink_on(colour_of(self.share(value), self.colours))

    def label(self, value: float) -> str:
        """Return a tick's label."""
        return typeset(f"{value:g}{self.unit}")


SCORE = Scale("Score", "Score", "%", (0, 100), (0, 25, 50, 75, 100), LINES)


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """A cell, ready to be drawn.

    Attributes:
        length: The length that it is of.
        top, bottom: Its place, as shares of the height.
        value: Its value on the scale; None if nothing was measured.
        partial: Whether some trials are missing.
        needle: The share of the height at which the needle really was.
        tip: All of it in words.
        thought: Whether a thinking budget ended some answers.
        unsent: Whether nothing was sent.
        number: The number by which a page knows the cell.
        words: The words in it, if they have room.
    """

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
    """A point of a margin.

    place: on the axis, a share. Others are in the scale's unit, None if not known.
    """

    place: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @classmethod
    def of(cls, place: float, mean: ClusterMean | FamilyMean | None) -> DrawnMean:
        """Return a mean in percent. If there is no mean, the point has no value."""
        if mean is None:
            return cls(place)
        value, low, high = map(percent_of, (mean.score, mean.low, mean.high))
        return cls(place, value, low, high, getattr(mean, "n", None))


@dataclass(frozen=True, slots=True)
class MapPanel:
    """A map, ready to be drawn.

    depth_labels: of the values of its depths. depthless: whether it has none.
    """

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
        """Return the axes, which are equal for panels that share their labels."""
        return self.lengths, self.depths, self.depthless

    def height(self, width: float) -> float:
        """Return the map's height, which is small if it has few rows."""
        rows = len(self.depths.values)
        return min(0.62 * width, max(24.0, 14.0 * rows), 190.0)

    def in_figures(self, width: float, height: float) -> bool:
        """Return True if cells of a map so large have room for a loss in figures."""
        width_share = min((high - low for low, high in self.lengths.edges), default=0.0)
        height_share = min((cell.bottom - cell.top for cell in self.cells), default=0.0)
        return width_share * width >= text_width("−100") + 2 and height_share * height >= TEXT + 1

    def depth_ticks(self, height: float) -> Ticks:
        """Return its labels of depths."""
        return depth_ticks(self.depths, self.depth_labels, lambda _: 1.1 * TEXT / height)

    def left(self, height: float) -> float:
        """Return the room for its labels of depths, and of scores above them."""
        labels = max((text_width(label) for _, label in self.depth_ticks(height)), default=0.0)
        return max(labels + TICK + 2 + ROW, self.scale.room)


def draw_cells(panel: MapPanel, box: Box) -> list[str]:
    """Return all cells, and a frame."""
    in_figures = panel.in_figures(box.width, box.height)
    parts = []
    for cell in panel.cells:
        left, right = (box.x + share * box.width for share in panel.lengths.edge(cell.length))
        top, bottom = (box.y + share * box.height for share in (cell.top, cell.bottom))
        place = Box(left, top, right - left, bottom - top)
        parts += _cell(panel.scale, cell, place, box)
        if panel.scale.signed and cell.value is not None:
            parts += _change_sign(panel.scale, cell, place, in_figures=in_figures)
    return [*parts, rect(*box, "none", stroke=FAINT, stroke_width=0.5, pointer_events="none")]


def _overlay_attributes(cell: DrawnCell) -> dict[str, Any]:
    """Return the attributes by which a page finds what lies on a cell."""
    return {} if cell.number is None else {"data_on": cell.number, "pointer_events": "none"}


def _cell(scale: Scale, cell: DrawnCell, place: Box, box: Box) -> list[str]:
    """Return a cell at its place in the map's box."""
    x, y, width, height = place
    attributes = {} if cell.number is None else {"data_cell": cell.number}
    if cell.unsent:
        size = min(0.8, width / 4, height / 4)
        dot = mark(x + width / 2, y + height / 2, size, shape="square", fill=FAINT, stroke=FAINT)
        return [rect(x, y, width, height, NOT_MEASURED[0], tip=cell.tip, **attributes), dot]
    if cell.value is None:
        return [rect(x, y, width, height, HATCHED, tip=cell.tip, **attributes)]
    parts = [_cell_area(place, box, cell, scale.colour(cell.value))]
    if cell.partial:
        corner = min(0.5 * width, 0.7 * height, 4.0)
        points = [(x + width - corner, y), (x + width, y), (x + width, y + corner)]
        parts.append(area(points, scale.ink(cell.value), **_overlay_attributes(cell)))
    if cell.thought:
        reach = min(0.16 * width, 0.25 * height, 1.6)
        left, bottom = x + 2 * reach, y + height - 2 * reach
        parts.append(mark(left, bottom, reach, "circle", "white", INK))
    if cell.needle is not None and height >= 4:
        needle_y = box.y + cell.needle * box.height
        ends = [(x + 0.2 * width, needle_y), (x + 0.8 * width, needle_y)]
        parts.append(line(ends, scale.ink(cell.value), 0.6, **_overlay_attributes(cell)))
    if cell.words and text_width(cell.words) + 2 <= width and height >= TEXT + 1:
        parts.append(
            text(
                x + width / 2,
                y + height / 2 + 0.35 * TEXT,
                cell.words,
                anchor="middle",
                fill=scale.ink(cell.value),
                **_overlay_attributes(cell),
                class_="value",
            )
        )
    return parts


def _change_sign(scale: Scale, cell: DrawnCell, place: Box, *, in_figures: bool) -> list[str]:
    """Return a loss in figures or, if they have no room, as a dash. A gain then has no sign.

    The sign is for grey prints, which show no colours. If nothing changed, nothing is drawn.
    """
    value = cell.value or 0.0
    ink = scale.ink(value)
    x, y = place.x + place.width / 2, place.y + place.height / 2
    if in_figures:
        if not round(value):
            return []
        base = y + 0.35 * TEXT
        words = scale.label(round(value))
        return [text(x, base, words, anchor="middle", fill=ink, **_overlay_attributes(cell))]
    if value <= 0:
        return []
    ends = [(x - 0.3 * place.width, y), (x + 0.3 * place.width, y)]
    return [line(ends, ink, min(0.8, 0.25 * place.height), **_overlay_attributes(cell))]


def _cell_area(place: Box, box: Box, drawn_cell: DrawnCell, colour: str) -> str:
    """Return a cell's colour. If the cell is large, a hair's breadth is left at its edges."""
    x, y, width, height = place
    # A small cell lies a little over the next, or seams show.
    gap = 0.4 if min(width, height) > 5 else -0.15
    right = min(x + width - gap, box.x + box.width)
    bottom = min(y + height - gap, box.y + box.height)
    attributes = {} if drawn_cell.number is None else {"data_cell": drawn_cell.number}
    return rect(x, y, right - x, bottom - y, colour, tip=drawn_cell.tip, **attributes)


def length_axis(axis: Axis, box: Box) -> list[str]:
    """Return ticks and labels of lengths below a box."""
    base = box.y + box.height
    parts = []
    for share, label in length_ticks(axis, lambda label: (text_width(label) + 4) / box.width):
        x = box.x + share * box.width
        parts.append(line([(x, base), (x, base + TICK)], SOFT, 0.5))
        parts.append(text(x, base + TICK + TEXT, label, anchor="middle"))
    middle = box.x + box.width / 2
    name = "Length (tokens, log scale)" if axis.kind == "log" else "Length (tokens)"
    return [*parts, text(middle, base + TICK + TEXT + ROW, name, anchor="middle")]


def below(box: Box) -> float:
    """Return the y below the axis of lengths of a box."""
    return box.y + box.height + TICK + 2 * TEXT + 6


def draw_depth_axis(panel: MapPanel, box: Box) -> list[str]:
    """Return ticks and labels left of a map."""
    parts = []
    for share, label in panel.depth_ticks(box.height):
        y = box.y + share * box.height
        parts.append(line([(box.x - TICK, y), (box.x, y)], SOFT, 0.5))
        parts.append(text(box.x - TICK - 1.5, y + 0.35 * TEXT, label, anchor="end"))
    if panel.depthless:
        return parts
    x, y = box.x - panel.left(box.height) + TEXT - 1, box.y + box.height / 2
    return [*parts, text(x, y, "Depth", anchor="middle", turned=-90)]


@dataclass(frozen=True, slots=True)
class Plane:
    """Where scores by length, or by depth, are drawn.

    across: whether lengths run across it and scores up; else depths run down and scores across.
    """

    box: Box
    scale: Scale
    across: bool = True

    def at(self, place: float, value: float) -> Point:
        """Return the point of a place on the axis, a share of it, and a value."""
        share = self.scale.share(value)
        if self.across:
            return self.box.x + place * self.box.width, self.box.y + (1 - share) * self.box.height
        return self.box.x + share * self.box.width, self.box.y + place * self.box.height

    def beyond(self, mean: DrawnMean) -> list[str]:
        """Return an arrow at each edge that an interval goes beyond."""
        arrows: list[str] = []
        scale_start, scale_end = self.scale.domain
        for end, edge, direction in ((mean.low, scale_start, 1), (mean.high, scale_end, -1)):
            if end is not None and (self.scale.reach(edge) - self.scale.reach(end)) * direction > 0:
                x, y = self.at(mean.place, edge)
                base = [
                    (x - ARROW / 2, y - direction * ARROW),
                    (x + ARROW / 2, y - direction * ARROW),
                ]
                if not self.across:
                    base = [
                        (x + direction * ARROW, y - ARROW / 2),
                        (x + direction * ARROW, y + ARROW / 2),
                    ]
                arrows.append(area([*base, (x, y)], INK))
        return arrows

    def holds(self, mean: DrawnMean) -> bool:
        """Return True if an interval is narrower than the scale, so that it shows something."""
        if mean.low is None or mean.high is None:
            return False
        return self.scale.reach(mean.low) > 0 or self.scale.reach(mean.high) < 1

    def grid(self) -> list[str]:
        """Return a line at each of the scale's ticks."""
        return [line([self.at(0, tick), self.at(1, tick)], GRID, 0.4) for tick in self.scale.ticks]

    def labels(self) -> list[str]:
        """Return the scale's ticks and name, left of it. If ticks have no room, only the ends."""
        scale, box = self.scale, self.box
        is_low = len(scale.ticks) * 1.15 * TEXT > box.height
        ticks = (scale.ticks[0], scale.ticks[-1]) if is_low else scale.ticks
        labels = (
            text(box.x - 3, self.at(0, tick)[1] + 0.35 * TEXT, scale.label(tick), anchor="end")
            for tick in ticks
        )
        x = box.x - scale.room + TEXT - 1
        return [*labels, text(x, box.y + box.height / 2, scale.name, anchor="middle", turned=-90)]


def draw_counts(panel: MapPanel, box: Box) -> list[str]:
    """Return the number of prompts of each length, above its mean."""
    counts = [(mean.place, f"{mean.n:,}") for mean in panel.by_length if mean.n]
    if not counts:
        return []
    label_width = max(text_width(words) for _, words in counts) + 5
    step = max(1, ceil(label_width * len(counts) / box.width))
    base = box.y - 5
    labels = [
        text(box.x + place * box.width, base, words, anchor="middle", fill=SOFT)
        for place, words in counts[::step]
    ]
    return [*labels, text(box.x - 6, base, "n", anchor="end", fill=SOFT)]


def draw_top(panel: MapPanel, box: Box, *, labelled: bool) -> list[str]:
    """Return score by length, above the map."""
    plane = Plane(box, panel.scale)
    labels = plane.labels() if labelled else []
    return [
        *plane.grid(),
        *labels,
        *draw_means(panel.by_length, plane, joined=panel.lengths.kind != "even"),
    ]


def draw_side(panel: MapPanel, box: Box) -> list[str]:
    """Return score by depth, next to the map, with its labels above."""
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
    """How a line of means looks.

    shape: of its points. dash: of the line, if any. opacity: of its band.
    """

    colour: str = INK
    band: str = BAND
    shape: str = "circle"
    width: float = 0.8
    dash: str = ""
    opacity: float = 1.0


def draw_means(means: Sequence[DrawnMean], plane: Plane, *, joined: bool) -> list[str]:
    """Return means with their 95 % intervals.

    If `joined`, a line joins them and the intervals are a band; else the intervals are bars.
    """
    look = Stroke()
    return [
        *draw_bands(means, plane, look, joined=joined),
        *draw_line(means, plane, look, joined=joined),
    ]


def draw_bands(
    means: Sequence[DrawnMean], plane: Plane, look: Stroke, *, joined: bool
) -> list[str]:
    """Return the intervals alone, cut at the edges of the scale.

    If an interval is as wide as the scale, it is a bar, because a band would be a rectangle that
    shows nothing.
    """
    parts = []
    for stretch in split_at_gaps(means):
        upper_ends = [plane.at(mean.place, mean.high) for mean in stretch if mean.high is not None]
        lower_ends = [plane.at(mean.place, mean.low) for mean in stretch if mean.low is not None]
        parts += [arrow for mean in stretch for arrow in plane.beyond(mean)]
        if joined and len(upper_ends) > 1 and all(map(plane.holds, stretch)):
            parts.append(
                area([*upper_ends, *reversed(lower_ends)], look.band, fill_opacity=look.opacity)
            )
        else:
            parts += [
                line(pair, look.colour, 0.7) for pair in zip(upper_ends, lower_ends, strict=True)
            ]
    return parts


def draw_line(means: Sequence[DrawnMean], plane: Plane, look: Stroke, *, joined: bool) -> list[str]:
    """Return the means alone: their line if `joined`, and a mark each if marks have room."""
    parts = []
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    for stretch in split_at_gaps(means) if joined else []:
        points = [plane.at(mean.place, mean.value) for mean in stretch if mean.value is not None]
        parts.append(line(points, look.colour, look.width, stroke_linejoin="round", **dash))
    room = plane.box.width if plane.across else plane.box.height
    if room / max(1, len(means)) >= 5:
        size = 1.3
    elif joined:
        # Points have no room, and the line shows the means.
        return parts
    else:
        size = 0.8
    for mean in means:
        if mean.value is not None:
            x, y = plane.at(mean.place, mean.value)
            parts.append(mark(x, y, size, shape=look.shape, fill="white", stroke=look.colour))
    return parts


def split_at_gaps(means: Sequence[DrawnMean]) -> list[list[DrawnMean]]:
    """Return the stretches of means between gaps. A mean without a value is a gap."""
    stretches: list[list[DrawnMean]] = [[]]
    for mean in means:
        if mean.value is None:
            stretches.append([])
        else:
            stretches[-1].append(mean)
    return [stretch for stretch in stretches if stretch]
