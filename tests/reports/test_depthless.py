"""A task that asks about the whole text is shown without a depth, wherever results are shown."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from needlemap.records.loaded import Loaded, load_run
from needlemap.reports.figures.figure import Figure, Shown, draw
from needlemap.reports.page.summary import summary
from needlemap.reports.page.written import views_html
from needlemap.reports.renderers.heat import terminal_map
from needlemap.stats.means import Map

FLAGS = (
    "--lengths",
    "800,1000",
    "--depths",
    "50",
    "--repeats",
    "2",
    "--max-answer-tokens",
    "32",
    "--quiet",
)


@pytest.fixture
def run(typed, monkeypatch) -> Loaded:
    monkeypatch.chdir(typed.folder)
    typed("run", "--model", "baseline/bm25", "--task", "count-frequent", *FLAGS, "-o", "r")
    return load_run("r")


@pytest.fixture
def whole(make_map, make_cell) -> Map:
    return replace(make_map([make_cell(1000, 0.5, 0.9), make_cell(2000, 0.5, 0.4)]), depthless=True)


def test_a_runs_own_file_says_so_and_those_of_other_tasks_do_not(run, typed):
    assert run.about.depthless
    assert run.map.depthless
    options = (
        "--task-options",
        "times=6",
        "--task-options",
        "words=3",
        "--task-options",
        "within=0.2",
    )
    for name, flags in {
        "near": ("--task", "count-common", *options),
        "magic": ("--task", "magic"),
    }.items():
        typed("run", "--model", "baseline/bm25", *flags, *FLAGS, "-o", name)
        assert "depthless" not in json.loads(Path(name, "run.json").read_text("utf-8"))
        assert not load_run(name).map.depthless


def test_a_run_scored_anew_says_so_still(run, typed):
    typed("score", run.path, "--scorer", "recall", "-o", "anew")
    assert load_run("anew").map.depthless


def test_the_terminal_names_its_one_row(whole):
    console = Console(width=60, record=True, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(terminal_map(whole))
    assert "whole text " in shown.get()
    assert "%" not in shown.get()


def test_a_figure_has_no_axis_of_depths(whole):
    drawn = draw(Figure((Shown(whole),))).svg
    assert "whole text" in drawn
    assert all(words not in drawn for words in (">Depth<", "depth 50 %", "realised"))
    assert ">Depth<" in draw(Figure((Shown(replace(whole, depthless=False)),))).svg


def test_a_page_has_no_depth_in_words_or_numbers(run):
    page = summary([run], made=datetime(2026, 1, 1, tzinfo=UTC))
    (shown,) = page["runs"]
    assert shown["depthless"] is True
    assert shown["depths"] == [[0.5, "whole text", "50"]]
    assert "whole text" in views_html(page)
    assert not re.search("50 ?%", views_html(page))


@pytest.mark.parametrize("rows", ["cells", "trials"])
def test_tables_leave_it_empty(run, typed, rows):
    typed("report", run.path, "-o", "t.csv", "--format", rows)
    found = list(csv.DictReader(Path("t.csv").read_text("utf-8").splitlines()))
    assert found
    assert {(row["depth_percent"], row["realised_depth_percent"]) for row in found} == {("", "")}


def test_neither_does_a_report_in_words_speak_of_a_depth(run, typed):
    said = typed("report", run.path).stdout
    assert "by depth" not in said
    assert "50%" not in said


def test_nor_does_a_comparison_of_what_changed(run, typed):
    shutil.copytree(run.path, "better")
    for file in Path("better").glob("records-*.jsonl"):
        file.write_text(file.read_text("utf-8").replace('"score":0.0', '"score":1.0'), "utf-8")
    said = typed("compare", run.path, "better").stdout
    assert "not corrected): 800 -100.0 (n=2, p=0.5), 1k -100.0 (n=2, p=0.5)" in said
    assert "50%" not in said
