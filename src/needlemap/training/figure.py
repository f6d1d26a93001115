"""A series of checkpoints as a figure: score by length, a line a step with its band and
accuracy dotted below it, and beside it the length at which each step's score crosses one half.

Steps are ordered, so their colours are, from dark to light.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from needlemap.errors import NeedlemapError
from needlemap.reports.colours import PALETTES, colour_of
from needlemap.reports.figures import (
    EDGE,
    FAINT,
    SEVERAL,
    SOFT,
    TEXT,
    Drawing,
    draw_rows,
    fitted,
    line,
    mark,
    rect,
    rows,
    rows_height,
    text,
    wide,
)
from needlemap.reports.figures.axis import Axis, length_ticks, make_axis
from needlemap.reports.figures.curves import (
    DOTTED,
    MANY,
    MOST,
    NEAR,
    SHAPES,
    Curve,
    Plot,
    draw_plot,
    endings,
)
from needlemap.reports.figures.heat import (
    SCORE,
    TICK,
    Box,
    DrawnMean,
    Plane,
    Scale,
    Stroke,
    below,
    unbroken,
)
from needlemap.reports.report import Report
from needlemap.stats.effective import Effective
from needlemap.training.report import HALF, steps_of

_LIGHTEST = 0.85  # of viridis: its yellow is not seen on white
_GAP = 26.0


def draw_series(report: Report, *, title: str | None, width: float | None) -> Drawing:
    """A series' report. width: of the paper in points, None for a screen's. Raises
    NeedlemapError where nothing was scored."""
    lengths = sorted({length for each in report.chart for length in each.means})
    if not lengths:
        raise NeedlemapError("No trial was scored, so there is no curve. Finish the runs first.")
    axis, total = make_axis(lengths, ("linear", "log")), width or SEVERAL
    plot, crossings = Plot("", _curves(report)), steps_of(report)
    heading = rows(title or report.title, [_caption(report)], total - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    names = [wide(curve.name, bold=True) for curve in plot.curves]
    aside = min(0.2 * total, 12 + max(names))
    left, room = EDGE + SCORE.room, max(wide(label) for label in _labels(axis)) + 3 * TEXT
    each = (total - EDGE - left - aside - _GAP - room) / 2
    height = max(0.75 * each, NEAR * sum(bool(name) for name in names))
    box = Box(left, top + 12, each, height)
    other = Box(left + each + aside + _GAP + room, top + 12, each - EDGE, height)
    drawn = [
        *draw_rows([(fitted(report.axis, each, bold=True), TEXT, True)], box.x, top),
        *draw_plot(plot, axis, HALF, box),
        *endings(plot, axis, box, aside - 10),
        *draw_rows(
            [(fitted("Length at 50 %, by step", each, bold=True), TEXT, True)], other.x, top
        ),
        *_crossings(crossings, axis, other),
    ]
    return Drawing(
        (*draw_rows(heading, EDGE, EDGE), *drawn), total, below(box) + EDGE, width is not None
    )


def _curves(report: Report) -> tuple[Curve, ...]:
    """The report's lines, steps from dark to light; a dotted one has the colour of the line
    before it, and no name."""
    steps = sum(not each.dotted for each in report.chart)
    curves, at = list[Curve](), -1
    for each in report.chart:
        at += not each.dotted
        means = {length: mean for length, mean in each.means.items() if mean is not None}
        colour = _colour(at, steps)
        if each.dotted:
            look = Stroke(colour, colour, SHAPES[at % len(SHAPES)], 0.9, DOTTED, 0.0)
            curves.append(Curve("", means, None, look))
        else:
            opacity = 0.15 if steps <= MANY else 0.1 if steps <= MOST else 0.06
            look = Stroke(colour, colour, SHAPES[at % len(SHAPES)], 1.0, "", opacity)
            curves.append(Curve(each.name, means, None, look))
    return tuple(curves)


def _colour(at: int, of: int) -> str:
    share = _LIGHTEST * at / max(1, of - 1)
    return "#{:02X}{:02X}{:02X}".format(*colour_of(share, PALETTES["viridis"]))


def _caption(report: Report) -> str:
    dotted = any(each.dotted for each in report.chart)
    return " ".join(
        [
            "Bands and bars: 95 % intervals. Dashed: 50 %.",
            *(["Dotted: accuracy on the same items."] if dotted else []),
            "Right: where a step's score crosses 50 %; arrows lie beyond the lengths asked.",
        ]
    )


def _crossings(
    crossings: Sequence[tuple[int, Effective | None]], lengths: Axis, box: Box
) -> list[str]:
    """Steps across, lengths up: a point a step with its interval; an arrow for one that lies
    beyond the lengths asked."""
    steps = make_axis([step for step, _ in crossings], ("linear",))
    ticks = tuple(lengths.centres)
    plane = Plane(box, Scale("Length", "Length", "", (0, 1), ticks, SCORE.colours))
    parts = [*plane.grid(), rect(*box, "none", stroke=FAINT, stroke_width=0.5)]
    for share, label in length_ticks(lengths, lambda _: 1.15 * TEXT / box.height):
        parts.append(text(box.x - 3, plane.at(0, share)[1] + 0.35 * TEXT, label, anchor="end"))
    x = box.x - 3 - max(wide(label) for label in _labels(lengths)) - TEXT
    parts.append(text(x, box.y + box.height / 2, "Length (tokens)", anchor="middle", turned=-90))
    base = box.y + box.height
    for share, label in length_ticks(steps, lambda label: (wide(label) + 4) / box.width):
        at = box.x + share * box.width
        parts.append(line([(at, base), (at, base + TICK)], SOFT, 0.5))
        parts.append(text(at, base + TICK + TEXT, label, anchor="middle"))
    middle = box.x + box.width / 2
    parts.append(text(middle, base + TICK + 2 * TEXT + 1, "Training step", anchor="middle"))
    drawn = list[DrawnMean]()
    for at, (step, found) in enumerate(crossings):
        place, colour = steps.position(step), _colour(at, len(crossings))
        if found is None or found.value is None:
            drawn.append(DrawnMean(place))
            continue
        value, *ends = (_share_of(lengths, end) for end in (found.value, found.low, found.high))
        if None not in ends:
            pair = [plane.at(place, end) for end in ends if end is not None]
            parts.append(line(pair, colour, 1.0))
        inside = 0 < found.value < inf
        drawn.append(DrawnMean(place, value if inside else None))
        way = "triangle" if found.value == inf else "down" if not found.value else "circle"
        parts.append(mark(*plane.at(place, value or 0.0), 2.0, way, colour, colour))
    for part in unbroken(drawn):
        points = [plane.at(mean.place, mean.value) for mean in part if mean.value is not None]
        parts.append(line(points, SOFT, 0.6))
    return parts


def _share_of(axis: Axis, length: float | None) -> float | None:
    """Where a length lies on the axis, from 0 to 1; one beyond the lengths asked at the
    edge."""
    if length is None:
        return None
    if length in (0, inf):
        return 1.0 if length else 0.0
    if axis.kind == "even":
        return axis.centres[
            min(range(len(axis.values)), key=lambda i: abs(axis.values[i] - length))
        ]
    return min(1.0, max(0.0, axis.position(length)))


def _labels(axis: Axis) -> list[str]:
    return [label for _, label in length_ticks(axis, lambda _: 0.0)]
