"""What workers say of themselves: since when a launch has been at work."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from needlemap.runs.presence import Presence, Worker, began_s


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")


def test_a_launch_began_with_its_first_worker_whichever_is_asked(tmp_path):
    assert began_s(tmp_path) == pytest.approx(time.monotonic(), abs=5)
    for name, seconds in (("12_0", 40), ("12_1", 90), ("12_0-again-1", 5)):
        Presence(tmp_path, Worker(name, name, started=ago(seconds))).leave(None)
    assert time.monotonic() - began_s(tmp_path) == pytest.approx(90, abs=5)


def test_a_clock_that_runs_ahead_makes_no_time_of_it(tmp_path):
    Presence(tmp_path, Worker("12_0", "12_0", started=ago(-600))).leave(None)
    assert began_s(tmp_path) == pytest.approx(time.monotonic(), abs=5)
