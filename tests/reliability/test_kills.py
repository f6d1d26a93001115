"""Killed, out of disk, or with a clock that goes back: what was scored stays, nothing is scored
twice.

NEEDLEMAP_KILLS: how often the run is killed (3; in CI 40; with --long 100). Torn last lines, and
two runs on one folder: tests/asking/test_resume.py. Killed replicas:
tests/wings/cluster/test_replicas.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from needlemap.records.folder import RunFolder, parse_record

KILLS = int(os.environ.get("NEEDLEMAP_KILLS", "3"))
CONCURRENCY = 4
SLOW_S = 0.1  # an answer takes so long
# trials for each kill: more than are answered by then, so that there is something left to kill
EACH = 20


def readable(run: Path) -> int:
    """How many records a run holds. Every file is readable, and no line torn but a file's last."""
    if (run / "run.json").exists():
        RunFolder(run).about()
    lines: list[bytes] = []
    for file in run.glob("records-*.jsonl"):
        *whole, _ = file.read_bytes().split(b"\n")
        lines += whole
    assert all(map(parse_record, lines))
    return len(lines)


def settled(wire: Any) -> int:
    """The requests that came, once no more of a killed client's are on the way."""
    before = -1
    while before != (before := len(wire.log())):
        time.sleep(0.02)
    return before


def begun(wire: Any, asked: int, process: subprocess.Popen[str]) -> bool:
    """Whether a run asks already. It may not end by itself."""
    assert process.poll() is None, process.communicate()
    return len(wire.log()) > asked


@pytest.mark.timeout(60 + 20 * KILLS)
def test_killed_at_random_moments_and_resumed_each_trial_is_scored_once_and_little_is_asked_twice(
    needlemap, wire, until
):
    random, folder = Random(KILLS), needlemap.folder / "r"
    wire.schedule(f"slow:{SLOW_S}", cycle=True)
    trials = 25 * (1 + EACH * KILLS // 25)
    grid = ("--lengths", "200:400:5", "--depths", "0:100:5", "--repeats", str(trials // 25))
    asked = kept = 0
    for kill in range(KILLS):
        process = needlemap.start(
            "run", *needlemap.asking(wire), *grid, "--concurrency", str(CONCURRENCY)
        )
        if kill % 4:  # among the answers, else while it starts
            until(partial(begun, wire, asked, process))
        time.sleep(random.random() * 0.3)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        in_flight = (settled(wire) - asked) - (readable(folder) - kept)
        assert 0 <= in_flight <= CONCURRENCY
        asked, kept = len(wire.log()), readable(folder)
    wire.schedule()
    needlemap.run(wire, *grid)
    cells, trials = trials, len(needlemap.scored())
    assert 0.98 * cells < trials <= cells  # some come to the same prompt
    assert set(needlemap.scored().values()) == {1}
    assert readable(folder) == trials
    assert len(wire.log()) - trials == asked - kept <= KILLS * CONCURRENCY
    print(f"{KILLS} kills, {trials} trials, {asked - kept} asked twice", file=sys.stderr)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """mounted("-t", "tmpfs", ..., "tmpfs"): a folder on which that is mounted for the test."""
    folders: list[Path] = []

    def mount(*how: str) -> Path:
        folder = tmp_path / f"mounted-{len(folders)}"
        folder.mkdir()
        done = subprocess.run(["mount", *how, str(folder)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this user may not mount a file system: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    if shutil.which("mount") is None:
        pytest.skip("this user may not mount a file system: no mount command")
    yield mount
    for folder in reversed(folders):
        subprocess.run(["umount", "-l", str(folder)], check=True)


GRID = ("--lengths", "300,400", "--depths", "0:100:8", "--repeats", "4")  # 64 trials


def test_a_disk_that_runs_full_ends_the_run_in_words_and_with_room_it_goes_on(
    needlemap, wire, mounted
):
    disk = mounted("-t", "tmpfs", "-o", "size=64k", "tmpfs")
    ended = needlemap.run(wire, *GRID, "-o", disk / "r", code=2)
    assert ended.stderr.splitlines()[-1].startswith("needlemap: ")
    assert "No space left on device" in ended.stderr.splitlines()[-1]
    kept = readable(disk / "r")
    assert 0 < kept < 64
    again = needlemap.run(wire, *GRID, "-o", disk / "r", code=2)  # still full
    assert "No space left on device" in again.stderr.splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    whole = needlemap.run(wire, *GRID, "-o", disk / "r")
    assert f"{kept} already scored, {64 - kept} to ask" in whole.stderr
    scored = needlemap.scored(str(disk / "r"))
    assert (len(scored), set(scored.values())) == (64, {1})


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_asked(
    needlemap, wire, mounted
):
    needlemap.run(wire, "--lengths", "200", "--depths", "0,50")
    asked = len(wire.log())
    shut = mounted("--bind", str(needlemap.folder / "r"))
    subprocess.run(["mount", "-o", "remount,bind,ro", str(shut)], check=True)
    for run in (shut, shut / "new"):
        ended = needlemap.run(wire, *GRID[:4], "-o", run, code=2)
        (line,) = ended.stderr.splitlines()[-1:]
        assert line.startswith("needlemap: ")
        assert "Read-only file system" in line
    assert len(wire.log()) == asked
    assert "overall 100.0" in needlemap("report", shut).stdout  # reading needs no writing


BACK = """
import time, time as _t
_start, _wall, _ns = _t.monotonic(), _t.time, _t.time_ns
def _off(): return {before} if _t.monotonic() - _start < {after} else {then}
time.time = lambda: _wall() - _off()
time.time_ns = lambda: _ns() - int(1e9 * _off())
"""
YEAR_S = 365 * 24 * 3600.0


def test_a_clock_that_goes_back_loses_nothing_and_scores_nothing_twice(needlemap, wire):
    """Records files are named and read by the time of their start: the order decides no score."""
    wire.schedule(*["ok", "500"] * 16)
    needlemap.run(wire, *GRID, "--retries", "0", code=3)
    (first,) = (needlemap.folder / "r").glob("records-*.jsonl")
    clock = needlemap.folder / "clock"
    clock.mkdir()
    needlemap.environment["PYTHONPATH"] = str(clock)
    # A year back from the start, and another year back while it asks.
    (clock / "sitecustomize.py").write_text(BACK.format(before=YEAR_S, after=2.5, then=2 * YEAR_S))
    wire.schedule("slow:0.1", cycle=True)
    ended = needlemap.process("run", *needlemap.asking(wire), *GRID)
    assert "48 already scored, 16 to ask" in ended.stderr
    second, last = sorted((needlemap.folder / "r").glob("records-*.jsonl"))
    assert last == first
    assert int(first.name.split("-")[1]) - int(second.name.split("-")[1]) > 0.9e9 * YEAR_S
    rows = needlemap.records()
    assert rows[-1]["failure"] or any(
        row["failure"] for row in rows[16:]
    )  # failures are read after scores
    assert (len(needlemap.scored()), set(needlemap.scored().values())) == (64, {1})
    assert "overall 100.0" in ended.stdout
    assert json.loads((needlemap.folder / "r" / "run.json").read_text())["cells"]
