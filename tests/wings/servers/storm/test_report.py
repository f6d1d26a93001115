"""The table of a storm: each operation has its word."""

from __future__ import annotations

from pathlib import Path

import pytest

from needlemap.reports.report import Table
from needlemap.servers.storm.file import Replayed, StormFile, StormRequest
from needlemap.servers.storm.report import storm_report
from needlemap.stats.verdicts import Verdict


def words_of(
    word: str,
    outcomes: dict[str, list[str]],
    lost_again: bool = False,
    tested: tuple[str, ...] = ("turn",),
) -> dict[str, str]:
    """The word of each operation in a storm that comes to a word."""
    sequence, suspects = [], []
    for operation, rows in outcomes.items():
        for outcome in rows:
            key = len(sequence)
            at = {"key": key, "round": 0, "wave": key, "family": 0, "session": 0}
            sequence.append(
                StormRequest(**at, operation=operation, outcome=outcome, at_s=0.0, seconds=1.0)
            )
            if outcome == "lost" and lost_again:
                suspects.append(Replayed(key=key, outcome="lost", replayed=3, lost=3))
    found = StormFile(
        seed=1,
        model="m",
        max_length=8_000,
        load=8,
        verdict=Verdict(word, "c"),
        sequence=sequence,
        suspects=suspects,
        tested=list(tested),
    )
    tables = [part for part in storm_report(Path("s"), found).parts if isinstance(part, Table)]
    (table,) = [table for table in tables if table.key == "operations"]
    return {row.values["operation"]: row.values["state"] for row in table.rows}


@pytest.mark.parametrize(
    ("word", "outcomes", "lost_again", "words"),
    [
        ("PASS", ["right"] * 9 + ["lost"], False, "PASS"),
        ("FAIL", ["right"] * 9 + ["foreign"], False, "FAIL"),
        ("FAIL", ["right"] * 10, False, "PASS"),
        ("FAIL", ["right"] * 9 + ["lost"], True, "FAIL"),
        ("SUSPECT", ["right"] * 9 + ["lost"], True, "SUSPECT"),
        ("NOT ENOUGH DATA", ["lost"] * 9 + ["right"], False, "NOT ENOUGH DATA"),
        ("FAIL", ["cancelled"] * 9, False, None),
    ],
)
def test_an_operation_has_its_word(word, outcomes, lost_again, words):
    assert words_of(word, {"turn": outcomes}, lost_again) == {"turn": words}


@pytest.mark.parametrize(
    ("word", "outcome", "words"), [("PASS", "lost", None), ("FAIL", "foreign", "FAIL")]
)
def test_an_operation_that_is_not_tested_has_no_word_unless_it_shows_a_fault(word, outcome, words):
    """`fork` was PASS with 0 of 10 right, and the last line said that it was not tested."""
    assert words_of(word, {"fork": [outcome] * 10}) == {"fork": words}


@pytest.mark.parametrize("outcome", ["lost", "endless", "empty", "moved", "refused"])
def test_an_operation_with_wrong_answers_is_no_pass_in_a_storm_that_fails(outcome):
    """The gauge lost 3 answers of 116, which failed the storm, and every operation was PASS."""
    assert words_of("FAIL", {"turn": ["right"] * 9 + [outcome]}) == {"turn": "SUSPECT"}


def test_an_operation_with_a_fault_is_no_pass_in_a_storm_that_passes():
    outcomes = {"turn": ["right"] * 9 + ["lost"]}
    assert words_of("PASS", outcomes, lost_again=True) == {"turn": "SUSPECT"}
