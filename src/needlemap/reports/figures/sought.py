"""The picture of what a run sought: raw counts of each length, the curve fitted to them, and the
interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np

from needlemap.records.loaded import Loaded
from needlemap.reports.colours import BAND, LINES
from needlemap.reports.figures import (
    ALONE,
    EDGE,
    FAINT,
    INK,
    SOFT,
    Drawing,
    draw_rows,
    line,
    mark,
    rect,
    rows,
)
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.heat import (
    SCORE,
    Box,
    DrawnMean,
    Plane,
    Stroke,
    below,
    draw_bands,
    length_axis,
)
from needlemap.reports.figures.panels import (
    map_title,
)
from needlemap.reports.labels import percent_of
from needlemap.reports.seek_report import asked_by_length, asked_line, length_line, sought_of
from needlemap.stats.intervals import effective_wilson
from needlemap.stats.seek import Sought

FOUND = "#F3E3C3"  # behind the interval
CURVE = Stroke(SOFT, BAND)
WORDS = (
    "Circles: what was asked, larger with more haystacks, 95 % intervals. Band: the fitted curve."
)


def draw_sought(runs: Sequence[Loaded], title: str | None, width: float | None) -> Drawing:
    """A plot a run, all of which seek, one below the other. width: of the paper in points,
    None for a screen's."""
    total, y, parts = width or ALONE, EDGE, list[str]()
    for run in runs:
        sought, named = sought_of(run), map_title(run.map) if title is None else title
        lines = (
            ["nothing is scored yet"]
            if sought is None
            else [length_line(sought), asked_line(sought), WORDS]
        )
        heading = rows(named, lines, total - 2 * EDGE)
        parts += draw_rows(heading, EDGE, y)
        y += sum(size for _, size, _ in heading) * 1.22 + 8
        if sought is not None:
            box = Box(EDGE + SCORE.room, y, total - 3 * EDGE - SCORE.room, min(0.45 * total, 200.0))
            parts += _plot(sought, box)
            y = below(box) + 8
    return Drawing(tuple(parts), total, y, width is not None)


def _plot(found: Sought, box: Box) -> list[str]:
    """The interval behind, the curve, what was asked before it."""
    axis, plane = make_axis(found.axis.lengths, ("log",)), Plane(box, SCORE)
    low, high = (_end(axis, end) for end in (found.low, found.high))
    left = plane.at(low, 0)[0]
    level = [plane.at(share, 100 * found.threshold) for share in (0, 1)]
    return [
        rect(left, box.y, plane.at(high, 0)[0] - left, box.height, FOUND),
        *plane.grid(),
        *plane.labels(),
        *draw_bands(_curve(found, axis), plane, CURVE, joined=True),
        line([plane.at(mean.place, mean.value or 0.0) for mean in _curve(found, axis)], SOFT, 0.8),
        line(level, SOFT, 0.5, stroke_dasharray="3 2"),
        *_draw_lengths(found, axis, plane),
        rect(*box, "none", stroke=FAINT, stroke_width=0.5),
        *length_axis(axis, box),
    ]


def _end(axis: Axis, tokens: float) -> float:
    """The position of an end; beyond the axis, the axis's edge."""
    return 0.0 if tokens == 0 else 1.0 if tokens == inf else axis.position(tokens)


def _curve(found: Sought, axis: Axis) -> list[DrawnMean]:
    ends = zip(found.axis.lengths, np.transpose(found.curve).tolist(), strict=True)
    return [
        DrawnMean(axis.position(length), percent_of(value), percent_of(low), percent_of(high))
        for length, (value, low, high) in ends
    ]


def _draw_lengths(found: Sought, axis: Axis, plane: Plane) -> list[str]:
    """A circle a length, its interval as of the trials over the design effect."""
    drawn, rows = list[str](), asked_by_length(found)
    most = max(asks for _, asks, _, _ in rows)
    for length, asks, trials, hits in rows:
        place, score = axis.position(length), hits / trials
        ends = effective_wilson(score, trials, found.effect, 1)
        drawn.append(line([plane.at(place, 100 * end) for end in ends], LINES[0], 0.5))
        size = 1.2 + 1.8 * sqrt(asks / most)
        drawn.append(mark(*plane.at(place, 100 * score), size, "circle", "white", INK))
    return drawn
