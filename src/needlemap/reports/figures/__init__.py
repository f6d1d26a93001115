"""The parts of an SVG picture, in points, and how much room a text takes.

Figures are drawn by ourselves and converted to PNG and PDF by vl-convert. Vega-Lite was tried: a
spec draws a map's cells and margins in half the lines, but it breaks no titles, hatches nothing,
keeps no labels apart and fits no width, so that most of what is here would stay and need
workarounds in the SVG that comes back.

There is one font, Liberation Sans, which comes with the library that makes PNG and PDF; Arial and
Helvetica, which a reader of an SVG may have instead, are as wide letter by letter. Chinese needs a
CJK font where it is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width
from zlib import compress, crc32, decompress

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.text import printable

FONT = (
    "Liberation Sans, Arial, Helvetica, Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif"
)
INK, SOFT, FAINT = "#222222", "#555555", "#BBBBBB"
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

FIGURES = (".png", ".svg", ".pdf")
KINDS = (*FIGURES, ".html", ".md", ".csv", ".parquet")  # all that a report can be

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture. parts: its elements; width, height: in the points that these are in. printed:
    whether a point is 1/72 inch; on a screen it is `ON_SCREEN` pixels."""

    parts: tuple[str, ...]
    width: float
    height: float
    printed: bool = False

    @property
    def svg(self) -> str:
        """As a file: plain numbers in it are pixels, 96 to the inch."""
        return self._svg("pt", 1.0) if self.printed else self._svg("", ON_SCREEN)

    @property
    def png(self) -> bytes:
        """As a file, which says how many dots to the inch it has."""
        import vl_convert  # late: it is large

        times, ppi = (1.0, PRINT_PPI) if self.printed else (ON_SCREEN, SCREEN_PPI)
        return packed(bytes(vl_convert.svg_to_png(self._svg("", 1.0), scale=times, ppi=ppi)))

    @property
    def pdf(self) -> bytes:
        """As a file, its fonts in it."""
        import vl_convert

        return bytes(vl_convert.svg_to_pdf(self._svg("", 1.0 if self.printed else ON_SCREEN)))

    def _svg(self, unit: str, times: float) -> str:
        """The converter takes plain numbers for points."""
        wide, high = number(self.width), number(self.height)
        size = f'width="{number(self.width * times)}{unit}" height="{number(self.height * times)}{unit}"'  # noqa: E501
        begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {wide} {high}"'
        ground = rect(0, 0, self.width, self.height, "white")
        return "\n".join([f'{begin} font-family="{FONT}">', _HATCH, ground, *self.parts, "</svg>"])

    def as_file(self, suffix: str) -> bytes:
        """A file's content. Raises SettingsError for an unknown suffix."""
        kind = suffix.lower()
        if kind not in FIGURES:
            raise SettingsError(
                f"Cannot write a map as '{suffix}'. Give a name that ends in {', '.join(KINDS)}."
            )
        if kind == ".svg":
            return self.svg.encode()
        return self.png if kind == ".png" else self.pdf

    def save(self, path: Path | str) -> Path:
        """Write it in the format that the suffix names; folders are made. Raises SettingsError."""
        return write_report(Path(path), self.as_file(Path(path).suffix))

    def with_text(self, words: str) -> tuple[dict[str, object], dict[str, object]]:
        """What a notebook shows, and a plain console: a picture that needs no network, and
        words."""
        times = 96 / 72 if self.printed else ON_SCREEN
        size = {"width": round(self.width * times), "height": round(self.height * times)}
        return {"image/svg+xml": self.svg, "image/png": self.png, "text/plain": words}, {
            "image/png": size
        }

    def __repr__(self) -> str:
        return f"Drawing({self.width:g} x {self.height:g} points)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        return self.with_text(repr(self))


def packed(png: bytes) -> bytes:
    """The same picture in a quarter of the bytes: the converter hardly packs."""
    begin, pixels = 8, b""
    parts: list[tuple[bytes, bytes]] = []
    while begin < len(png):
        length = int.from_bytes(png[begin : begin + 4], "big")
        name, data = png[begin + 4 : begin + 8], png[begin + 8 : begin + 8 + length]
        pixels, parts = (
            (pixels + data, parts) if name == b"IDAT" else (pixels, [*parts, (name, data)])
        )
        begin += 12 + length
    parts.insert(-1, (b"IDAT", compress(decompress(pixels), 7)))
    chunks = (
        len(data).to_bytes(4, "big") + name + data + crc32(name + data).to_bytes(4, "big")
        for name, data in parts
    )
    return png[:8] + b"".join(chunks)


HATCHED = "url(#hatch)"
_HATCH = (
    '<defs><pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="3" height="3" fill="#F4F4F4"/>'
    '<rect width="1" height="3" fill="#9A9A9A"/></pattern></defs>'
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
    x: float, y: float, size: float, shape: str, fill: str, stroke: str = INK, width: float = 0.5
) -> str:
    """A circle, square, diamond, triangle or cross about a point. size: half its width."""
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
) -> str:  # fmt: skip
    """A line of text, its baseline at y. anchor: start, middle or end. turned: degrees, about its
    anchor."""
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}"'
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += ' font-weight="bold"' if bold else ""
    more += f' transform="rotate({number(turned)} {number(x)} {number(y)})"' if turned else ""
    return f"<text {place}{more}>{_escaped(words)}</text>"


def wide(words: str, size: float = TEXT, *, bold: bool = False) -> float:
    """How many points a line of text takes; rather more where a letter's width is not known."""
    letters = sum(
        _WIDTH.get(letter) or (1.0 if east_asian_width(letter) in "WF" else 0.65)
        for letter in words
    )
    return letters * size * (_BOLD if bold else 1.0)


def wrapped(words: str, room: float, size: float = TEXT, *, bold: bool = False) -> list[str]:
    """Lines no wider than room: broken between words, not about an equals sign, and in one that is
    wider."""
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
    """A text, which may be a stranger's, without control codes: one of them ends the process that
    draws."""
    return escape(printable(words), quote=False)


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _attributes(more: dict[str, object]) -> str:
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
