"""Reports as Markdown: tables that need no picture, and a picture beside them."""

from __future__ import annotations

import json

import pytest

GRID = ("--lengths", "500,900", "--depths", "0,100", "--tokenizer", "cl100k_base", "--quiet")


@pytest.fixture
def runs(needlemap):
    needlemap("run", "bm25", *GRID, "--label", "a|b <i>*", "-o", "one")
    needlemap("run", "bm25", *GRID, "--model-options", "window=400", "-o", "two")
    return "one", "two"


def test_two_runs_show_what_changed_and_each_map(runs, needlemap, tmp_path):
    needlemap("report", *runs, "-o", "both.md")
    lines = (tmp_path / "both.md").read_text().splitlines()
    assert lines[0] == "![The map](both.svg)"
    assert "<svg" in (tmp_path / "both.svg").read_text()
    head = r"**Loss of baseline/bm25 compared with a\|b \<i\>\***: "
    (at,) = (at for at, line in enumerate(lines) if line.startswith(head))
    loss = json.loads(needlemap("compare", *runs, "--json").stdout)["loss"]
    ends = f"{loss['low']:.1f} to {loss['high']:.1f}".replace("-", "\N{MINUS SIGN}")
    assert lines[at] == rf"{head}{loss['value']:.1f} points \({ends}\), n = 8 pairs"
    assert lines[at + 2 : at + 6] == [
        "|  | 500 | 900 |",
        "| ---: | ---: | ---: |",
        "| 0% | 0.0 | 100.0 |",
        "| 100% | 0.0 | 0.0 |",
    ]
    assert r"**a\|b \<i\>\***, single: overall 100.0 \(n=8, 0 missing\) \[64.4, 100.0\]" in lines


def test_one_run_has_its_own_map_alone(runs, needlemap, tmp_path):
    needlemap("report", runs[1], "-o", "two.md")
    text = (tmp_path / "two.md").read_text()
    assert "in points" not in text
    assert "| 0% | 100.0 | 0.0 |" in text


def test_what_only_pictures_have_is_refused(runs, needlemap):
    refused = needlemap("report", runs[0], "-o", "one.md", "--width", "column", code=2)
    assert "--width is a figure's, and one.md is none" in refused.stderr
