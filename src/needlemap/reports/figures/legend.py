"""What colours and signs mean: one row under all panels, in as many lines as it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from needlemap.reports.figures.canvas import (
    FAINT,
    HATCHED,
    INK,
    SOFT,
    TEXT,
    area,
    line,
    number,
    rect,
    text,
    wide,
)
from needlemap.reports.figures.heat import BAND, MapPanel, Scale
from needlemap.reports.style import CHANGES

BAR, THICK = 78.0, 6.0
BETWEEN = 12.0
HEIGHT = 17.0  # of a line of the legend

Draw = Callable[[float, float], list[str]]


@dataclass(frozen=True, slots=True)
class Item:
    """width: points that it takes. draw: its parts, at its left end and its top."""

    width: float
    draw: Draw


def legend_items(panels: Sequence[MapPanel], width: float, height: float) -> list[Item]:
    """Of colours, then of signs that occur. width, height: of each map."""
    cells = [cell for panel in panels for cell in panel.cells]
    means = [mean for panel in panels for mean in (*panel.by_length, *panel.by_depth)]
    shade, scales = panels[0].scale.colour(90), dict.fromkeys(panel.scale for panel in panels)
    filled, band, hatched = (rect(0, 0, 8, 8, fill) for fill in (shade, BAND, HATCHED))
    dashed = any(panel.scale.signed and not panel.in_figures(width, height) for panel in panels)
    signs = [
        ("95 % interval", any(mean.low is not None for mean in means), band + _stroke(0, 8, INK)),
        ("one trial", any(cell.lone for cell in cells), rect(1.4, 1.4, 5.2, 5.2, shade) + _FRAME),
        ("not measured", any(cell.value is None for cell in cells), hatched + _FRAME),
        (
            "part is missing",
            any(cell.partial for cell in cells),
            filled + area([(4, 0), (8, 0), (8, 4)], INK),
        ),
        (
            "needle's depth",
            any(cell.needle is not None for cell in cells),
            filled + _stroke(1.5, 6.5, "white"),
        ),
        ("lost", dashed, rect(0, 0, 8, 8, CHANGES[1]) + _stroke(1.5, 6.5, INK)),
    ]
    return [*map(_bar, scales), *(_key(words, sign) for words, shown, sign in signs if shown)]


WHITE, _CORNER = "white", area([(4, 0), (8, 0), (8, 4)], INK)
_FRAME = rect(0, 0, 8, 8, "none", stroke=FAINT, stroke_width=0.5)


def _stroke(left: float, right: float, colour: str) -> str:
    return line([(left, 4), (right, 4)], colour, 0.8)


def _key(words: str, sign: str) -> Item:
    """A sign of 8 points and its words."""

    def draw(x: float, y: float) -> list[str]:
        return [
            f'<g transform="translate({number(x)} {number(y - 1)})">{sign}</g>',
            text(x + 11, y + 6, words, fill=SOFT),
        ]

    return Item(11 + wide(words), draw)


def _bar(scale: Scale) -> Item:
    """A scale's colours, with its ticks."""
    name, stops = f"ramp{crc32(repr(scale.colours).encode()):x}", len(scale.colours) - 1
    shades = "".join(
        f'<stop offset="{number(at / stops)}" stop-color="{colour}"/>'
        for at, colour in enumerate(scale.colours)
    )
    begin = wide(scale.words) + 8

    def draw(x: float, y: float) -> list[str]:
        ticks = [(x + begin + scale.share(value) * BAR, scale.label(value)) for value in scale.ticks]
        return [
            f'<defs><linearGradient id="{name}">{shades}</linearGradient></defs>',
            text(x, y + 6, scale.words),
            rect(x + begin, y, BAR, THICK, f"url(#{name})"),
            *(text(at, y + THICK + TEXT, label, anchor="middle") for at, label in ticks),
        ]

    return Item(begin + BAR + wide(scale.label(scale.domain[1])) / 2, draw)


def draw_legend(items: Sequence[Item], x: float, y: float, room: float) -> tuple[list[str], float]:
    """All items from x on, no line further right than x + room; and the height that they take."""
    parts: list[str] = []
    at, top = x, y
    for item in items:
        if at > x and at + item.width > x + room:
            at, top = x, top + HEIGHT
        parts += item.draw(at, top)
        at += item.width + BETWEEN
    return parts, top + HEIGHT - y
