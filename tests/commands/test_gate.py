"""A release gate, from the runs to the exit code: three stories in which it was wrong."""

from __future__ import annotations

import pytest

ENGINES = """
import re
from zlib import crc32

def steady(messages):
    return re.search(r"The locker code for [^.]*", messages[-1]["content"])[0]

def lossy(messages):
    lost = crc32(messages[-1]["content"].encode()) % 10 == 0
    return "I do not know." if lost else steady(messages)

def gone(messages):
    raise RuntimeError("out of blocks")

def crashing(messages):
    if len(messages[-1]["content"]) > 5_000:
        raise RuntimeError("out of blocks")
    return steady(messages)
"""
GRID = ("--lengths", "400:2000:10", "--depths", "0:100:10", "--no-canary", "--quiet")


@pytest.fixture(scope="module")
def gate(tmp_path_factory, command_in):
    """Runs of the three engines, and `compare` as a gate."""
    command = command_in(tmp_path_factory.mktemp("gate"))
    (command.folder / "engines.py").write_text(ENGINES)
    for name, repeats in (
        ("steady", 1),
        ("lossy", 1),
        ("crashing", 1),
        ("steady", 3),
        ("lossy", 2),
    ):
        model = ("--model", f"python/engines:{name}", "--label", name)
        command("run", *model, *GRID, "--repeats", repeats, "-o", f"{name}-{repeats}", code=None)
    return command


def test_a_candidate_that_crashes_on_long_prompts_does_not_pass(gate):
    """It was no worse than 5 points, exit code 0: what it did not answer was left out."""
    ended = gate("compare", "steady-1", "crashing-1", "--fail-if-worse", "5", code=5)
    verdict = ended.stdout.splitlines()[-1]
    assert "crashing did not answer 30 prompts that steady answered (lengths " in verdict
    assert verdict.startswith("SUSPECT compare: crashing loses 0.0 points (")


def test_a_candidate_that_answers_nothing_does_not_pass(gate):
    """It was refused with exit code 2: no trial had both scores."""
    model = ("--model", "python/engines:gone", "--label", "gone")
    gate("run", *model, *GRID, "-o", "gone", code=2)
    ended = gate("compare", "steady-1", "gone", "--fail-if-worse", "5", code=5)
    assert "A 100.0, B 0.0\n" in ended.stdout
    assert "which may add 100.0 to the loss" in ended.stdout
    assert "by length" not in ended.stdout


def test_two_repeats_are_no_weaker_than_one(gate):
    """A loss of 10 points was seen in 95 of 100 runs of one repeat, and in 28 of two."""
    for lossy in ("lossy-1", "lossy-2"):
        ended = gate("compare", "steady-3", lossy, "--fail-if-worse", "2", code=1)
        assert "FAIL compare: lossy loses " in ended.stdout


def test_a_quiet_engine_has_to_answer_enough_prompts(gate):
    """Equal answers to about 96 prompts were no worse than 2 points, as were those of one in seven
    engines that lose 2."""
    few = gate("compare", "steady-3", "steady-1", "--fail-if-worse", "2", code=4)
    assert "a PASS at 2 points takes 189 equal pairs at least" in few.stdout
    gate(
        "compare", "steady-3", "steady-1", "--fail-if-worse", "2", "--on-undecided", "pass", code=0
    )
    gate(
        "run",
        "--model",
        "python/engines:steady",
        *GRID,
        "--repeats",
        3,
        "-o",
        "again",
        "--label",
        "quiet",
    )
    enough = gate("compare", "steady-3", "again", "--fail-if-worse", "2", code=0)
    assert "PASS compare: quiet loses less than 2 points: 0.0 (" in enough.stdout
