"""What a run sought, as a picture: raw counts of each length, the curve fitted to them, and the interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np

from needlemap.errors import SettingsError
from needlemap.maps.intervals import effective_wilson
from needlemap.maps.seek import Sought
from needlemap.records.loaded import Loaded
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.canvas import (
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
from needlemap.reports.figures.heat import (
    BAND,
    SCORE,
    Box,
    Mean,
    Plane,
    Stroke,
    below,
    draw_bands,
    length_axis,
)
from needlemap.reports.figures.panels import map_title, shares_in_percent
from needlemap.reports.seek import asked_line, length_line, sought_of
from needlemap.reports.style import LINES

FOUND = "#F3E3C3"  # behind the interval
CURVE = Stroke(SOFT, BAND)
WORDS = "Circles: what was asked, larger with more haystacks, 95 % intervals. Band: the fitted curve."


def draw_sought(runs: Sequence[Loaded], *, title: str | None, width: float | None) -> Drawing | None:
    """A plot a run that seeks, one below the other; None where none does. width: of the paper in points,
    None for a screen's. Raises SettingsError for runs of both kinds."""
    found = [(run, sought_of(run)) for run in runs if run.about["settings"].get("seek") is not None]
    if not found:
        return None
    if len(found) < len(runs):
        raise SettingsError("Runs that seek have a picture of their own. Draw them apart from the others.")
    total, y, parts = width or ALONE, EDGE, list[str]()
    for run, sought in found:
        named = map_title(run.map) if title is None else title
        lines = (
            ["nothing is scored yet"] if sought is None else [length_line(sought), asked_line(sought), WORDS]
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
    low, high = (_place(axis, end) for end in (found.low, found.high))
    left = plane.at(low, 0)[0]
    level = [plane.at(share, 100 * found.threshold) for share in (0, 1)]
    return [
        rect(left, box.y, plane.at(high, 0)[0] - left, box.height, FOUND),
        *plane.grid(),
        *plane.labels(),
        *draw_bands(_curve(found, axis), plane, CURVE, joined=True),
        line([plane.at(mean.place, mean.value or 0.0) for mean in _curve(found, axis)], SOFT, 0.8),
        line(level, SOFT, 0.5, stroke_dasharray="3 2"),
        *_asked(found, axis, plane),
        rect(*box, "none", stroke=FAINT, stroke_width=0.5),
        *length_axis(axis, box),
    ]


def _place(axis: Axis, tokens: float) -> float:
    """Of an end; beyond the axis its edge."""
    return 0.0 if tokens == 0 else 1.0 if tokens == inf else axis.place(tokens)


def _curve(found: Sought, axis: Axis) -> list[Mean]:
    ends = zip(found.axis.lengths, np.transpose(found.curve).tolist(), strict=True)
    return [Mean(axis.place(length), *shares_in_percent(*three)) for length, three in ends]


def _asked(found: Sought, axis: Axis, plane: Plane) -> list[str]:
    """A circle a length, its interval as of the trials over the design effect."""
    drawn, asked = [], found.asked
    most = float(asked.asks.max())
    for length, asks, trials, hits in zip(
        found.axis.lengths, asked.asks, asked.trials, asked.hits, strict=True
    ):
        if trials:
            place, score = axis.place(length), hits / trials
            ends = effective_wilson(score, trials, found.effect, 1)
            drawn.append(line([plane.at(place, 100 * end) for end in ends], LINES[0], 0.5))
            size = 1.2 + 1.8 * sqrt(asks / most)
            drawn.append(mark(*plane.at(place, 100 * score), size, "circle", "white", INK))
    return drawn
