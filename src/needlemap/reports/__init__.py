"""What people look at: the colours of terminal, figures and page, and how wide a figure can
be.

Colours belong to scores of 0 to 100 on a fixed scale, never stretched to the data, so that
maps can be compared.
"""

from __future__ import annotations

import re

from needlemap.errors import SettingsError, did_you_mean

UNITS = {"in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0}
NAMED = {"column": 3.25 * 72, "text": 5.5 * 72, "page": 6.75 * 72}  # of usual conference papers
NARROWEST, WIDEST = 2 * 72.0, 40 * 72.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(in|cm|mm|pt)")


def points_wide(text: str | None) -> float | None:
    """What a figure's width comes to in points; None, for a screen's, where none is given."""
    return parse_width(text) if text else None


def parse_width(text: str) -> float:
    """A width as typed: a number with in, cm, mm or pt, or column, text or page. Raises
    SettingsError.

    >>> parse_width("3.25in"), round(parse_width("8.4cm"), 2), parse_width("column")
    (234.0, 238.11, 234.0)
    """
    if text in NAMED:
        return NAMED[text]
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise SettingsError(
            f"--width '{text}' is no width. Write 3.25in, 8.4cm, 84mm or 234pt, or "
            f"{', '.join(NAMED)}."
        )
    width = float(found[1]) * UNITS[found[2]]
    if not NARROWEST <= width <= WIDEST:
        raise SettingsError(
            f"--width {text}: a figure is {NARROWEST / 72:g} to {WIDEST / 72:g} inches wide, "
            f"{NARROWEST / UNITS['cm']:.3g} to {WIDEST / UNITS['cm']:.4g} cm."
        )
    return width


RGB = tuple[int, int, int]

PALETTE = "viridis"
# from score 0 to score 100; all but amber get lighter all the way
PALETTES: dict[str, tuple[str, ...]] = {
    "viridis": (
        "#440154", "#482878", "#3E4A89", "#31688E", "#26828E",
        "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C", "#FDE725",
    ),
    "cividis": ("#00224E", "#575D6D", "#7D7C78", "#A69D75", "#FEE838"),
    "grey": ("#252525", "#FFFFFF"),
    "amber": ("#F0496E", "#EBB839", "#0CD79F"),  # red, amber, green, as every needle map since 2023
}  # fmt: skip
LINES = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#9A6A00",
    "#56B4E9",
    "#444444",
)  # after Okabe and Ito, 2008
# Of a difference: orange lost, blue gained, told apart by all eyes, as strong on both sides; and on
# the dark.
CHANGES = ("#8A4309", "#DC8B35", "#F4F3EF", "#6AA5DB", "#1A4C86")
DARK_CHANGES = ("#FFB65C", "#9A5A14", "#25292D", "#2B66A3", "#93C6FF")


def palette_colours(name: str | None) -> tuple[str, ...]:
    """Hex colours of a palette, evenly spaced from score 0 to score 100. None: the default.
    Raises SettingsError."""
    name = name or PALETTE
    if name not in PALETTES:
        raise SettingsError(f"Unknown palette '{name}'. {did_you_mean(name, PALETTES)}")
    return PALETTES[name]


def colour_of(score: float, colours: tuple[str, ...]) -> RGB:
    """Red, green, blue (0..255) of a score in [0, 1], linear between the two nearest colours.

    >>> colour_of(0.5, ("#000000", "#0000FF"))
    (0, 0, 128)
    """
    place = min(max(score, 0.0), 1.0) * (len(colours) - 1)
    left = min(int(place), len(colours) - 2)
    share = place - left
    low, high = _rgb(colours[left]), _rgb(colours[left + 1])
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _rgb(colour: str) -> RGB:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
