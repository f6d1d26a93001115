"""A verdict that may be looked at any time: `compare --sequential`, and `run --until`, which stops
at it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import needlemap

GRID = ("--model", "baseline/bm25", "--lengths", "500,900,2000", "--depths", "0:100:5", "--quiet")
AGAIN = ("run", "--prompts-of", "whole", "--model", "baseline/bm25", "--quiet", "--model-options")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, command_in) -> Path:
    """A folder with a reference, one that loses the start of the longest length, and one as
    good."""
    command = command_in(tmp_path_factory.mktemp("gates"))
    command("run", *GRID, "--repeats", "6", "-o", "whole")
    command("run", *GRID, "--repeats", "6", "--model-options", "window=1200", "-o", "short")
    command("run", *GRID, "--repeats", "6", "--model-options", "window=5999", "-o", "equal")
    return Path(command.folder)


@pytest.fixture
def command(folder, typed) -> Any:
    """A command in that folder."""
    return lambda *arguments, code=0: typed(*arguments, code=code, folder=folder)


def records(run: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for file in run.glob("records-*.jsonl")
        for line in file.read_text("utf-8").splitlines()
    ]
    return [json.loads(line) for line in lines]


def test_a_sequential_verdict_says_what_it_rests_on(command):
    lines = command("compare", "whole", "short", "--sequential").stdout.splitlines()
    assert lines[-7] == "90 pairs in the order of the plan, judged after each"
    assert lines[-6] == "A 100.0, B 86.7; B lost 12, gained 0"
    assert (
        lines[-1] == "verdict: worse (decided after 63 pairs; holds however often it was looked at)"
    )
    assert any(
        line.startswith("of new haystacks: undecided after 6 whole haystacks") for line in lines
    )


def test_its_exit_code_knows_three_states_where_a_verdict_is_asked_for(command):
    command("compare", "whole", "short", "--sequential", code=0)
    command("compare", "whole", "short", "--sequential", "--fail-if-worse", "2", code=1)
    command("compare", "whole", "equal", "--sequential", "--fail-if-worse", "10", code=0)
    found = command(
        "compare", "whole", "equal", "--sequential", "--fail-if-worse", "2", code=4
    ).stdout
    assert "more pairs decide with even odds" in found.splitlines()[-1]
    undecided = ("whole", "equal", "--sequential", "--fail-if-worse", "2", "--on-undecided", "pass")
    command("compare", *undecided, code=0)


def test_json_holds_the_same(command):
    found = json.loads(
        command("compare", "whole", "equal", "--sequential", "--margin", "10", "--json").stdout
    )
    assert (found["verdict"], found["decided_after"], found["pairs"]) == (
        "no worse than 10 points",
        58,
        90,
    )
    assert found["new_haystacks"]["haystacks"] == 6


def test_what_the_candidate_failed_to_answer_is_lost(folder, command):
    shutil.copytree(folder / "equal", folder / "failing", dirs_exist_ok=True)
    for file in (folder / "failing").glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        broken = [
            row | ({"score": None, "failure": "timed out"} if row["length_tokens"] == 2000 else {})
            for row in rows
        ]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in broken), encoding="utf-8")
    found = command(
        "compare", "whole", "failing", "--sequential", "--fail-if-worse", "2", code=1
    ).stdout
    assert "B lost 30, gained 0 (30 of them not measured, counted as wrong)" in found


def test_a_run_stops_when_it_is_known_to_be_worse(folder, command):
    goal = ("--until", "no-worse-than", "whole:2", "--concurrency", "1")
    found = command(*AGAIN, "window=1200", *goal, "-o", "worse", code=1).stdout
    assert "verdict: worse (decided after 63 pairs" in found
    assert len(records(folder / "worse")) == 63
    lengths = [row["length_tokens"] for row in records(folder / "worse")]
    assert [lengths.count(length) for length in (500, 900, 2000)] == [
        21,
        21,
        21,
    ]  # any stop is a balanced map
    again = command(*AGAIN, "window=1200", *goal, "-o", "worse", code=1).stdout
    assert again == found
    assert len(records(folder / "worse")) == 63  # nothing more was asked
    assert "decided after 63 pairs" in command("compare", "whole", "worse", "--sequential").stdout


def test_a_run_stops_when_it_is_known_to_be_no_worse_however_many_lanes_ask(folder, command):
    goal = ("--until", "no-worse-than=whole:10", "--concurrency", "4")
    found = command(*AGAIN, "window=5999", *goal, "-o", "fine").stdout
    assert "verdict: no worse than 10 points (decided after 58 pairs" in found
    assert 58 <= len(records(folder / "fine")) <= 70


def test_a_limit_leaves_it_undecided_and_a_resume_goes_on(folder, command):
    goal = ("--until", "no-worse-than=whole:10", "-o", "limited")
    found = command(*AGAIN, "window=5999", *goal, "--limit-tokens", "30000", code=4).stdout
    assert "verdict: undecided (margin 10 points; about" in found
    before = len(records(folder / "limited"))
    command(*AGAIN, "window=5999", *goal, code=0)
    assert before < len(records(folder / "limited")) <= 70


def test_a_run_that_asks_all_and_is_still_undecided_says_so(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    goal = ("--until", "no-worse-than=whole:2", "-o", "asked-all")
    command(*AGAIN, "window=5999", *goal, code=4)
    command(*AGAIN, "window=5999", *goal, "--on-undecided", "pass", code=0)
    assert (
        "takes fail or pass"
        in command(*AGAIN, "window=5999", *goal, "--on-undecided", "x", code=2).stderr
    )
    found = needlemap.load(folder / "asked-all").verdict
    assert (found.word, found.gate.n, found.plain()["lost"]) == ("undecided", 90, 0)
    assert needlemap.load(folder / "whole").verdict is None


def test_what_cannot_be_paired_is_refused_before_anything_is_asked(folder, command):
    other = command(
        "run", *GRID, "--seed", "9", "--until", "no-worse-than=whole:2", "-o", "x", code=2
    )
    assert "asked other prompts" in other.stderr
    assert "--prompts-of whole" in other.stderr
    elsewhere = command(
        "run", *GRID[:3], "700", *GRID[4:], "--until", "no-worse-than=whole", "-o", "x", code=2
    )
    assert "scored none of this run's trials" in elsewhere.stderr
    scored = command(
        "run", *GRID, "--scorer", "exact", "--until", "no-worse-than=whole", "-o", "x", code=2
    )
    assert "is scored otherwise" in scored.stderr
    goal = command("run", *GRID, "--until", "better", "-o", "x", code=2).stderr
    assert "Give no-worse-than RUN:POINTS" in goal
    suite = command(
        "run", "suite:smoke", "--until", "no-worse-than=whole", "-o", "x", code=2
    ).stderr
    assert "needlemap compare REFERENCE x --sequential. Or needlemap ab suite:smoke" in suite
    alone = command("run", *GRID, "--on-undecided", "pass", "-o", "x", code=2).stderr
    assert "--on-undecided is of a verdict. Ask for one: --fail-under or --until." in alone
    assert not (folder / "x").exists()
