"""Each command in the table of features beside other tools is typed, and does what its row says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "from-ruler.md").read_text("utf-8")
SECTION = PAGE.partition("## Features beside others")[2].partition("\n## ")[0]
ROWS = [line for line in SECTION.splitlines() if "`needlemap " in line]
COMMANDS = re.findall(r"`(needlemap [^`]+)`", SECTION)
SMALL = ("--repeats", "1", "--max-answer-tokens", "64", "--model", "baseline/bm25")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the rows name."""
    edges = "\n".join(f"{number:04x} -> {number + 1:04x}" for number in range(200))
    walk = {"prompt": f"{edges}\n\nWhich nodes?", "answer_nodes": [], "problem_type": "bfs"}
    (tmp_path / "graphwalks.jsonl").write_text(json.dumps(walk) + "\n")
    said = [
        {"role": "user", "content": "Write a tale."},
        {"role": "assistant", "content": "The sea is grey. " * 1600},
        {"role": "user", "content": "Prepend x7Kq to the tale."},
    ]
    asked = {"prompt": json.dumps(said), "random_string_to_prepend": "x7Kq"}
    row = asked | {"answer": "x7Kq" + said[1]["content"]}
    (tmp_path / "mrcr.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


def test_every_row_has_a_command_of_ours():
    rows = [line for line in SECTION.splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(COMMANDS) == len(rows) - 2  # a head, and its rule


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [each for each in COMMANDS if "compare" not in each])
def test_a_row_is_planned(command: str, typed: Any) -> None:
    """`plan` takes what `run` takes, and asks nothing."""
    words = shlex.split(command)[1:]
    words[0] = "plan"
    if "published" not in command:
        words += ["--lengths", "4096" if "atc" not in command else "16384"]
    assert json.loads(typed(*words, *SMALL, "--json").stdout)


def test_two_runs_are_compared_with_a_verdict(typed: Any) -> None:
    for name in "AB":
        typed("run", "--task", "magic", *SMALL, "--lengths", "1k", "--depths", "0,100", "-o", name)
    command = next(each for each in COMMANDS if "compare" in each)
    last = typed(*shlex.split(command)[1:], code=4).stdout.splitlines()[-1]
    assert last.startswith("NOT ENOUGH DATA compare: B loses 0.0 points")
