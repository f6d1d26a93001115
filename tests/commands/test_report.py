"""`needlemap report`: a run as text, figure, page and tables; `needlemap list` names what is installed."""

from __future__ import annotations

import csv

import pytest

from needlemap.grid import percent


@pytest.fixture(scope="module")
def reports(tmp_path_factory, command_in):
    """A folder with two runs of the baseline."""
    command = command_in(tmp_path_factory.mktemp("reports"))
    grid = ("--model", "baseline/bm25", "--lengths", "500,900", "--depths", "0,50,100", "--repeats", "2")
    command("run", *grid, "-o", "r")
    command("run", *grid, "--model-options", "window=60", "-o", "short")
    return command


def test_without_a_file_it_prints_a_line_per_length_of_every_run(reports):
    shown = reports("report", "r", "short").stdout
    assert (
        shown.count("baseline/bm25 · single · tokenizer cl100k_base · scorer substring · mode exact\n") == 2
    )
    assert "500  100.0  n=6 [61.0, 100.0]\n" in shown
    assert shown.count("overall ") == 2


@pytest.mark.parametrize(
    ("suffix", "start"),
    [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")],
)
def test_a_figure_is_written_by_its_suffix_into_a_new_folder(reports, typed, suffix, start):
    ended = typed("report", "r", "-o", f"figures/map.{suffix}", folder=reports.folder)
    assert ended.stderr == f"figures/map.{suffix}\n"
    assert (reports.folder / "figures" / f"map.{suffix}").read_bytes().lstrip().startswith(start)


def test_tables_hold_a_row_per_cell_or_per_trial(reports, typed):
    typed("report", "r", "-o", "tables/cells.csv", folder=reports.folder)
    typed("report", "r", "-o", "tables/trials.csv", "--format", "trials", folder=reports.folder)
    with (reports.folder / "tables" / "cells.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    with (reports.folder / "tables" / "trials.csv").open(newline="") as file:
        trials = list(csv.DictReader(file))
    assert [(row["length_tokens"], row["depth_percent"], row["n"]) for row in cells] == [
        (length, depth, "2") for length in ("500", "900") for depth in ("0.0", "50.0", "100.0")
    ]
    assert len(trials) == 12
    records = {record["key"]: record for record in reports.records()}
    for row in trials:
        record = records[row["key"]]
        assert row["answer"] == record["answer"]
        assert float(row["score"]) == percent(record["score"])


def test_the_opencompass_table_has_a_column_per_run(reports, typed):
    typed("report", "r", "short", "-o", "summary.csv", "--format", "opencompass", folder=reports.folder)
    rows = (reports.folder / "summary.csv").read_text().splitlines()
    assert rows[0] == "dataset,version,metric,mode,baseline/bm25@r,baseline/bm25@short"
    assert rows[1].startswith("CDME_Length500Depth0,")
    assert rows[1].endswith(",score,gen,100.00,0.00")
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["r", "-o", "map.gif"], "Cannot write a map as '.gif'. Give a name that ends in .png"),
        (["r", "-o", "x.csv", "--format", "cell"], "Unknown format 'cell'. Did you mean 'cells'?"),
        (["r", "short", "-o", "x.csv"], "This table holds one run."),
        (["r", "short", "-o", "x.png"], "A .png holds one run."),
        (["r", "-o", "x.png", "--palette", "ambr"], "Did you mean 'amber'?"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(reports, typed, flags, said):
    ended = typed("report", *flags, code=2, folder=reports.folder)
    assert said in ended.stderr
    assert ended.stderr.startswith("needlemap: ")
    assert not (reports.folder / flags[-1]).exists()


def test_under_the_map_it_says_what_the_run_comes_to(reports, typed):
    lines = typed("report", "r", folder=reports.folder).stdout.splitlines()[-5:]
    assert lines[0].startswith("all trials: 100.0 [75.8, 100.0] (n=12, 2 haystacks: too few to see ")
    assert lines[1] == (
        "effective length: absolute:85 >=900 · relative:85 >=900 · worst-depth:85 >=900 · auc 100.0"
    )
    assert lines[2].strip() == "no intervals from fewer than 5 haystacks: --repeats 5 or more"
    assert lines[3] == "by depth: 100.0 at every depth"
    assert lines[4] == "power: to see a drop of 5 points you need about 218 paired trials; you have 12"
