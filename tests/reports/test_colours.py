"""One module gives the colours of scores and the ink on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from needlemap.reports import colours
from needlemap.reports.colours import (
    CHANGES,
    DARK_CHANGES,
    NOT_MEASURED,
    PALETTES,
    STEPS,
    colour_of,
    hex_of,
    ink_on,
    step_of,
    steps,
)
from needlemap.reports.figures.panels import score_scale
from needlemap.reports.renderers.heat import UNICODE, Painter, Spot

SOURCES = Path(colours.__file__).parents[1]
INK_RULES = {
    "weights of red, green and blue": r"0?\.2126|0?\.7152|0?\.299\b|0?\.587|3\s*,\s*6\s*,\s*1\b"
    r"|\*\s*3\s*\+.*\*\s*6|0\.179",
    "a choice between black and white": r"(?i)(black|#0{3}\b|#0{6}|#1[01]1[01]1[01]|\bINK\b)\W{1,3}"
    r"(if|else|:|\?).{0,80}(white|#fff\b|#f{6})"
    r"|(white|#fff\b|#f{6})\W{1,3}(if|else|:|\?).{0,80}(black|#0{3}\b|#0{6}|#1[01]1[01]1[01]|\bINK\b)"
    r"|\b(INK|black)\b if .* else \W?white",
    "a colour of its own for a score": r"(?i)#440154|#482878|#00224E|#FDE725|#F0496E|#8A4309",
    "what CSS can choose by itself": r"contrast-color\(|color-contrast\(",
    "a second way to draw what was not measured": "|".join(NOT_MEASURED),
}


def second_rules(text: str) -> Iterator[str]:
    """Yield what a text knows of colours that `colours.py` should give."""
    yield from (name for name, rule in INK_RULES.items() if re.search(rule, text))


def test_no_other_file_has_a_rule_for_ink_or_a_colour_of_scores():
    found = {
        str(path.relative_to(SOURCES)): rules
        for path in sorted(SOURCES.rglob("*"))
        if path.suffix in (".py", ".js", ".css", ".html") and path.name != "colours.py"
        if (rules := list(second_rules(path.read_text("utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "rule",
    [
        "light = sum(w * p for w, p in zip((3, 6, 1), shade)) > 1150",
        'return INK if light else "white"',
        'ink = "#101010" if red * 3 + green * 6 + blue > 1000 else "#FFFFFF"',
        'return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";',
        "color: contrast-color(var(--fill));",
        'ink = "black" if score > 0.5 else "white"',
        'const ink = share > 0.45 ? "#000" : "#fff";',
        "--hatch-ground: #F4F4F4;",
        'RAMP = ("#440154", "#FDE725")',
    ],
)
def test_a_second_rule_is_found_in_any_language(rule):
    assert list(second_rules(rule))


@pytest.mark.parametrize("name", PALETTES)
def test_figure_terminal_and_page_agree_on_every_fill_and_ink(name):
    """They disagreed at scores of 42 to 53."""
    scale, painter = score_scale(name), Painter(4, PALETTES[name], UNICODE)
    inked = steps(PALETTES[name])
    for tenth in range(1001):
        score = tenth / 1000
        fill, ink = inked[step_of(score)]
        assert (scale.colour(100 * score), scale.ink(100 * score)) == (fill, ink)
        style = painter.spot(Spot(score))[1]
        assert (style.bgcolor.triplet.hex.upper(), style.color.triplet.hex.upper()) == (fill, ink)


@pytest.mark.parametrize("colours_", [*PALETTES.values(), CHANGES, DARK_CHANGES])
def test_text_on_every_colour_has_the_contrast_that_wcag_asks_for(colours_):
    def light(colour):
        parts = [part / 255 for part in colour]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for step in range(STEPS + 1):
        colour = colour_of(step / STEPS, colours_)
        ink = (0, 0, 0) if ink_on(colour) == hex_of((0, 0, 0)) else (255, 255, 255)
        low, high = sorted((light(colour), light(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5
