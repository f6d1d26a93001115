"""What colours and signs mean: one row under all panels, in as many lines as it needs."""

from __future__ import annotations

from collections.abc import Sequence
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
from needlemap.reports.figures.heat import BAND, Box, MapPanel, Scale
from needlemap.reports.style import CHANGES

BAR, THICK = 78.0, 6.0
BETWEEN = 12.0
HEIGHT = 17.0  # of a line of the legend


@dataclass(frozen=True, slots=True)
class Item:
    """width: points that it takes. drawn: its parts, its left end and its top at 0."""

    width: float
    drawn: str


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
            filled + _stroke(1.5, 6.5, INK),
        ),
        ("lost", dashed, rect(0, 0, 8, 8, CHANGES[1]) + _stroke(1.5, 6.5, INK)),
    ]
    return [*map(_bar, scales), *(_key(words, sign) for words, shown, sign in signs if shown)]


_CORNER = area([(4, 0), (8, 0), (8, 4)], INK)
_FRAME = rect(0, 0, 8, 8, "none", stroke=FAINT, stroke_width=0.5)


def _stroke(left: float, right: float, colour: str) -> str:
    return line([(left, 4), (right, 4)], colour, 0.8)


def _key(words: str, sign: str) -> Item:
    """A sign of 8 points and its words."""
    return Item(
        11 + wide(words), f'<g transform="translate(0 -1)">{sign}</g>' + text(11, 6, words, fill=SOFT)
    )


def gradient(colours: Sequence[str], box: Box, *, upright: bool = False) -> str:
    """A bar of a palette, the lowest score left, or at the bottom."""
    name = f"ramp{crc32(repr((colours, upright)).encode()):x}"
    way = ' x1="0" x2="0" y1="1" y2="0"' if upright else ""
    shares = [at / (len(colours) - 1) for at in range(len(colours))]
    stops = (
        f'<stop offset="{share:.3f}" stop-color="{at}"/>' for share, at in zip(shares, colours, strict=True)
    )
    shades = f'<defs><linearGradient id="{name}"{way}>{"".join(stops)}</linearGradient></defs>'
    return shades + rect(*box, f"url(#{name})")


def _bar(scale: Scale) -> Item:
    """A scale's colours, with its ticks."""
    begin = wide(scale.words) + 8
    ticks = (
        text(begin + scale.share(value) * BAR, THICK + TEXT, scale.label(value), anchor="middle")
        for value in scale.ticks
    )
    drawn = text(0, 6, scale.words) + gradient(scale.colours, Box(begin, 0, BAR, THICK)) + "".join(ticks)
    return Item(begin + BAR + wide(scale.label(scale.domain[1])) / 2, drawn)


def draw_legend(items: Sequence[Item], x: float, y: float, room: float) -> tuple[list[str], float]:
    """All items from x on, no line further right than x + room; and the height that they take."""
    parts: list[str] = []
    at, top = x, y
    for item in items:
        if at > x and at + item.width > x + room:
            at, top = x, top + HEIGHT
        parts.append(f'<g transform="translate({number(at)} {number(top)})">{item.drawn}</g>')
        at += item.width + BETWEEN
    return parts, top + HEIGHT - y
