"""How wide a figure is."""

from __future__ import annotations

from itertools import pairwise

import pytest

from needlemap.errors import SettingsError
from needlemap.reports import parse_width
from needlemap.reports.colours import (
    CHANGES,
    DARK_CHANGES,
    PALETTES,
    colour_of,
    palette_colours,
)


@pytest.mark.parametrize(
    ("text", "points"),
    [("3.25in", 234), ("8.4cm", 8.4 / 2.54 * 72), ("84 mm", 84 / 25.4 * 72), ("300pt", 300), ("column", 234),  # noqa: E501
     ("text", 396), ("page", 486)],
)  # fmt: skip
def test_a_width_has_a_unit_or_a_name(text, points):
    assert parse_width(text) == pytest.approx(points)


@pytest.mark.parametrize("text", ["3.25", "wide", "-3in", "3in;", "1e3cm", ""])
def test_anything_else_is_told_how_to_be_written(text):
    with pytest.raises(
        SettingsError, match=r"is no width\. Write 3\.25in, 8\.4cm, 84mm or 234pt, or column, "
    ):
        parse_width(text)


@pytest.mark.parametrize("text", ["1in", "3cm", "41in"])
def test_a_figure_that_nobody_could_read_or_print_is_refused(text):
    with pytest.raises(SettingsError, match="a figure is 2 to 40 inches wide"):
        parse_width(text)


def lightness(colour: tuple[int, int, int]) -> float:
    """Relative luminance (WCAG 2.2): what a grey print keeps of a colour."""
    shares = [channel / 255 for channel in colour]
    linear = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return sum(
        weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def ramp(colours: tuple[str, ...]) -> list[float]:
    return [lightness(colour_of(share / 20, colours)) for share in range(21)]


@pytest.mark.parametrize("name", [None, *sorted(set(PALETTES) - {"amber"})])
def test_the_default_palette_gets_lighter_all_the_way_as_do_all_but_the_older_tools(name):
    shades = ramp(palette_colours(name))
    assert shades == sorted(shades)
    assert min(above - below for below, above in pairwise(shades)) > 0.005


def test_a_loss_is_as_strong_as_a_gain_and_nothing_is_the_grounds_colour():
    for colours, ground in ((CHANGES, 1.0), (DARK_CHANGES, 0.02)):
        shades = ramp(colours)
        assert abs(shades[10] - ground) < 0.12
        away = [abs(shade - shades[10]) for shade in shades]
        assert away[:11] == sorted(away[:11], reverse=True)
        assert all(abs(a - b) < 0.06 for a, b in zip(away, reversed(away), strict=True))
