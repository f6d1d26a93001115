"""Claims on units: made once, whoever tries; and what a listing of them tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from needlemap.errors import NeedlemapError
from needlemap.runs.claims import Claims, Ending

RACE = """
import sys
from pathlib import Path
from needlemap.runs.claims import Claims
claims = Claims(Path(sys.argv[1]), 300)
sys.stdin.readline()
print([unit for unit in range(300) if claims.take(unit, 1, sys.argv[2], 1)])
"""


def died(claims: Claims, unit: int, ending: Ending) -> None:
    """One more worker that took a unit and ended."""
    claim = claims.take(unit, claims.standing().claims[unit] + 1, "w", 5)
    assert claim is not None
    claims.end(claim, ending)


def test_of_processes_that_claim_at_once_one_gets_each_unit(tmp_path):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    for racer in racers:  # all have imported what they need when the first one starts
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [json.loads(racer.communicate()[0]) for racer in racers]
    assert Counter(unit for units in won for unit in units) == Counter(range(300))
    standing = Claims(tmp_path, 300).standing()
    assert len(standing.held) == 300
    owners = {claim.unit: claim.worker for claim in Claims(tmp_path, 300).held(standing)}
    assert [owners[unit] for units in won for unit in units] == [
        name for name, units in zip("abcd", won, strict=True) for _ in units
    ]
    assert not list(tmp_path.glob("draft-*"))


def test_a_unit_is_free_held_or_done(tmp_path):
    claims = Claims(tmp_path, 3)
    assert claims.standing().free == {0, 1, 2}
    first, second = claims.take(0, 1, "a", 4), claims.take(1, 1, "b", 4)
    assert first is not None
    assert second is not None
    claims.end(first, Ending.DONE)
    standing = claims.standing()
    assert (standing.done, standing.held, standing.free) == ({0}, {1: 1}, {2})
    claims.end(second, Ending.RETURNED)
    claims.end(second, Ending.RETURNED)
    assert claims.standing().fresh == {1, 2}
    assert claims.take(1, 1, "c", 4) is None
    assert claims.take(1, 2, "c", 4) is not None


def test_a_unit_whose_worker_died_is_suspect_and_deaths_are_counted_in_a_row(tmp_path):
    claims = Claims(tmp_path, 1)
    for ending, deaths in (
        (Ending.RETURNED, 0),
        (Ending.STUCK, 1),
        (Ending.RETURNED, 1),
        (Ending.STUCK, 2),
        (Ending.DIED, 1),  # it got on: what killed it before is behind
        (Ending.STUCK, 2),
        (Ending.STUCK, 3),
    ):
        died(claims, 0, ending)
        standing = claims.standing()
        assert standing.deaths[0] == deaths
        assert (standing.suspect, standing.fresh) == (({0}, set()) if deaths else (set(), {0}))


def test_a_unit_set_aside_is_nobodys_unless_it_was_done_after_all(tmp_path):
    claims = Claims(tmp_path, 2)
    died(claims, 0, Ending.STUCK)
    claims.set_aside(0, "its worker died")
    assert claims.standing().aside == {0}
    assert claims.standing().free == {1}
    died(claims, 0, Ending.DONE)
    assert claims.standing().aside == set()
    assert claims.endings(0) == [("w", ""), ("w", "")]


def test_a_file_system_without_hard_links_is_refused_with_words(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(NeedlemapError, match=r"without hard links \(Operation not supported\)"):
        Claims(tmp_path, 1).take(0, 1, "a", 1)
