"""Shapes and letters of an SVG picture, in points, and how much room a text takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import east_asian_width

from needlemap.reports.colours import INK, NOT_MEASURED, SOFT
from needlemap.text import printable

FONT = (
    "Liberation Sans, Arial, Helvetica, Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif"
)
ALONE, SEVERAL = 420.0, 540.0  # points across on a screen: one picture, and several
EDGE = 3.0  # of the paper, on all sides
TITLE, TEXT = 8.0, 7.0  # points of letters
LINE = 1.22  # of a letter's size: from one line to the next
SCREEN_PPI, PRINT_PPI = 144, 360
ON_SCREEN = 1.5  # times as large as in print

_WIDTHS = {  # of letters of Liberation Sans, in thousandths of their size
    191: "'", 222: "ijl", 260: "|", 278: " !,./:;I[\\]ft", 333: "()-`r·", 334: "{}", 355: '"', 389: "*",  # noqa: E501
    469: "^", 500: "Jcksvxyz", 556: "#$0123456789?L_abdeghnopqu–", 584: "+<=>~−≥", 611: "FTZ",
    667: "&ABEKPSVXY", 722: "CDHNRUw", 778: "GOQ", 833: "Mm", 889: "%", 944: "W", 1015: "@",
}  # fmt: skip
_WIDTH = {letter: width / 1000 for width, letters in _WIDTHS.items() for letter in letters}
_BOLD = 1.1  # times as wide


Point = tuple[float, float]

_NOT_XML = {0xFFFE: None, 0xFFFF: None}
HATCHED = "url(#hatch)"
HATCH = (
    '<defs><pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="3" height="3" fill="{NOT_MEASURED[0]}"/>'
    f'<rect width="1" height="3" fill="{NOT_MEASURED[1]}"/></pattern></defs>'
)


def number(value: float) -> str:
    """As short as a hundredth of a point allows.

    >>> number(2.0), number(0.125)
    ('2', '0.12')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def rect(
    x: float, y: float, width: float, height: float, fill: str, *, tip: str = "", **more: object
) -> str:
    """A rectangle. tip: what a browser says of it. more: further attributes, with _ for -."""
    size = f'width="{number(width)}" height="{number(height)}"'
    begin = f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}"{_attributes(more)}'
    return f"{begin}><title>{_escaped(tip)}</title></rect>" if tip else f"{begin}/>"


def line(points: Iterable[Point], stroke: str = INK, width: float = 0.6, **more: object) -> str:
    """Points joined."""
    drawn = f'stroke="{stroke}" stroke-width="{number(width)}"{_attributes(more)}'
    return f'<path d="{_path(points)}" fill="none" {drawn}/>'


def area(points: Iterable[Point], fill: str, **more: object) -> str:
    """What lies between points."""
    return f'<path d="{_path(points)}Z" fill="{fill}"{_attributes(more)}/>'


def mark(
    x: float, y: float, size: float, shape: str, fill: str, stroke: str = INK, width: float = 0.5,
    *, tip: str = "",
) -> str:  # fmt: skip
    """A circle, square, diamond, triangle or cross about a point. size: half its width. tip:
    what a browser says of it."""
    if tip:
        return (
            f"<g><title>{_escaped(tip)}</title>{mark(x, y, size, shape, fill, stroke, width)}</g>"
        )
    if shape == "circle":
        place = f'cx="{number(x)}" cy="{number(y)}" r="{number(size)}"'
        return f'<circle {place} fill="{fill}" stroke="{stroke}" stroke-width="{number(width)}"/>'
    corners = [(x + size * right, y + size * down) for right, down in SHAPES[shape]]
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
    """A line of text, its baseline at y. anchor: start, middle or end. turned: degrees, about
    its anchor. more_attributes: further ones, with _ for -."""
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}"'
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += ' font-weight="bold"' if bold else ""
    more += f' transform="rotate({number(turned)} {number(x)} {number(y)})"' if turned else ""
    more += _attributes(more_attributes)
    return f"<text {place}{more}>{_escaped(words)}</text>"


def wide(words: str, size: float = TEXT, *, bold: bool = False) -> float:
    """How many points a line of text takes; rather more where a letter's width is not
    known."""
    letters = sum(
        _WIDTH.get(letter) or (1.0 if east_asian_width(letter) in "WF" else 0.65)
        for letter in words
    )
    return letters * size * (_BOLD if bold else 1.0)


def wrapped(words: str, room: float, size: float = TEXT, *, bold: bool = False) -> list[str]:
    """Lines no wider than room: broken between words, not about an equals sign, and in one
    that is wider."""
    lines = [""]
    for word in re.split(r"(?<!=)\s+(?!=)", words.strip()):
        for at, piece in enumerate(_pieces(word, room, size, bold)):
            joined = f"{lines[-1]} {piece}" if lines[-1] and not at else piece
            if lines[-1] and (at or wide(joined, size, bold=bold) > room):
                lines.append(piece)
            else:
                lines[-1] = joined
    return lines


def _pieces(word: str, room: float, size: float, bold: bool) -> list[str]:
    """A word in pieces no wider than room, cut behind a mark where it has one."""
    pieces = [""]
    for letter in word:
        if pieces[-1] and wide(pieces[-1] + letter, size, bold=bold) > room:
            whole = pieces.pop()
            cut = max(whole.rfind(mark) for mark in "/@-_.") + 1 or len(whole)
            pieces += [whole[:cut], whole[cut:]]
        pieces[-1] += letter
    return pieces


def fitted(words: str, room: float, size: float = TEXT, *, bold: bool = False) -> str:
    """A text cut to a room, its end marked."""
    if wide(words, size, bold=bold) <= room:
        return words
    while words and wide(words + "…", size, bold=bold) > room:
        words = words[:-1]
    return words + "…"


Row = tuple[str, float, bool]  # words, size, bold


def rows(title: str, lines: Sequence[str], room: float) -> list[Row]:
    """A title and what stands under it, broken to a room."""
    heads = [
        (part, TITLE, True)
        for each in title.splitlines()
        for part in wrapped(each, room, TITLE, bold=True)
    ]
    return [*heads, *((part, TEXT, False) for each in lines for part in wrapped(each, room))]


def rows_height(written: Sequence[Row]) -> float:
    """What they take down the paper."""
    return sum(size * LINE for _, size, _ in written)


def draw_rows(written: Sequence[Row], x: float, y: float) -> list[str]:
    """Rows from y down."""
    parts = []
    for words, size, bold in written:
        y += size * LINE
        fill = "#000000" if bold else SOFT
        parts.append(text(x, y - 0.25 * size, words, size, bold=bold, fill=fill))
    return parts


def _escaped(words: str) -> str:
    """A text, which may be a stranger's, without control codes and without the two characters
    that no XML may hold: one of them, and nothing is drawn."""
    return escape(printable(words).translate(_NOT_XML), quote=False)


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _attributes(more: dict[str, object]) -> str:
    return "".join(
        f' {name.strip("_").replace("_", "-")}="{value}"' for name, value in more.items()
    )
