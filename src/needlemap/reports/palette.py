"""Colours for scores of 0 to 100: a fixed scale, never stretched to the data, so maps can be compared."""

from __future__ import annotations

from needlemap.errors import SettingsError, did_you_mean

RGB = tuple[int, int, int]

PALETTES: dict[str, tuple[str, ...]] = {
    "amber": ("#F0496E", "#EBB839", "#0CD79F"),  # red, amber, green, as every needle map since 2023
    "cividis": ("#00224E", "#575D6D", "#7D7C78", "#A69D75", "#FEE838"),  # for all kinds of colour vision
    "grey": ("#252525", "#FFFFFF"),  # for print
}
CHANGES = (
    "#B35806",
    "#F7F7F7",
    "#2166AC",
)  # of a difference: orange lost, blue gained; told apart by all eyes


def palette_colours(name: str) -> tuple[str, ...]:
    """Hex colours of a palette, evenly spaced from score 0 to score 100. Raises SettingsError."""
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
