"""Each row of the table for people who come from RULER is typed, and does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from needlemap.settings.suites import load_suite

PAGE = (Path(__file__).parents[3] / "docs" / "from-ruler.md").read_text("utf-8")
SECTION = PAGE.partition("## What you type there")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"`(needlemap [^`]+)`", SECTION)
SMALL = ("--lengths", "2400", "--depths", "0", "--repeats", "1", "--max-answer-tokens", "16")
THIRTEEN = 13


def paragraphs(count: int) -> list[dict[str, Any]]:
    return [
        {
            "context": f"Lake {n} is {n + 40} feet deep.",
            "qas": [
                {"question": f"How deep is Lake {n}?", "answers": [{"text": f"{n + 40} feet"}]}
            ],
        }
        for n in range(count)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the rows name."""
    squad = {"data": [{"title": "Lakes", "paragraphs": paragraphs(40)}]}
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    hotpot = [
        {
            "question": f"Who owns the boat on Lake {n}?",
            "answer": f"Owner {n}",
            "supporting_facts": [[f"Lake {n}", 0], [f"Boat {n}", 0]],
            "context": [
                [f"Lake {n}", [f"Boat {n} is there."]],
                [f"Boat {n}", [f"Owner {n} has it."]],
            ],
        }
        for n in range(40)
    ]
    (tmp_path / "hotpotqa.json").write_text(json.dumps(hotpot))
    (tmp_path / "essays").mkdir()
    (tmp_path / "essays" / "work.txt").write_text("Work is a habit. It grows with days. " * 400)
    row = {"input": "The grass is wet. " * 90 + "Ann has 48213.\nHow many?", "outputs": ["48213"]}
    (tmp_path / "validation.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_row_is_typed(command: str, folder: Path, typed: Any, wire: Any) -> None:
    words = shlex.split(command)[1:]
    key = {"OPENAI_API_KEY": "none"}
    if words[0] == "plan":
        if "--lengths" not in words:
            words += ["--lengths", "4096"]
        if "--repeats" not in words:
            words += ["--depths", "50", "--repeats", "1"]
        words = ["8" if word == "500" else word for word in words]
        shown = json.loads(typed(*words, "--json", environment=key).stdout)
        assert len(shown["families"]) == THIRTEEN
        return
    if words[0] == "report":
        typed("run", "suite:ruler", "--model", "baseline/bm25", *SMALL, "-o", "ruler")
        shown = typed(*words).stdout
        assert "effective length as published, the largest whose mean exceeds 85.6" in shown
        return
    words += SMALL[2:] if "published-ruler" in words else SMALL
    words += [] if "--tokenizer" in words else ["--tokenizer", "cl100k_base"]
    words += ["--no-canary", "--base-url", f"{wire.root}/v1"]
    done = typed(*words, environment=key, code=None)
    assert done.returncode in (0, 1), (done.stdout, done.stderr)
    records = [json.loads(line) for file in folder.rglob("records-*.jsonl")
               for line in file.read_text("utf-8").splitlines()]  # fmt: skip
    tasks = {record["task"] for record in records}
    assert len(records) == (THIRTEEN if "suite:ruler" in words else 1), done.stderr
    assert not [record for record in records if record.get("failure")]
    assert tasks


def test_the_suite_has_rulers_thirteen_tests_at_four_of_its_lengths() -> None:
    settled = load_suite("ruler").settle({})
    assert len(settled) == THIRTEEN
    assert all(family.lengths.tokens == (4096, 16384, 65536, 131072) for family in settled.values())
    eight = load_suite("ruler-niah").settle({"lengths": [4096, 16384, 65536, 131072]})
    for name, family in eight.items():
        assert settled[f"niah-{name}"] == family
    assert {family.scorer_options["rule"] for family in settled.values()} == {"ruler"}
