"""What workers say of themselves: since when a launch has been at work."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from needlemap.errors import NeedlemapError
from needlemap.runs.presence import Leaving, Presence, Worker, began_s, refuse_elsewhere


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")


def test_a_launch_began_with_its_first_worker_whichever_is_asked(tmp_path):
    assert began_s(tmp_path) == pytest.approx(time.monotonic(), abs=60)
    for name, seconds in (("12_0", 40), ("12_1", 90), ("12_0-again-1", 5)):
        Presence(tmp_path, Worker(name, name, started=ago(seconds))).leave(None)
    assert time.monotonic() - began_s(tmp_path) == pytest.approx(90, abs=60)


def test_a_clock_that_runs_ahead_makes_no_time_of_it(tmp_path):
    Presence(tmp_path, Worker("12_0", "12_0", started=ago(-600))).leave(None)
    assert began_s(tmp_path) == pytest.approx(time.monotonic(), abs=60)


def test_processes_of_another_machine_are_left_to_it(tmp_path):
    folder = tmp_path / "r/launches/1"
    folder.mkdir(parents=True)
    Presence(folder, Worker("process-1", "process-1")).leave(None)
    refuse_elsewhere(folder)
    other = Presence(folder, Worker("process-2", "process-2", host="node7"))
    with pytest.raises(NeedlemapError, match=f"processes of node7, .*--attach {tmp_path / 'r'}"):
        refuse_elsewhere(folder)
    other.leave(Leaving.DONE)
    refuse_elsewhere(folder)
