"""How large a figure and its parts are. Lengths are points, 1/72 inch; on a screen a point is a pixel."""

from __future__ import annotations

import re
from dataclasses import dataclass

from needlemap.errors import SettingsError

CJK = "Noto Sans CJK SC, Microsoft YaHei, PingFang SC, sans-serif"
UNITS = {"in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0}
NAMED = {"column": 3.25 * 72, "text": 5.5 * 72, "page": 6.75 * 72}  # of usual conference papers
NARROWEST, WIDEST = 2 * 72.0, 40 * 72.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(in|cm|mm|pt)")


@dataclass(frozen=True, slots=True)
class Style:
    """Sizes of letters, lines and gaps.

    between: panels. beside: room right and left of a map that its title may use too. slanted: whether labels
    of many lengths are turned, or as many left out as have no room. legend_below: under the map, which leaves
    it the width, or beside it. bold, plain: the width of a letter, of its size.
    """

    font: str
    title: float
    text: float
    label: float
    line: float
    point: float
    gap: float
    between: float
    beside: float
    slanted: bool
    legend_below: bool
    bold: float
    plain: float


SCREEN = Style(
    f"DejaVu Sans, Helvetica, Arial, {CJK}",
    14,
    11,
    10,
    1.6,
    42,
    10,
    20,
    150,
    slanted=True,
    legend_below=False,
    bold=0.61,
    plain=0.58,
)
PRINT = Style(
    f"Liberation Sans, Helvetica, Arial, {CJK}",
    8,
    7,
    7,
    0.9,
    8,
    2,
    12,
    56,
    slanted=False,
    legend_below=True,
    bold=0.55,
    plain=0.51,
)


def parse_width(text: str) -> float:
    """A width as typed: a number with in, cm, mm or pt, or column, text or page. Raises SettingsError.

    >>> parse_width("3.25in"), round(parse_width("8.4cm"), 2), parse_width("column")
    (234.0, 238.11, 234.0)
    """
    if text in NAMED:
        return NAMED[text]
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise SettingsError(
            f"--width '{text}' is no width. Write 3.25in, 8.4cm, 84mm or 234pt, or {', '.join(NAMED)}."
        )
    width = float(found[1]) * UNITS[found[2]]
    if not NARROWEST <= width <= WIDEST:
        raise SettingsError(
            f"--width {text}: a figure is {NARROWEST / 72:g} to {WIDEST / 72:g} inches wide, "
            f"{NARROWEST / UNITS['cm']:.3g} to {WIDEST / UNITS['cm']:.4g} cm."
        )
    return width
