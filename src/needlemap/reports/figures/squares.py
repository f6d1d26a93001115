"""What sessions sent, a row each, and what came of it: a square a request, time to the right."""

from __future__ import annotations

from typing import Any

from needlemap.reports.colours import FAINT, INK, SOFT, hex_of, ink_on
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.panels import PanelItem, draw_legend
from needlemap.reports.figures.shapes import (
    EDGE,
    FONT_SLACK,
    TEXT,
    draw_rows,
    line,
    rect,
    rows,
    rows_height,
    text,
    text_width,
)
from needlemap.reports.report import Square, Squares

# Points of a square, and from one to the next.
SIZE, STEP = 9.0, 11.0
# Points across.
LEAST = 220.0
# Told apart by a letter too: colours alone are nothing to a grey print.
KINDS = {
    "right": (44, 122, 63),
    "fault": (179, 71, 11),
    "gone": (107, 112, 118),
    "other": (23, 86, 143),
}


def draw_squares(squares: Squares) -> Drawing:
    """Draw a time line by session."""
    columns = 1 + max((square.column for _, row in squares.rows for square in row), default=0)
    names = max((text_width(name) for name, _ in squares.rows), default=0.0)
    squares_x = EDGE + TEXT + 4 + FONT_SLACK * names + 6
    total = max(LEAST, squares_x + STEP * columns + EDGE)
    heading = rows(squares.title, [], total - 2 * EDGE)
    top = EDGE + rows_height(heading) + 6
    parts = draw_rows(heading, EDGE, EDGE)
    for index, (name, row) in enumerate(squares.rows):
        y = top + index * STEP
        parts.append(text(squares_x - 6, y + 0.78 * SIZE, name, anchor="end", fill=SOFT))
        middle = y + SIZE / 2
        ends = [(squares_x + square.column * STEP, middle) for square in row]
        if len(ends) > 1:
            parts.append(line([min(ends), max(ends)], FAINT, 0.6))
        parts += [part for square in row for part in _square(square, squares_x, y)]
    bottom = top + len(squares.rows) * STEP
    arrow = (squares_x + min(STEP * columns, 60.0), bottom + 4)
    parts.append(line([(squares_x, bottom + 4), arrow], SOFT, 0.6))
    head = [(arrow[0] - 2.5, arrow[1] - 2), arrow, (arrow[0] - 2.5, arrow[1] + 2)]
    parts.append(line(head, SOFT, 0.6))
    parts.append(text(arrow[0] + 4, bottom + 4 + 0.35 * TEXT, "time, by wave", fill=SOFT))
    middle = (top + bottom) / 2
    if bottom - top >= text_width("session"):
        parts.append(
            text(EDGE + TEXT - 1, middle, "session", anchor="middle", fill=SOFT, turned=-90)
        )
    items = [_key(kind, words) for kind, words in squares.key]
    legend, height = draw_legend(items, EDGE, bottom + 14, total - 2 * EDGE)
    return Drawing((*parts, *legend), total, bottom + 14 + height + EDGE)


def _square(square: Square, squares_x: float, y: float) -> list[str]:
    colour = KINDS.get(square.kind, KINDS["other"])
    x = squares_x + square.column * STEP
    ring: dict[str, Any] = {"stroke": INK, "stroke_width": 1.2} if square.marked else {}
    parts = [rect(x, y, SIZE, SIZE, hex_of(colour), tip=square.says, **ring)]
    if square.letter:
        place = (x + SIZE / 2, y + 0.78 * SIZE)
        ink = ink_on(colour)
        parts.append(
            text(*place, square.letter, anchor="middle", bold=True, fill=ink, pointer_events="none")
        )
    return parts


def _key(kind: str, words: str) -> PanelItem:
    """Return a kind of squares and what it means."""
    ring: dict[str, Any] = {"stroke": INK, "stroke_width": 1.2} if kind == "marked" else {}
    fill = "none" if kind == "marked" else hex_of(KINDS.get(kind, KINDS["other"]))
    parts = rect(0, -1, 8, 8, fill, **ring) + text(11, 6, words, fill=SOFT)
    return PanelItem(11 + FONT_SLACK * text_width(words), parts)
