"""A verdict that may be looked at any time: `compare --sequential`, and `run --until`, which stops
at it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.stats.looks import in_random_order

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
    assert "90 pairs, 6 haystacks" in lines
    looks = "90 pairs of 90 planned, judged after each random piece; decided after 60 pairs"
    assert looks in lines
    assert lines[-1].startswith("compare: short loses 13.3 points (5.6 to 21.9), 90 pairs at 500, ")


def test_its_exit_code_is_the_verdicts_where_one_is_asked_for(command):
    command("compare", "whole", "short", "--sequential", code=0)
    command("compare", "whole", "short", "--sequential", "--fail-if-worse", "2", code=1)
    equal = ("compare", "whole", "equal", "--sequential", "--fail-if-worse")
    assert "6 haystacks" in command(*equal, "10", code=0).stdout
    found = command(
        "compare", "whole", "equal", "--sequential", "--fail-if-worse", "2", code=4
    ).stdout
    assert "about 99 more pairs decide if it stays so" in found.splitlines()[-1]
    undecided = ("whole", "equal", "--sequential", "--fail-if-worse", "2", "--on-undecided", "pass")
    command("compare", *undecided, code=0)


def test_pairs_of_unfinished_haystacks_are_shown_and_named_as_not_judged(folder, command):
    """50 pairs lost 12.0 points above and 9 of them 11.1 below, and nothing said why."""
    shutil.copytree(folder / "short", folder / "begun", dirs_exist_ok=True)
    finished = in_random_order(range(6))[:2]
    for file in (folder / "begun").glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        sent = [row for row in rows if row["repeat"] in finished or row["length_tokens"] == 2000]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in sent), encoding="utf-8")
    compared = ("compare", "whole", "begun", "--sequential")
    lines = command(*compared, "--scope", "new").stdout.splitlines()
    assert "50 pairs, 6 haystacks" in lines
    assert "loses 13.3 points (" in lines[-1]
    assert (
        "), 30 pairs at 500, 900, 2k, 20 pairs of unfinished or later haystacks not judged; new"
        in lines[-1]
    )
    found = json.loads(command(*compared, "--scope", "new", "--json").stdout)
    assert (found["pairs"], found["not_judged"]) == (30, 20)
    assert json.loads(command(*compared, "--json").stdout)["not_judged"] == 0


def test_json_holds_the_same(command):
    found = json.loads(
        command("compare", "whole", "equal", "--sequential", "--margin", "10", "--json").stdout
    )
    assert found["result"]["word"] == "PASS"
    assert (found["unit"], found["decided_after"], found["planned"]) == ("pair", 50, 90)
    assert (found["pairs"], found["new_haystacks"]["haystacks"]) == (90, 6)


def test_what_the_candidate_failed_to_answer_keeps_it_from_passing(folder, command):
    shutil.copytree(folder / "equal", folder / "failing", dirs_exist_ok=True)
    for file in (folder / "failing").glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        broken = [
            row | ({"score": None, "failure": "timed out"} if row["length_tokens"] == 2000 else {})
            for row in rows
        ]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in broken), encoding="utf-8")
    found = command(
        "compare", "whole", "failing", "--sequential", "--fail-if-worse", "2", code=5
    ).stdout
    assert "length 2k: 30 of 30 lost, 30 of them not answered" in found.splitlines()[-1]


def test_a_run_stops_when_it_is_known_to_be_worse(folder, command):
    """Prompts in random order are drawn one by one: whole haystacks took 60 of 90."""
    goal = ("--until", "no-worse-than", "whole:2", "--concurrency", "1", "--no-canary")
    wrong = ("run", "--prompts-of", "whole", "--model", "baseline/random", "--quiet", *goal)
    found = command(*wrong, "-o", "worse", code=1).stdout
    assert "decided after 20 pairs" in found
    assert found.splitlines()[-1].startswith("FAIL run: this run loses 100.0 points (")
    rows = records(folder / "worse")
    assert len(rows) == 20
    again = command(*wrong, "-o", "worse", code=1).stdout
    assert again == found
    assert len(records(folder / "worse")) == 20  # nothing more was asked
    whole = command("compare", "whole", "worse", "--sequential").stdout
    assert "decided after 20 pairs" in whole


def test_equal_answers_end_a_run_early_and_however_many_lanes_ask(folder, command):
    goal = ("--until", "no-worse-than=whole:10", "--concurrency", "4")
    found = command(*AGAIN, "window=5999", *goal, "-o", "fine").stdout
    assert "PASS run: this run loses less than 10 points: 0.0 (" in found
    assert "decided after 50 pairs" in found
    # The canary, and what other lanes had sent.
    assert 50 <= len(records(folder / "fine")) < 60


def test_a_limit_leaves_it_undecided_and_a_resume_goes_on(folder, command):
    goal = ("--until", "no-worse-than=whole:10", "-o", "limited")
    found = command(*AGAIN, "window=5999", *goal, "--limit-tokens", "30000", code=4).stdout
    assert "of 90 planned pairs are still to be asked" in found
    before = len(records(folder / "limited"))
    command(*AGAIN, "window=5999", *goal, code=0)
    assert before < len(records(folder / "limited")) < 60


def test_a_run_that_asks_all_and_is_still_undecided_says_so(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    goal = ("--until", "no-worse-than=whole:2", "-o", "asked-all")
    command(*AGAIN, "window=5999", *goal, code=4)
    command(*AGAIN, "window=5999", *goal, "--on-undecided", "pass", code=0)
    assert (
        "not one of 'fail', 'pass'"
        in command(*AGAIN, "window=5999", *goal, "--on-undecided", "x", code=2).stderr
    )
    found = needlemap.load(folder / "asked-all").verdict
    assert (found.word, found.evidence) == ("NOT ENOUGH DATA", "90 pairs at 500, 900, 2k")
    assert needlemap.load(folder / "whole").verdict is None


def test_a_verdict_on_new_haystacks_is_not_given_by_six(folder, command, monkeypatch):
    """What these prompts decide is asked to the end and stays open; the run keeps what was
    wanted."""
    monkeypatch.chdir(folder)
    goal = ("--until", "no-worse-than=whole:10", "--scope", "new", "-o", "wider")
    found = command(*AGAIN, "window=5999", *goal, code=4).stdout
    assert found.splitlines()[-1].startswith("NOT ENOUGH DATA run: this run loses 0.0 points")
    assert len(records(folder / "wider")) == 90
    assert needlemap.load(folder / "wider").verdict.word == "NOT ENOUGH DATA"
    compared = ("compare", "whole", "wider", "--sequential", "--fail-if-worse", "10")
    command(*compared, code=0)
    command(*compared, "--scope", "new", code=4)
    refused = command(*AGAIN, "window=5999", "--scope", "wide", "-o", "x", code=2).stderr
    assert "'these' or 'new'" in refused


def test_without_a_margin_it_would_never_end_and_is_refused(command):
    found = command(*AGAIN, "window=5999", "--until", "no-worse-than=whole:0", "-o", "x", code=2)
    assert "without a margin equal engines are never decided" in found.stderr


FLAKY = """
import re
from itertools import count

calls = count()

def once(messages):
    said = messages[-1]["content"]
    if next(calls) in (4, 11, 19):
        raise RuntimeError("timed out")
    return re.search(r"The locker code for [^.]*", said)[0]
"""


def test_what_failed_is_asked_again_before_the_verdict(tmp_path_factory, command_in):
    """Random time-outs of an equal engine were lost pairs."""
    command = command_in(tmp_path_factory.mktemp("again"))
    (command.folder / "flaky.py").write_text(FLAKY)
    grid = ("--lengths", "500", "--depths", "0:100:5", "--repeats", "6", "--quiet", "--no-canary")
    command("run", "--model", "baseline/bm25", *grid, "-o", "a")
    again = ("run", "--prompts-of", "a", "--model", "python/flaky:once", "--quiet", "--no-canary")
    found = command(*again, "--until", "no-worse-than=a:15", "-o", "b", "--retries", 0).stdout
    assert found.splitlines()[-1].startswith("PASS run: ")
    rows = records(command.folder / "b")
    scored = {row["key"] for row in rows if row["score"] is not None}
    failed = {row["key"] for row in rows if row["score"] is None}
    assert (len(failed), failed - scored) == (3, set())


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
