"""Draw a series of checkpoints as a figure with two parts.

On the left there is score by length, with a line and a band for each step, and accuracy dotted
below it. On the right there is the length at which each step's score crosses one half. Steps are
ordered, so their colours are ordered too, from dark to light.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from needlemap.errors import NeedlemapError
from needlemap.reports.colours import FAINT, PALETTES, SOFT, colour_of, hex_of
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
    end_labels,
)
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.heat import (
    SCORE,
    TICK,
    Box,
    DrawnMean,
    Plane,
    Scale,
    Stroke,
    below,
    split_at_gaps,
)
from needlemap.reports.figures.shapes import (
    EDGE,
    SEVERAL,
    TEXT,
    cut_text,
    draw_rows,
    line,
    mark,
    rect,
    rows,
    rows_height,
    text,
    text_width,
)
from needlemap.reports.report import Report
from needlemap.stats.effective import Effective
from needlemap.training.report import HALF, steps_of

# The largest share of viridis. Its yellow is hard to see on white.
_LIGHTEST = 0.85
_GAP = 26.0


def draw_series(report: Report, *, title: str | None, width: float | None) -> Drawing:
    """Draw the report of a series.

    width: of the paper in points; None for a screen. Raises NeedlemapError if nothing was scored.
    """
    lengths = sorted({length for chart_line in report.chart for length in chart_line.means})
    if not lengths:
        raise NeedlemapError("No trial was scored, so there is no curve. Finish the runs first.")
    axis = make_axis(lengths, ("linear", "log"))
    plot = Plot("", _curves(report))
    total_width = width or SEVERAL

    heading = rows(title or report.title, [_caption(report)], total_width - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    left = EDGE + SCORE.room
    name_widths = [text_width(curve.name, bold=True) for curve in plot.curves]
    names_width = min(0.2 * total_width, 12 + max(name_widths))
    labels_width = max(text_width(label) for label in _labels(axis)) + 3 * TEXT
    box_width = (total_width - EDGE - left - names_width - _GAP - labels_width) / 2
    names = sum(bool(name_width) for name_width in name_widths)
    height = max(0.75 * box_width, NEAR * names)

    score_box = Box(left, top + 12, box_width, height)
    crossing_left = left + box_width + names_width + _GAP + labels_width
    crossing_box = Box(crossing_left, top + 12, box_width - EDGE, height)
    score_title = cut_text(report.axis, box_width, bold=True)
    crossing_title = cut_text("Length at 50 %, by step", box_width, bold=True)
    parts = [
        *draw_rows(heading, EDGE, EDGE),
        *draw_rows([(score_title, TEXT, True)], score_box.x, top),
        *draw_plot(plot, axis, rule=HALF, box=score_box),
        *end_labels(plot, axis, box=score_box, room=names_width - 10),
        *draw_rows([(crossing_title, TEXT, True)], crossing_box.x, top),
        *_draw_crossings(steps_of(report), axis, box=crossing_box),
    ]
    return Drawing(tuple(parts), total_width, below(score_box) + EDGE, width is not None)


def _curves(report: Report) -> tuple[Curve, ...]:
    """Return the report's lines as curves, with steps from dark to light.

    A dotted curve has the colour of the curve before it, and no name.
    """
    steps = sum(not chart_line.dotted for chart_line in report.chart)
    # Bands of many steps cover each other, so they are fainter.
    opacity = 0.06
    if steps <= MANY:
        opacity = 0.15
    elif steps <= MOST:
        opacity = 0.1

    curves = list[Curve]()
    step_index = -1
    for chart_line in report.chart:
        if not chart_line.dotted:
            step_index += 1
        means = {length: mean for length, mean in chart_line.means.items() if mean is not None}
        colour = _colour(step_index, steps)
        shape = SHAPES[step_index % len(SHAPES)]
        if chart_line.dotted:
            stroke = Stroke(
                colour,
                band=colour,
                shape=shape,
                width=0.9,
                dash=DOTTED,
                opacity=0.0,
            )
            curves.append(Curve("", means, effective=None, stroke=stroke))
        else:
            stroke = Stroke(colour, band=colour, shape=shape, width=1.0, opacity=opacity)
            curves.append(Curve(chart_line.name, means, effective=None, stroke=stroke))
    return tuple(curves)


def _colour(index: int, count: int) -> str:
    """Return the colour of a step, as #RRGGBB. index: from 0. count: of all steps."""
    share = _LIGHTEST * index / max(1, count - 1)
    return hex_of(colour_of(share, PALETTES["viridis"]))


def _caption(report: Report) -> str:
    sentences = ["Bands and bars: 95 % intervals. Dashed: 50 %."]
    if any(chart_line.dotted for chart_line in report.chart):
        sentences.append("Dotted: accuracy on the same items.")
    sentences.append(
        "Right: where a step's score crosses 50 %; arrows lie beyond the lengths asked."
    )
    return " ".join(sentences)


def _draw_crossings(
    crossings: Sequence[tuple[int, Effective | None]], length_axis: Axis, box: Box
) -> list[str]:
    """Draw the length at which each step crosses one half, with its interval.

    Steps are drawn across and lengths up. An arrow stands for a length beyond the measured ones.
    """
    step_axis = make_axis([step for step, _ in crossings], ("linear",))
    scale = Scale(
        "Length",
        "Length",
        unit="",
        domain=(0, 1),
        ticks=tuple(length_axis.centres),
        colours=SCORE.colours,
    )
    plane = Plane(box, scale)
    parts = [
        *plane.grid(),
        rect(*box, "none", stroke=FAINT, stroke_width=0.5),
        *_draw_ticks(length_axis, step_axis, plane=plane),
    ]
    points = list[DrawnMean]()
    for index, (step, crossing) in enumerate(crossings):
        x_share = step_axis.position(step)
        if crossing is None or crossing.value is None:
            points.append(DrawnMean(x_share))
            continue

        colour = _colour(index, len(crossings))
        low = _share_of(length_axis, crossing.low)
        high = _share_of(length_axis, crossing.high)
        if low is not None and high is not None:
            interval = [plane.at(x_share, low), plane.at(x_share, high)]
            parts.append(line(interval, colour, 1.0))

        y_share = _share_of(length_axis, crossing.value)
        if crossing.value == inf:
            shape = "triangle"
        elif crossing.value == 0:
            shape = "down"
        else:
            shape = "circle"
        # No line leads to an arrow.
        is_measured = 0 < crossing.value < inf
        points.append(DrawnMean(x_share, y_share if is_measured else None))
        x, y = plane.at(x_share, y_share or 0.0)
        parts.append(mark(x, y, 2.0, shape, colour, colour))
    for stretch in split_at_gaps(points):
        path = [plane.at(point.place, point.value) for point in stretch if point.value is not None]
        parts.append(line(path, SOFT, 0.6))
    return parts


def _draw_ticks(length_axis: Axis, step_axis: Axis, plane: Plane) -> list[str]:
    """Draw the labels of lengths on the left of a plane, and those of steps below it."""
    box = plane.box
    parts = list[str]()
    for share, label in length_ticks(length_axis, lambda _: 1.15 * TEXT / box.height):
        _, y = plane.at(0, share)
        parts.append(text(box.x - 3, y + 0.35 * TEXT, label, anchor="end"))
    title_x = box.x - 3 - max(text_width(label) for label in _labels(length_axis)) - TEXT
    title_y = box.y + box.height / 2
    parts.append(text(title_x, title_y, "Length (tokens)", anchor="middle", turned=-90))

    base = box.y + box.height
    for share, label in length_ticks(step_axis, lambda label: (text_width(label) + 4) / box.width):
        x = box.x + share * box.width
        parts.append(line([(x, base), (x, base + TICK)], SOFT, 0.5))
        parts.append(text(x, base + TICK + TEXT, label, anchor="middle"))
    middle = box.x + box.width / 2
    parts.append(text(middle, base + TICK + 2 * TEXT + 1, "Training step", anchor="middle"))
    return parts


def _share_of(axis: Axis, length: float | None) -> float | None:
    """Return where a length lies on the axis, from 0 to 1.

    A length beyond the measured ones lies at the edge.
    """
    if length is None:
        return None
    if length == 0:
        return 0.0
    if length == inf:
        return 1.0
    if axis.kind == "even":
        indices = range(len(axis.values))
        nearest = min(indices, key=lambda index: abs(axis.values[index] - length))
        return axis.centres[nearest]
    return min(1.0, max(0.0, axis.position(length)))


def _labels(axis: Axis) -> list[str]:
    return [label for _, label in length_ticks(axis, lambda _: 0.0)]
