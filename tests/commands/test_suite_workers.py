"""`needlemap run suite:... --workers`: the families one after the other, each by workers, from one budget."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

FAMILIES = ("key", "one", "all")
MINE = (
    "settings: {lengths: [300, 400, 500], depths: [0, 50, 100], max_answer_tokens: 40}\n"
    "families: {key: {task: passkey}, one: {task: magic}, all: {task: multivalue}}\n"
)
TRIALS = 9  # of each family


@pytest.fixture
def mine(needlemap: Any, wire: Any) -> tuple[object, ...]:
    """A suite on a server, to be asked by two workers."""
    (needlemap.folder / "mine.yaml").write_text(MINE)
    model = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    return "run", "suite:mine.yaml", *model, "--no-canary", "-o", "s", "--workers", 2, "--concurrency", 1


def scored(needlemap: Any) -> dict[str, int]:
    """How many trials of each family were scored; none twice."""
    found = {family: needlemap.scored(f"s/{family}") for family in FAMILIES}
    assert all(set(times.values()) <= {1} for times in found.values())
    return {family: len(times) for family, times in found.items()}


def row(out: str, name: str) -> list[str]:
    """A row of the table."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
    return line.split()[1:]


def launches(needlemap: Any) -> list[str]:
    """The families that workers were started for."""
    return [family for family in FAMILIES if (needlemap.folder / "s" / family / "launch.json").exists()]


def test_workers_record_what_one_process_does(needlemap):
    (needlemap.folder / "mine.yaml").write_text(MINE)
    needlemap("run", "suite:mine.yaml", "-o", "one", "--repeats", 2)
    done = needlemap("run", "suite:mine.yaml", "-o", "s", "--repeats", 2, "--workers", 2)
    for family in FAMILIES:
        assert needlemap.answered(f"s/{family}") == needlemap.answered(f"one/{family}")
        both = {row["records"] for row in needlemap.workers(f"s/{family}")}
        assert {file.name for file in (needlemap.folder / "s" / family).glob("records-*")} <= both
    assert "suite mine: 3 families, 54 trials\n" in done.stderr
    assert done.stdout == needlemap("report", "s").stdout  # the suite's table, and no family's map
    assert "report: needlemap report s -o report.html" in done.stderr
    again = needlemap("run", "suite:mine.yaml", "-o", "s", "--repeats", 2, "--workers", 2)
    assert "54 already scored" in again.stderr
    assert "started" not in again.stderr


def test_a_limit_on_tokens_holds_over_the_workers_of_all_families(needlemap, wire, mine):
    """Nine prompts come to about 3,500 tokens, so the second family reaches the limit. What the other worker
    has in flight, 500 tokens at most, may go beyond it."""
    wire.schedule("slow:0.1", cycle=True)
    done = needlemap(*mine, "--limit-tokens", 5000, code=3)
    assert "stopped by the budget: used " in done.stderr
    assert "the same command with a higher limit and -o s\n" in done.stderr
    assert launches(needlemap) == ["key", "one"]
    records = [record for family in ("key", "one") for record in needlemap.records(f"s/{family}")]
    assert sum(record["prompt_tokens"] + record["completion_tokens"] for record in records) <= 5500
    assert row(done.stdout, "all")[-2:] == ["not", "begun"]
    wire.schedule()
    needlemap(*mine)
    assert scored(needlemap) == dict.fromkeys(FAMILIES, TRIALS)


def test_a_limit_on_time_is_the_suites_and_not_each_familys(needlemap, wire, mine, until):
    """The first family takes two workers at least 4.5 seconds, the second 27: alone, neither is over 30."""
    wire.schedule("slow:1", cycle=True)
    process = needlemap.start(*mine, "--limit-time", "30s")
    until(lambda: len(needlemap.records("s/key")) == TRIALS)
    wire.schedule("slow:6", cycle=True)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 3, err
    assert "stopped by the budget: ran for 30 s, as long as --limit-time allows" in err
    assert launches(needlemap) == ["key", "one"]
    assert scored(needlemap)["one"] < TRIALS


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_workers_and_the_suite(needlemap, wire, mine, how, until):
    wire.schedule("slow:1", cycle=True)
    process = needlemap.start(*mine)
    until(lambda: len(needlemap.records("s/key")) >= 2)
    process.send_signal(how)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 128 + how
    assert "to go on: the same command with -o s.\n" in err
    assert row(out, "one")[-2:] == ["not", "begun"]
    assert json.loads((needlemap.folder / "s/key/launch.json").read_text())["ended"]
    wire.schedule()
    needlemap(*mine)
    assert scored(needlemap) == dict.fromkeys(FAMILIES, TRIALS)


def test_a_lost_command_is_attached_to_by_the_suites_folder(needlemap, wire, mine, until):
    wire.schedule("slow:5", cycle=True)
    first = needlemap.start(*mine)
    until(lambda: len(needlemap.records("s/key")) >= 2)
    first.kill()
    first.wait()
    refused = needlemap(*mine, code=2)
    assert "Workers of this machine are at work on 's/key'" in refused.stderr
    assert "needlemap run --attach s/key" in refused.stderr
    wire.schedule()
    attached = needlemap("run", "--attach", "s")
    said = "needlemap: key is one family. To go on with the others: the same command with -o s\n"
    assert attached.stderr.endswith(said)
    assert row(attached.stdout, "key")[-1] == str(TRIALS)
    assert scored(needlemap) == {"key": TRIALS, "one": 0, "all": 0}
    needlemap(*mine)
    assert scored(needlemap) == dict.fromkeys(FAMILIES, TRIALS)
    none = needlemap("run", "--attach", "s", code=2).stderr
    assert "No workers were left to work on a family of 's'." in none


def test_what_would_start_them_is_printed_for_the_first_family(needlemap, mine):
    dry = needlemap(*mine, "--dry-run")
    command = re.compile(r"-m needlemap.runs.worker \S+s/key/launches/1 process-2 &")
    assert command.search(dry.stdout)
    assert dry.stderr.endswith("So much for key; then, each in its own folder: one, all\n")
    assert not Path(needlemap.folder, "s").exists()


def test_what_workers_find_wrong_stops_the_suite(needlemap):
    """The other families' workers would find the same."""
    (needlemap.folder / "mine.yaml").write_text(MINE)
    (needlemap.folder / "here.py").write_text(
        "import sys\n"
        "if 'needlemap.runs.worker' in sys.orig_argv:\n"
        "    raise ImportError('no such device on this machine')\n"
        "def answer(messages):\n"
        "    return ''\n"
    )
    model = ("--model", "python/here:answer", "--tokenizer", "cl100k_base")
    done = needlemap("run", "suite:mine.yaml", *model, "-o", "s", "--workers", 2, code=2)
    assert "a worker ended: " in done.stderr
    assert launches(needlemap) == ["key"]
