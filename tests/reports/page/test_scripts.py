"""The page's scripts move between views, cells and trials: labels, charts and tables come from
Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from needlemap.reports.page import document

SCRIPTS = {
    path.name: path.read_text("utf-8")
    for path in sorted(Path(document.__file__).parent.glob("*.js"))
}
TWINS = {
    "a rounded number": r"\.toFixed|\.toPrecision|Math\.(round|trunc|ceil)|Intl\.",
    "a percent sign behind a number": r"\}\s?%|[\"'`]\s?%",
    "a short number of tokens": r"/ ?1_?000|1e3|1e6|[\"'][kMG][\"']",
    "an interval": r"`\[\$\{",
    "a currency": r"`\$\$\{|USD",
    "a duration": r"\} (s|min|h)\b",
    "points of a loss": r"points\(|\} points",
    "a true minus": r"\\u2212|\u2212",
}
DRAWN = {
    "a shape of a chart": r"[\"'](polygon|polyline|path|circle|line|rect|text)[\"'],",
    "a table": r"el\(\s*[\"'](table|thead|tbody|tr|td|th)[\"']",
}


def found(rules: dict[str, str], text: str) -> Iterator[str]:
    """Yield the rules that a script breaks."""
    yield from (name for name, rule in rules.items() if re.search(rule, text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_writes_a_number_as_python_does(name):
    """The twin of `in_percent` rounded 81.25 to 81.3 where Python wrote 81.2."""
    assert list(found(TWINS, SCRIPTS[name])) == []
    assert SCRIPTS[name].count("toLocaleString") == (name == "text.js")  # counts of what is listed


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_draws_a_chart_or_a_table(name):
    assert list(found(DRAWN, SCRIPTS[name])) == []


@pytest.mark.parametrize(
    "twin",
    [
        "return share.toFixed(1);",
        "`${Math.round(100 * share)}%`",
        "const label = `${number / 1000}k`;",
        "`[${low}, ${high}]`",
        "`${seconds} s`",
        "return `${loss} points`;",
        "`$${usd}`",
    ],
)
def test_a_twin_of_a_label_is_found(twin):
    assert list(found(TWINS, twin))


@pytest.mark.parametrize("drawing", ['svg("circle", { r: 2 })', 'el("table", {}, rows)'])
def test_a_second_chart_or_table_is_found(drawing):
    assert list(found(DRAWN, drawing))
