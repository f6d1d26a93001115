"""`--scorer recovery` as any other score: maps, files, gates and comparisons."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

GRID = ("--model", "demo/retriever", "--lengths", "128,256", "--depths", "0,50,100")
GIVEN = (*GRID, "--repeats", "12", "--max-answer-tokens", "16", "--scorer", "recovery", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, command_in):
    """A run, and one whose needles bring a third of its gains."""
    command = command_in(tmp_path_factory.mktemp("recovered"))
    command("run", *GIVEN, "-o", "whole")
    folder = shutil.copytree(command.folder / "whole", command.folder / "third")
    for file in folder.glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            gain, most = row["scorer"]["ratio"]
            row["scorer"]["ratio"] = [gain / 3, most]
            row["score"] = min(1.0, max(0.0, gain / 3 / most))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return command


def sums(folder):
    """Recovery by length from the records, in percent: the ratio of summed gains."""
    parts = dict[int, list[float]]()
    for file in folder.glob("records-*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            here = parts.setdefault(row["length_tokens"], [0.0, 0.0])
            for at, part in enumerate(row["scorer"]["ratio"]):
                here[at] += part
    return {length: 100 * gain / most for length, (gain, most) in parts.items()}


def test_maps_tables_and_json_show_ratios_of_sums_with_intervals(runs):
    fields = json.loads(runs("report", "whole", "--json").stdout)["runs"][0]
    found = {row["length_tokens"]: row for row in fields["lengths"]}
    for length, share in sums(runs.folder / "whole").items():
        assert found[length]["score"] == pytest.approx(min(100.0, share), abs=0.01)
        assert found[length]["low"] < found[length]["score"] <= found[length]["high"]
    runs("report", "whole", "-o", "cells.csv")
    rows = list(csv.DictReader((runs.folder / "cells.csv").read_text().splitlines()))
    assert len(rows) == 6
    assert all(0 <= float(row["low"]) <= float(row["score"]) <= 100 for row in rows)


@pytest.mark.parametrize("file", ["map.svg", "page.html", "map.md"])
def test_every_kind_of_report_is_drawn(runs, file):
    runs("report", "whole", "third", "-o", file)
    assert (runs.folder / file).stat().st_size > 400


def test_accuracy_is_shown_beside_it_in_words_and_dotted(runs):
    words = "accuracy (each token of the value is the model's first choice): 128 "
    assert words in runs("report", "whole").stdout
    runs("report", "whole", "third", "-o", "curves.svg", "--curves")
    drawn = (runs.folder / "curves.svg").read_text()
    assert "Dotted: accuracy." in drawn
    assert drawn.count('stroke-dasharray="0.8 1.6"') == 2


@pytest.mark.parametrize(("run", "code"), [("whole", 0), ("third", 1)])
def test_a_run_fails_under_a_recovery(runs, run, code):
    ended = runs("run", *GIVEN, "-o", run, "--fail-under", "60", code=code)
    assert f"Exit code {code}" in ended.stdout


def test_a_checkpoint_that_recovers_less_fails_a_comparison_and_itself_passes(runs):
    ended = runs("compare", "whole", "third", "--fail-if-worse", "5", code=1)
    assert "verdict: worse" in ended.stdout
    runs("compare", "third", "whole", "--fail-if-worse", "5", code=0)


def test_a_recovery_and_another_score_are_not_compared(runs):
    runs("run", *GRID, "--repeats", "12", "--max-answer-tokens", "16", "--quiet", "-o", "asked")
    ended = runs("compare", "whole", "asked", code=2)
    assert "Scorer 'recovery' asks the model" in ended.stderr
