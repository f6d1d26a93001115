"""Pictures that are no panels: what a run sought, and maps as the two older tools draw them
(`--style`).

Of a seek: raw counts of each length, the curve fitted to them, and the interval. An older
tool's map has its cells side by side, all depths labelled, red-amber-green. OpenCompass's has
the mean by length as a white line over the cells, with a legend, and the overall score below;
needlehaystack's is the map alone. What both lack is kept: colours stand for 0 to 100, missing
cells are hatched, and a last line says n.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np

from needlemap.errors import SettingsError
from needlemap.interop import FACTS, context_title
from needlemap.maps.cell_score import CellScore
from needlemap.maps.intervals import effective_wilson
from needlemap.maps.means import Map
from needlemap.maps.seek import Sought
from needlemap.records.loaded import Loaded
from needlemap.reports import LINES
from needlemap.reports.figures import (
    ALONE,
    EDGE,
    FAINT,
    HATCHED,
    INK,
    SOFT,
    TEXT,
    Drawing,
    draw_rows,
    line,
    mark,
    rect,
    rows,
    text,
    wide,
    wrapped,
)
from needlemap.reports.figures.axis import Axis, make_axis
from needlemap.reports.figures.heat import (
    BAND,
    SCORE,
    Box,
    DrawnMean,
    Plane,
    Scale,
    Stroke,
    below,
    draw_bands,
    length_axis,
)
from needlemap.reports.figures.panels import (
    count,
    gradient,
    map_title,
    missing_line,
    repeats,
)
from needlemap.reports.labels import length_labels, percent_of, row_labels
from needlemap.reports.seek_report import asked_by_length, asked_line, length_line, sought_of

OPENCOMPASS, NEEDLEHAYSTACK = "opencompass", "needlehaystack"
OLDER = (OPENCOMPASS, NEEDLEHAYSTACK)
TICKS = (0, 20, 40, 60, 80, 100)
NARROW, LOW = 6.0, 5.5  # points: columns and rows that have a label each
BAR = 7.0
MAP_MOST = 260.0
SEAM = 0.6


def older_title(map: Map, style: str) -> str:
    """The title of a map that has none of its own."""
    longest = (
        length_labels(map.lengths[-1:]).get(map.lengths[-1], "").upper() if map.lengths else ""
    )
    if style == OPENCOMPASS:
        return context_title(map.model, longest)
    return f'Pressure Testing {map.model} {longest} Context\n{FACTS}("Needle In A HayStack")'


def draw_older(
    map: Map, title: str, scale: Scale, style: str, width: float, y: float
) -> tuple[list[str], float]:
    """A map from y on, as wide as the paper; and where it ends."""
    if map.ragged:
        raise SettingsError(
            f"Style {style} has rows of one depth; here each length has depths of its own."
        )
    depths = {at: label.removesuffix("%") for at, label in row_labels(map, map.depths).items()}
    left = 20 + max((wide(label) for label in depths.values()), default=0.0)
    room, rows = width - left - 40, max(1, len(map.depths))
    heads = [part for each in title.splitlines() for part in wrapped(each, width - 6, TEXT + 1)]
    top = y + 4 + 10 * len(heads)
    box = Box(left, top, room, min(MAP_MOST, max(0.46 * room, LOW * rows)))
    parts = [
        *(
            text(width / 2, y + 9 + 10 * at, each, TEXT + 1, anchor="middle")
            for at, each in enumerate(heads)
        ),
        *_cells(map, scale, box),
        *_depths(list(depths.values()), box),
        *_bar(scale, box),
    ]
    lengths, end = _lengths(map, box)
    parts += lengths
    if style == OPENCOMPASS:
        parts += _overlay(map, box)
        shown = "-" if map.mean_of_means is None else f"{100 * map.mean_of_means:.2f}"
        end += 12
        words = f"Overall Score for {map.model}: {shown}"
        parts.append(text(box.x + room / 2, end - 3, words, anchor="middle"))
    said = ". ".join([f"{count(map)}, {repeats(map)}", *missing_line(map)])
    for part in wrapped(said, width - 6, TEXT - 1):
        end += 8
        parts.append(text(3, end, part, TEXT - 1, fill=SOFT))
    return parts, end + 5


def _cell_box(map: Map, cell: CellScore, box: Box) -> Box:
    """Where a cell lies: all are as wide and as high as one another."""
    wide_, high = box.width / len(map.lengths), box.height / len(map.depths)
    column, row = map.lengths.index(cell.length_tokens), map.depths.index(cell.depth)
    return Box(box.x + column * wide_, box.y + row * high, wide_, high)


def _cells(map: Map, scale: Scale, box: Box) -> list[str]:
    found = []
    for cell in map.cells:
        fill = HATCHED if cell.score is None else scale.colour(100 * cell.score)
        x, y, width, height = _cell_box(map, cell, box)
        right, bottom = (
            box.x + box.width,
            box.y + box.height,
        )  # a little over the next cell, or seams show
        found.append(rect(x, y, min(width + SEAM, right - x), min(height + SEAM, bottom - y), fill))
    return found


def _depths(labels: Sequence[str], box: Box) -> list[str]:
    """All of them, in letters that fit their rows."""
    high = box.height / max(1, len(labels))
    size = min(TEXT, 1.1 * high)
    places = [box.y + (at + 0.5) * high + 0.35 * size for at in range(len(labels))]
    return [
        *(
            text(box.x - 3, y, words, size, anchor="end")
            for y, words in zip(places, labels, strict=True)
        ),
        text(9, box.y + box.height / 2, "Depth Percent", anchor="middle", turned=-90),
    ]


def _lengths(map: Map, box: Box) -> tuple[list[str], float]:
    """All of them, or as many as have room, the last included; slanted. And where they end."""
    labels, base = length_labels(map.lengths), box.y + box.height
    width = box.width / max(1, len(labels))
    step = max(1, -(-int(NARROW) // max(1, int(width))))
    last = len(labels) - 1
    parts = []
    for at, label in enumerate(labels.values()):
        if at == last or (at % step == 0 and at + step <= last + (step == 1)):
            x = box.x + (at + 0.5) * width
            parts.append(text(x + 2.5, base + TEXT, label, anchor="end", turned=-45))
    end = base + 4 + 0.75 * max((wide(label) for label in labels.values()), default=0.0) + TEXT
    return [*parts, text(box.x + box.width / 2, end + 4, "Token Limit", anchor="middle")], end + 6


def _bar(scale: Scale, box: Box) -> list[str]:
    """The colours' bar, right of the map."""
    x = box.x + box.width + 6
    parts = [gradient(scale.colours, Box(x, box.y, BAR, box.height), upright=True)]
    for value in TICKS:
        parts.append(
            text(x + BAR + 2, box.y + (1 - value / 100) * box.height + 0.35 * TEXT, str(value))
        )
    return [
        *parts,
        text(x + BAR + 24, box.y + box.height / 2, "Score", anchor="middle", turned=-90),
    ]


def _overlay(map: Map, box: Box) -> list[str]:
    """The mean of each length's cells as a white line, on a hidden axis of 0 to 100, and its
    legend."""
    width = box.width / max(1, len(map.lengths))
    size, points = min(2.2, 0.3 * width), []
    for at, length in enumerate(map.lengths):
        found = [
            cell.score
            for cell in map.cells
            if cell.length_tokens == length and cell.score is not None
        ]
        if found:
            share = 1 - sum(found) / len(found)
            points.append(
                (box.x + (at + 0.5) * width, box.y + size + share * (box.height - 2 * size))
            )
    high = bool(points) and points[0][1] < box.y + 0.3 * box.height  # the line would pass under it
    words, x, y = "Average Depth Score", box.x + 3, box.y + (box.height - 13 if high else 3)
    return [
        line(points, "white", 1.1),
        *(mark(*point, size, "circle", "white", "white") for point in points),
        rect(
            x,
            y,
            wide(words, TEXT - 1) + 20,
            10,
            "#CCCCCC",
            fill_opacity=0.8,
            stroke="#999999",
            stroke_width=0.3,
        ),
        line([(x + 3, y + 5), (x + 15, y + 5)], "white", 1.1),
        mark(x + 9, y + 5, 1.8, "circle", "white", "white"),
        text(x + 17.5, y + 7.2, words, TEXT - 1, fill=INK),
    ]


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
    return [DrawnMean(axis.position(length), *map(percent_of, three)) for length, three in ends]


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
