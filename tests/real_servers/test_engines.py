"""Honest engines that serve the gauge, at 2,000 tokens: four of those in
`benchmarks/real_engines.py`, all of which `benchmarks/check.py --real` checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from real_engines import CASES, checked

HONEST = [case for case in CASES if not case.fault]
FOUR = [HONEST[at] for at in (0, 5, 10, 25)]


def test_there_are_two_dozen_honest_cases_and_ten_faults():
    assert len(HONEST) >= 24
    assert len(CASES) - len(HONEST) == 10


@pytest.mark.usefixtures("gauge_server", "serving_python")  # skips where a part is missing
@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.name)
def test_an_honest_engine_passes(case):
    found = checked(case, "2k", 0, probes="cache,reference")
    assert found.code == 0, (found.said, found.ended)
