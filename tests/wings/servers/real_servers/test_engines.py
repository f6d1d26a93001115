"""Honest engines that serve the gauge, at 2,000 tokens: four of those in
`benchmarks/real_engines.py`, all of which `benchmarks/check.py --real` checks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

import real_engines
from real_engines import CASES, Checked, check_each, checked, read_checked, rules, summed

KEPT = Path(real_engines.__file__).with_suffix(".jsonl")
HONEST = [case for case in CASES if not case.fault]
FOUR = [
    pytest.param(HONEST[at], marks=marks, id=HONEST[at].name)
    for at, marks in ((0, ()), (5, pytest.mark.long), (10, ()), (25, pytest.mark.long))
]


def test_there_are_two_dozen_honest_cases_and_ten_faults():
    assert len(HONEST) >= 24
    assert len(CASES) - len(HONEST) == 10


def test_what_was_asked_by_other_rules_is_asked_again_and_counts_for_nothing(tmp_path, monkeypatch):
    case, file = HONEST[0], tmp_path / "kept.jsonl"
    old = Checked(case.name, "", "8k", 0, 1, {}, rules="another")
    file.write_text(json.dumps(asdict(old)) + "\n")

    def check(case, length, time, *_):
        return Checked(case.name, case.fault, length, time, 0, {}, rules=rules())

    monkeypatch.setattr(real_engines, "checked", check)
    found = check_each(file, "8k", 2, [case])
    assert [(each.time, each.code) for each in found] == [(0, 0), (1, 0)]
    assert (summed(found, "8k")["real_checks"], summed(found, "8k")["real_blamed"]) == (2, 0)
    monkeypatch.setattr(real_engines, "checked", None)  # nothing is left to ask
    assert check_each(file, "8k", 2, [case]) == found
    assert read_checked(file)[0].rules == "another"


def test_the_rules_of_a_line_are_others_where_a_limit_or_a_share_is(monkeypatch):
    now = rules()
    for name, value in (("JUDGED", 0), ("MOVES", (("float16", 0.01),))):
        with monkeypatch.context() as patch:
            patch.setattr(real_engines, name, value)
            assert rules.__wrapped__() != now


def test_the_kept_file_can_be_gone_on_with():
    names = {case.name for case in CASES}
    assert all(each.case in names and each.build for each in read_checked(KEPT))


@pytest.mark.usefixtures("gauge_server", "serving_python")  # skips where a part is missing
@pytest.mark.parametrize("case", FOUR)
def test_an_honest_engine_passes(case):
    found = checked(case, "2k", 0, probes="cache,reference")
    assert found.code == 0, (found.said, found.ended)
