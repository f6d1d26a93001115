"""How wide a figure is."""

from __future__ import annotations

import pytest

from needlemap.errors import SettingsError
from needlemap.reports.style import parse_width


@pytest.mark.parametrize(
    ("text", "points"),
    [("3.25in", 234), ("8.4cm", 8.4 / 2.54 * 72), ("84 mm", 84 / 25.4 * 72), ("300pt", 300), ("column", 234),
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
