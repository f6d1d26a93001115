"""Maps as the two older tools draw them (`--style`).

Their cells lie side by side, all depths are labelled, and colours are red-amber-green.
OpenCompass's has the mean by length as a white line over the cells, with a legend, and the overall
score below; needlehaystack's is the map alone. What both lack is kept: colours stand for 0 to 100,
missing cells are hatched, and a last line says n.
"""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.errors import SettingsError
from needlemap.interop.result_row import FACTS, context_title
from needlemap.reports.figures import (
    HATCHED,
    INK,
    SOFT,
    TEXT,
    line,
    mark,
    rect,
    text,
    wide,
    wrapped,
)
from needlemap.reports.figures.heat import (
    Box,
    Scale,
)
from needlemap.reports.figures.panels import (
    count,
    gradient,
    missing_line,
    repeats,
)
from needlemap.reports.figures.styles import MapStyle
from needlemap.reports.labels import length_labels, row_labels
from needlemap.stats.cell_score import CellScore
from needlemap.stats.means import Map

OPENCOMPASS, NEEDLEHAYSTACK = "opencompass", "needlehaystack"
TICKS = (0, 20, 40, 60, 80, 100)
NARROW, LOW = 6.0, 5.5  # points: columns and rows that have a label each
BAR = 7.0
MAP_MOST = 260.0
SEAM = 0.6


class OpenCompassStyle(MapStyle):
    """A map as OpenCompass draws it."""

    def title(self, map: Map) -> str:
        """Return the title that its plotting script gives."""
        return context_title(map.model, _longest(map))

    def draw(
        self, map: Map, title: str, scale: Scale, width: float, y: float
    ) -> tuple[list[str], float]:
        """Return the parts of a map from y on, and where it ends."""
        return draw_older(map, title, scale, OPENCOMPASS, width, y)


class NeedlehaystackStyle(MapStyle):
    """A map as needlehaystack draws it."""

    def title(self, map: Map) -> str:
        """Return the title of its published maps."""
        return (
            f'Pressure Testing {map.model} {_longest(map)} Context\n{FACTS}("Needle In A HayStack")'
        )

    def draw(
        self, map: Map, title: str, scale: Scale, width: float, y: float
    ) -> tuple[list[str], float]:
        """Return the parts of a map from y on, and where it ends."""
        return draw_older(map, title, scale, NEEDLEHAYSTACK, width, y)


def _longest(map: Map) -> str:
    labels = length_labels(map.lengths[-1:])
    return labels.get(map.lengths[-1], "").upper() if map.lengths else ""


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
