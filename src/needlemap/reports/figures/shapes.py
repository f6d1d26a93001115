"""Shapes and letters of an SVG picture, in points, and how much room a text takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import east_asian_width

from needlemap.reports.colours import INK, NOT_MEASURED, SOFT
from needlemap.text import xml_text

FONT = (
    "Liberation Sans, Arial, Helvetica, Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif"
)
# Points across on a screen: one picture, and several.
ALONE, SEVERAL = 420.0, 540.0
# The margin of the paper, on all sides.
EDGE = 3.0
# Points of letters.
TITLE, TEXT = 8.0, 7.0
# From one line to the next, as a multiple of a letter's size.
LINE = 1.22
SCREEN_PPI, PRINT_PPI = 144, 360
# A browser's own font may be wider than ours, and a page has larger letters on a phone.
FONT_SLACK = 1.15
# So many times as large as in print.
ON_SCREEN = 1.5

# Of letters of Liberation Sans, in thousandths of their size.
_WIDTHS = {
    191: "'", 222: "ijl", 260: "|", 278: " !,./:;I[\\]ft", 333: "()-`r·", 334: "{}", 355: '"', 389: "*",  # noqa: E501
    469: "^", 500: "Jcksvxyz", 556: "#$0123456789?L_abdeghnopqu–", 584: "+<=>~−≥", 611: "FTZ",
    667: "&ABEKPSVXY", 722: "CDHNRUw", 778: "GOQ", 833: "Mm", 889: "%", 944: "W", 1015: "@",
}  # fmt: skip
_WIDTH = {letter: width / 1000 for width, letters in _WIDTHS.items() for letter in letters}
# Bold letters are so many times as wide.
_BOLD = 1.1


Point = tuple[float, float]

HATCHED = "url(#hatch)"
HATCH = (
    '<defs><pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="3" height="3" fill="{NOT_MEASURED[0]}"/>'
    f'<rect width="1" height="3" fill="{NOT_MEASURED[1]}"/></pattern></defs>'
)


def number(value: float) -> str:
    """Format a number as short as a hundredth of a point allows.

    >>> number(2.0), number(0.125)
    ('2', '0.12')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def rect(
    x: float, y: float, width: float, height: float, fill: str, *, tip: str = "", **more: object
) -> str:
    """Return a rectangle.

    tip: what a browser shows of it. more: further attributes, with _ for -.
    """
    size = f'width="{number(width)}" height="{number(height)}"'
    start = f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}"{_attributes(more)}'
    return f"{start}><title>{_escape(tip)}</title></rect>" if tip else f"{start}/>"


def line(points: Iterable[Point], stroke: str = INK, width: float = 0.6, **more: object) -> str:
    """Return a line that joins points."""
    stroke_attributes = f'stroke="{stroke}" stroke-width="{number(width)}"{_attributes(more)}'
    return f'<path d="{_path(points)}" fill="none" {stroke_attributes}/>'


def area(points: Iterable[Point], fill: str, **more: object) -> str:
    """Return the area between points."""
    return f'<path d="{_path(points)}Z" fill="{fill}"{_attributes(more)}/>'


def mark(
    x: float, y: float, size: float, shape: str, fill: str, stroke: str = INK, width: float = 0.5,
    *, tip: str = "",
) -> str:  # fmt: skip
    """Return a circle, square, diamond, triangle or cross around a point.

    size: half its width. tip: what a browser shows of it.
    """
    if tip:
        shape_svg = mark(x, y, size, shape, fill, stroke, width)
        return f"<g><title>{_escape(tip)}</title>{shape_svg}</g>"
    if shape == "circle":
        place = f'cx="{number(x)}" cy="{number(y)}" r="{number(size)}"'
        return f'<circle {place} fill="{fill}" stroke="{stroke}" stroke-width="{number(width)}"/>'
    corners = [(x + size * across, y + size * down) for across, down in SHAPES[shape]]
    return area(corners, fill, stroke=stroke, stroke_width=number(width))


SHAPES: dict[str, tuple[Point, ...]] = {
    "circle": (),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.15), (1.1, 0.8), (-1.1, 0.8)),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "down": ((0, 1.15), (1.1, -0.8), (-1.1, -0.8)),
}


def text(
    x: float, y: float, words: str, size: float = TEXT, *,
    anchor: str = "start", bold: bool = False, fill: str = INK, turned: float = 0,
    **more_attributes: object,
) -> str:  # fmt: skip
    """Return a line of text, its baseline at y.

    anchor: start, middle or end. turned: degrees, about its anchor. more_attributes: further ones,
    with _ for -.
    """
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}"'
    attributes = f' text-anchor="{anchor}"' if anchor != "start" else ""
    attributes += ' font-weight="bold"' if bold else ""
    attributes += f' transform="rotate({number(turned)} {number(x)} {number(y)})"' if turned else ""
    attributes += _attributes(more_attributes)
    return f"<text {place}{attributes}>{_escape(words)}</text>"


def text_width(words: str, size: float = TEXT, *, bold: bool = False) -> float:
    """Return how many points a line of text takes.

    It is rather more if a letter's width is not known.
    """
    letters = sum(
        _WIDTH.get(letter) or (1.0 if east_asian_width(letter) in "WF" else 0.65)
        for letter in words
    )
    return letters * size * (_BOLD if bold else 1.0)


def wrap(words: str, room: float, size: float = TEXT, *, bold: bool = False) -> list[str]:
    """Break words into lines no wider than room.

    Lines break between words, not around an equals sign, and in a word that is wider.
    """
    lines = [""]
    for word in re.split(r"(?<!=)\s+(?!=)", words.strip()):
        for index, piece in enumerate(_cut_word(word, room, size, bold)):
            longer_line = f"{lines[-1]} {piece}" if lines[-1] and not index else piece
            if lines[-1] and (index or text_width(longer_line, size, bold=bold) > room):
                lines.append(piece)
            else:
                lines[-1] = longer_line
    return lines


def _cut_word(word: str, room: float, size: float, bold: bool) -> list[str]:
    """Cut a word into pieces no wider than room, behind a mark if it has one."""
    pieces = [""]
    for letter in word:
        if pieces[-1] and text_width(pieces[-1] + letter, size, bold=bold) > room:
            full_piece = pieces.pop()
            cut = max(full_piece.rfind(mark) for mark in "/@-_.") + 1 or len(full_piece)
            pieces += [full_piece[:cut], full_piece[cut:]]
        pieces[-1] += letter
    return pieces


def cut_text(words: str, room: float, *, bold: bool = False) -> str:
    """Cut a text to a room, its end marked."""
    if text_width(words, TEXT, bold=bold) <= room:
        return words
    while words and text_width(words + "…", TEXT, bold=bold) > room:
        words = words[:-1]
    return words + "…"


# Words, size, bold.
Row = tuple[str, float, bool]


def rows(title: str, lines: Sequence[str], room: float) -> list[Row]:
    """Return a title and what stands under it, broken to a room."""
    broken: list[Row] = []
    for paragraph in title.splitlines():
        broken += [(part, TITLE, True) for part in wrap(paragraph, room, TITLE, bold=True)]
    for paragraph in lines:
        broken += [(part, TEXT, False) for part in wrap(paragraph, room)]
    return broken


def rows_height(rows_drawn: Sequence[Row]) -> float:
    """Return what rows take down the paper."""
    return sum(size * LINE for _, size, _ in rows_drawn)


def draw_rows(rows_drawn: Sequence[Row], x: float, y: float) -> list[str]:
    """Return rows from y down."""
    parts = []
    for words, size, bold in rows_drawn:
        y += size * LINE
        fill = "#000000" if bold else SOFT
        parts.append(text(x, y - 0.25 * size, words, size, bold=bold, fill=fill))
    return parts


def _escape(words: str) -> str:
    """Return a text, which may be a stranger's, as XML may hold it."""
    return escape(xml_text(words), quote=False)


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _attributes(more: dict[str, object]) -> str:
    return "".join(
        f' {name.strip("_").replace("_", "-")}="{value}"' for name, value in more.items()
    )
