"""What people look at, and how wide a figure can be. Colours are in `colours.py`."""

from __future__ import annotations

import re

from needlemap.errors import SettingsError

UNITS = {"in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0}
# Of usual conference papers.
NAMED = {"column": 3.25 * 72, "text": 5.5 * 72, "page": 6.75 * 72}
NARROWEST, WIDEST = 2 * 72.0, 40 * 72.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(in|cm|mm|pt)")


def points_wide(text: str | None) -> float | None:
    """Return a figure's width in points, or None for that of a screen if none is given."""
    return parse_width(text) if text else None


def parse_width(text: str) -> float:
    """Parse a width: a number with in, cm, mm or pt, or column, text or page.

    If it is none of these, SettingsError is raised.

    >>> parse_width("3.25in"), round(parse_width("8.4cm"), 2), parse_width("column")
    (234.0, 238.11, 234.0)
    """
    if text in NAMED:
        return NAMED[text]
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise SettingsError(
            f"--width '{text}' is no width. Write 3.25in, 8.4cm, 84mm or 234pt, or "
            f"{', '.join(NAMED)}."
        )
    width = float(match[1]) * UNITS[match[2]]
    if not NARROWEST <= width <= WIDEST:
        raise SettingsError(
            f"--width {text}: a figure is {NARROWEST / 72:g} to {WIDEST / 72:g} inches wide, "
            f"{NARROWEST / UNITS['cm']:.3g} to {WIDEST / UNITS['cm']:.4g} cm."
        )
    return width
