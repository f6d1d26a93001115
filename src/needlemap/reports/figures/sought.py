"""The picture of what a run sought: raw counts of each length, the curve fitted to them, and the
interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt

import numpy as np

from needlemap.records.loaded import Loaded
from needlemap.reports.colours import BAND, FAINT, INK, LINES, SOFT
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.drawing import Drawing
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
from needlemap.reports.figures.panels import map_title
from needlemap.reports.figures.shapes import ALONE, EDGE, draw_rows, line, mark, rect, rows
from needlemap.reports.labels import percent_of
from needlemap.reports.seek_report import asked_by_length, asked_line, length_line, seek_result_of
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.seek import Sought

# Behind the interval.
INTERVAL = "#F3E3C3"
CURVE = Stroke(SOFT, BAND)
WORDS = (
    "Circles: what was asked, larger with more haystacks, 95 % intervals. Band: the fitted curve."
)


def draw_sought(runs: Sequence[Loaded], title: str | None, width: float | None) -> Drawing:
    """Draw a plot a run, all of which seek, one below the other.

    width: of the paper in points, None for a screen's.
    """
    paper_width = width or ALONE
    y = EDGE
    parts: list[str] = []
    for run in runs:
        sought = seek_result_of(run)
        lines = ["nothing is scored yet"]
        if sought is not None:
            lines = [length_line(sought), asked_line(sought), WORDS]
        heading = rows(
            map_title(run.map) if title is None else title, lines, paper_width - 2 * EDGE
        )
        parts += draw_rows(heading, EDGE, y)
        y += sum(size for _, size, _ in heading) * 1.22 + 8
        if sought is not None:
            box = Box(
                EDGE + SCORE.room,
                y,
                paper_width - 3 * EDGE - SCORE.room,
                min(0.45 * paper_width, 200.0),
            )
            parts += _plot(sought, run.map.margins, box)
            y = below(box) + 8
    return Drawing(tuple(parts), paper_width, y, width is not None)


def _plot(sought: Sought, means: Mapping[int, ClusterMean], box: Box) -> list[str]:
    """Return the SVG parts of a plot: the interval, the curve over it, and a circle a length.

    means: by length.
    """
    axis, plane = make_axis(sought.axis.lengths, ("log",)), Plane(box, SCORE)
    low, high = (_end_position(axis, end) for end in (sought.low, sought.high))
    left = plane.at(low, 0)[0]
    level = [plane.at(share, 100 * sought.threshold) for share in (0, 1)]
    return [
        rect(left, box.y, plane.at(high, 0)[0] - left, box.height, INTERVAL),
        *plane.grid(),
        *plane.labels(),
        *draw_bands(_curve(sought, axis), plane, CURVE, joined=True),
        line([plane.at(mean.place, mean.value or 0.0) for mean in _curve(sought, axis)], SOFT, 0.8),
        line(level, SOFT, 0.5, stroke_dasharray="3 2"),
        *_draw_lengths(sought, means, axis=axis, plane=plane),
        rect(*box, "none", stroke=FAINT, stroke_width=0.5),
        *length_axis(axis, box),
    ]


def _end_position(axis: Axis, tokens: float) -> float:
    """Return the position of an end of the interval, as a share of the axis.

    An end beyond the axis, 0 or infinite, lies at the axis's edge.
    """
    if tokens == 0:
        return 0.0
    return 1.0 if tokens == inf else axis.position(tokens)


def _curve(sought: Sought, axis: Axis) -> list[DrawnMean]:
    values = zip(sought.axis.lengths, np.transpose(sought.curve).tolist(), strict=True)
    return [
        DrawnMean(axis.position(length), percent_of(value), percent_of(low), percent_of(high))
        for length, (value, low, high) in values
    ]


def _draw_lengths(
    sought: Sought, means: Mapping[int, ClusterMean], *, axis: Axis, plane: Plane
) -> list[str]:
    """Return the SVG parts of a circle for each length, with its interval."""
    parts: list[str] = []
    rows = asked_by_length(sought)
    most_asks = max(asks for _, asks, _, _ in rows)
    for length, asks, _, _ in rows:
        mean, place = means[length], axis.position(length)
        if mean.low is not None and mean.high is not None:
            ends = [plane.at(place, 100 * end) for end in (mean.low, mean.high)]
            parts.append(line(ends, LINES[0], 0.5))
        size = 1.2 + 1.8 * sqrt(asks / most_asks)
        parts.append(mark(*plane.at(place, 100 * mean.score), size, "circle", "white", INK))
    return parts
