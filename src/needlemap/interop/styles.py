"""Draw maps as the two older tools do (`--style`).

Their cells have no space between them, all depths are labelled, and colours are red-amber-green.
OpenCompass's map has the mean by length as a white line over the cells, with a legend, and the
overall score below. needlehaystack's has none of these. Three things that both lack are kept:
colours stand for 0 to 100, missing cells are hatched, and a last line reports n.
"""

from __future__ import annotations

from collections.abc import Sequence

from needlemap.errors import SettingsError
from needlemap.interop.result_row import FACTS, context_title
from needlemap.reports.colours import INK, SOFT
from needlemap.reports.figures.heat import (
    Box,
    Scale,
)
from needlemap.reports.figures.panels import (
    gradient,
    missing_line,
    prompt_count,
    trials_a_cell,
)
from needlemap.reports.figures.shapes import HATCHED, TEXT, line, mark, rect, text, text_width, wrap
from needlemap.reports.figures.styles import MapStyle
from needlemap.reports.labels import length_labels, row_labels
from needlemap.stats.cell_score import CellScore
from needlemap.stats.means import Map

OPENCOMPASS, NEEDLEHAYSTACK = "opencompass", "needlehaystack"
TICKS = (0, 20, 40, 60, 80, 100)
# All sizes are in points. The least width of a column and height of a row with a label of its own.
NARROW, LOW = 6.0, 5.5
# The width of the bar of colours.
BAR = 7.0
MAP_MOST = 260.0
# How far a cell reaches over the next one, because otherwise seams show.
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
    """Return the parts of a map from y on, as wide as the paper, and where it ends.

    Raises SettingsError if lengths have different depths.
    """
    if map.ragged:
        raise SettingsError(
            f"Style {style} has rows of one depth; here each length has depths of its own."
        )

    labels = [label.removesuffix("%") for label in row_labels(map, map.depths).values()]
    left_margin = 20 + max((text_width(label) for label in labels), default=0.0)
    room = width - left_margin - 40
    rows = max(1, len(map.depths))
    title_lines = [
        part for row in title.splitlines() for part in wrap(row, width - 6, size=TEXT + 1)
    ]
    box = Box(
        x=left_margin,
        y=y + 4 + 10 * len(title_lines),
        width=room,
        height=min(MAP_MOST, max(0.46 * room, LOW * rows)),
    )
    length_parts, end = _lengths(map, box)
    parts = [
        *(
            text(width / 2, y + 9 + 10 * index, words=row, size=TEXT + 1, anchor="middle")
            for index, row in enumerate(title_lines)
        ),
        *_cells(map, scale, box=box),
        *_depths(labels, box),
        *_bar(scale, box),
        *length_parts,
    ]

    if style == OPENCOMPASS:
        parts += _overlay(map, box)
        score = "-" if map.mean_of_means is None else f"{100 * map.mean_of_means:.2f}"
        end += 12
        words = f"Overall Score for {map.model}: {score}"
        parts.append(text(box.x + room / 2, end - 3, words=words, anchor="middle"))

    note = ". ".join([f"{prompt_count(map)}, {trials_a_cell(map)}", *missing_line(map)])
    for row in wrap(note, width - 6, size=TEXT - 1):
        end += 8
        parts.append(text(3, end, words=row, size=TEXT - 1, fill=SOFT))
    return parts, end + 5


def _cell_box(map: Map, cell: CellScore, box: Box) -> Box:
    """Return the place of a cell. All have the same size."""
    width = box.width / len(map.lengths)
    height = box.height / len(map.depths)
    column = map.lengths.index(cell.length_tokens)
    row = map.depths.index(cell.depth)
    return Box(x=box.x + column * width, y=box.y + row * height, width=width, height=height)


def _cells(map: Map, scale: Scale, box: Box) -> list[str]:
    right = box.x + box.width
    bottom = box.y + box.height
    parts = []
    for cell in map.cells:
        x, y, width, height = _cell_box(map, cell, box=box)
        part = rect(
            x,
            y,
            width=min(width + SEAM, right - x),
            height=min(height + SEAM, bottom - y),
            fill=HATCHED if cell.score is None else scale.colour(100 * cell.score),
        )
        parts.append(part)
    return parts


def _depths(labels: Sequence[str], box: Box) -> list[str]:
    """Return all labels of depths, in letters that fit their rows, and the axis's name."""
    row_height = box.height / max(1, len(labels))
    size = min(TEXT, 1.1 * row_height)
    parts = []
    for row, label in enumerate(labels):
        y = box.y + (row + 0.5) * row_height + 0.35 * size
        parts.append(text(box.x - 3, y, words=label, size=size, anchor="end"))
    middle = box.y + box.height / 2
    return [*parts, text(9, middle, words="Depth Percent", anchor="middle", turned=-90)]


def _lengths(map: Map, box: Box) -> tuple[list[str], float]:
    """Return slanted labels of lengths with the axis's name, and where they end.

    If there is no room for all labels, every n-th one is drawn, and the last.
    """
    labels = length_labels(map.lengths)
    bottom = box.y + box.height
    column_width = box.width / max(1, len(labels))
    step = max(1, -(-int(NARROW) // max(1, int(column_width))))
    last = len(labels) - 1
    parts = []
    for column, label in enumerate(labels.values()):
        # A label right before the last one would touch it, unless there is room for all.
        is_shown = column % step == 0 and (step == 1 or column + step <= last)
        if is_shown or column == last:
            x = box.x + (column + 0.5) * column_width
            parts.append(text(x + 2.5, bottom + TEXT, words=label, anchor="end", turned=-45))
    widest = max((text_width(label) for label in labels.values()), default=0.0)
    end = bottom + 4 + 0.75 * widest + TEXT
    parts.append(text(box.x + box.width / 2, end + 4, words="Token Limit", anchor="middle"))
    return parts, end + 6


def _bar(scale: Scale, box: Box) -> list[str]:
    """Return the bar of colours, right of the map."""
    x = box.x + box.width + 6
    bar = Box(x=x, y=box.y, width=BAR, height=box.height)
    parts = [gradient(scale.colours, bar, upright=True)]
    for value in TICKS:
        y = box.y + (1 - value / 100) * box.height + 0.35 * TEXT
        parts.append(text(x + BAR + 2, y, words=str(value)))
    middle = box.y + box.height / 2
    return [*parts, text(x + BAR + 24, middle, words="Score", anchor="middle", turned=-90)]


def _overlay(map: Map, box: Box) -> list[str]:
    """Return the mean of each length's cells as a white line, and its legend.

    The line's axis from 0 to 100 is not drawn.
    """
    column_width = box.width / max(1, len(map.lengths))
    size = min(2.2, 0.3 * column_width)
    points = []
    for column, length in enumerate(map.lengths):
        scores = [
            cell.score
            for cell in map.cells
            if cell.length_tokens == length and cell.score is not None
        ]
        if scores:
            loss = 1 - sum(scores) / len(scores)
            x = box.x + (column + 0.5) * column_width
            points.append((x, box.y + size + loss * (box.height - 2 * size)))
    return [
        line(points, "white", width=1.1),
        *(mark(x, y, size=size, shape="circle", fill="white", stroke="white") for x, y in points),
        *_legend(points, box),
    ]


def _legend(points: Sequence[tuple[float, float]], box: Box) -> list[str]:
    """Return the legend of a line, at the top left unless the line starts there."""
    words = "Average Depth Score"
    x = box.x + 3
    y = box.y + 3
    if points and points[0][1] < box.y + 0.3 * box.height:
        y = box.y + (box.height - 13)
    return [
        rect(
            x,
            y,
            width=text_width(words, TEXT - 1) + 20,
            height=10,
            fill="#CCCCCC",
            fill_opacity=0.8,
            stroke="#999999",
            stroke_width=0.3,
        ),
        line([(x + 3, y + 5), (x + 15, y + 5)], "white", width=1.1),
        mark(x + 9, y + 5, size=1.8, shape="circle", fill="white", stroke="white"),
        text(x + 17.5, y + 7.2, words=words, size=TEXT - 1, fill=INK),
    ]
