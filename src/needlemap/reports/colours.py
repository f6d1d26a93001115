"""All colours of terminal, figures and page: of scores, of what is written on them, of curves.

Colours belong to scores of 0 to 100 on a fixed scale, never stretched to the data, so that
maps can be compared. No other module, script or style sheet computes one: the page is sent
`steps` and looks them up.
"""

from __future__ import annotations

from needlemap.errors import SettingsError, did_you_mean

RGB = tuple[int, int, int]

PALETTE = "viridis"
# From score 0 to score 100; all but amber get lighter all the way. Amber is red, amber, green, as
# every needle map since 2023.
PALETTES: dict[str, tuple[str, ...]] = {
    "viridis": (
        "#440154", "#482878", "#3E4A89", "#31688E", "#26828E",
        "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C", "#FDE725",
    ),
    "cividis": ("#00224E", "#575D6D", "#7D7C78", "#A69D75", "#FEE838"),
    "grey": ("#252525", "#FFFFFF"),
    "amber": ("#F0496E", "#EBB839", "#0CD79F"),
}  # fmt: skip
# After Okabe and Ito, 2008.
LINES = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#9A6A00",
    "#56B4E9",
    "#444444",
)
# Of a difference: orange lost, blue gained, told apart by all eyes, as strong on both sides; and on
# the dark.
CHANGES = ("#8A4309", "#DC8B35", "#F4F3EF", "#6AA5DB", "#1A4C86")
DARK_CHANGES = ("#FFB65C", "#9A5A14", "#25292D", "#2B66A3", "#93C6FF")

# A score's colour is that of the nearest half percent: a page needs no more colours than these.
STEPS = 200

# Behind what was not measured, and of the stripes on it: on paper, and on a dark page.
NOT_MEASURED = ("#F4F4F4", "#9A9A9A")
DARK_NOT_MEASURED = ("#212529", "#5D646C")

INK, SOFT, FAINT = "#222222", "#555555", "#BBBBBB"
GRID = "#DDDDDD"
BAND = "#C9D3DF"
# What a figure's colours become on a dark page.
ON_DARK = {
    INK: "#E8E8E4",
    "#000000": "#FFFFFF",
    SOFT: "#A3A9B0",
    FAINT: "#4A5058",
    GRID: "#343940",
    BAND: "#2B4257",
    NOT_MEASURED[0]: DARK_NOT_MEASURED[0],
    NOT_MEASURED[1]: DARK_NOT_MEASURED[1],
    "white": "#131517",
    "#0072B2": "#5FB4E8",
    "#D55E00": "#F2935A",
    "#009E73": "#4CC9A4",
    "#CC79A7": "#E5A4C8",
    "#9A6A00": "#D9AC4A",
    "#56B4E9": "#8CCBF0",
    "#444444": "#B5BAC0",
}


def palette_colours(name: str | None) -> tuple[str, ...]:
    """Return the hex colours of a palette, evenly spaced from score 0 to score 100.

    name: None for the default. If it is unknown, SettingsError is raised.
    """
    name = name or PALETTE
    if name not in PALETTES:
        raise SettingsError(f"Unknown palette '{name}'. {did_you_mean(name, PALETTES)}")
    return PALETTES[name]


def colour_of(score: float, colours: tuple[str, ...]) -> RGB:
    """Return red, green, blue (0..255) of a score in [0, 1].

    Colours are linear between the two nearest of the palette.

    >>> colour_of(0.5, ("#000000", "#0000FF"))
    (0, 0, 128)
    """
    position = step_of(score) / STEPS * (len(colours) - 1)
    left = min(int(position), len(colours) - 2)
    share = position - left
    low, high = _rgb(colours[left]), _rgb(colours[left + 1])
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def step_of(score: float) -> int:
    """Return which of the `STEPS` a score in [0, 1] has. Halves go up, as the page rounds.

    >>> step_of(0.0), step_of(0.3333), step_of(2.0)
    (0, 67, 200)
    """
    return int(min(max(score, 0.0), 1.0) * STEPS + 0.5)


def ink_on(colour: RGB) -> str:
    """Return black or white, whichever reads better on a colour.

    WCAG 2.2: the contrast with black and with white is the same at a relative luminance of
    0.179.

    >>> ink_on((255, 230, 40)), ink_on((70, 0, 80))
    ('#000000', '#FFFFFF')
    """
    shares = [channel / 255 for channel in colour]
    linear = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    luminance = sum(
        weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
    return "#000000" if luminance > 0.179 else "#FFFFFF"


def hex_of(colour: RGB) -> str:
    """Return a colour as CSS and SVG write it."""
    return "#{:02X}{:02X}{:02X}".format(*colour)


def steps(colours: tuple[str, ...]) -> list[list[str]]:
    """Return fill and ink of each step from score 0 to score 100."""
    step_colours = (colour_of(step / STEPS, colours) for step in range(STEPS + 1))
    return [[hex_of(colour), ink_on(colour)] for colour in step_colours]


def _rgb(colour: str) -> RGB:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
