"""Tidy CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from needlemap.maps.map import Map
from needlemap.reports.table import cells_csv, safe, trials_csv
from needlemap.runs.record import NeedleRecord, Record, ScorerRecord


def parsed(text: str) -> list[dict[str, str]]:
    """Rows by column name."""
    return list(csv.DictReader(io.StringIO(text)))


def a_record(**fields: Any) -> Record:
    """A record with the fields that matter here."""
    known: dict[str, Any] = {"key": "k", "task": "single", "model": "m", "length_tokens": 1000, "depth": 0.29}
    return Record(**{**known, "repeat": 0, "seed": 7, **fields})


def test_one_row_per_cell_in_percent(mixed: Map) -> None:
    rows = parsed(cells_csv(mixed))
    assert len(rows) == 9
    assert rows[1] == {
        "length_tokens": "1000", "depth_percent": "50.0", "realised_depth_percent": "50.0", "score": "75.0",
        "n": "4", "low": rows[1]["low"], "high": rows[1]["high"], "missing": "0", "failures": "",
    }  # fmt: skip
    assert float(rows[1]["low"]) < 75 < float(rows[1]["high"])


def test_missing_is_empty_and_zero_is_zero(mixed: Map) -> None:
    rows = parsed(cells_csv(mixed))
    assert (rows[4]["score"], rows[4]["n"]) == ("0.0", "4")
    assert (rows[5]["score"], rows[5]["low"], rows[5]["failures"]) == ("", "", "timed out: 3")


def test_a_trial_row_holds_the_answer_whole() -> None:
    answer = 'He said "eat",\nthen left.'
    record = a_record(
        answer=answer, score=0.285, scorer=ScorerRecord(name="exact"), keywords=("a", "b"),
        needles=(NeedleRecord(meant=0.29, realised=0.3, byte=1),),
    )  # fmt: skip
    (row,) = parsed(trials_csv([record]))
    assert (row["answer"], row["score"], row["scorer"], row["keywords"]) == (answer, "28.5", "exact", "a; b")
    assert (row["depth_percent"], row["realised_depth_percent"]) == ("29.0", "30.0")


def test_an_unmeasured_trial_has_no_score() -> None:
    (row,) = parsed(trials_csv([a_record(failure="timed out")]))
    assert (row["score"], row["failure"]) == ("", "timed out")


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "＝1"])
def test_text_that_a_spreadsheet_would_run_is_disarmed(text: str) -> None:
    (row,) = parsed(trials_csv([a_record(answer=text)]))
    assert row["answer"] == f"'{text}"


@pytest.mark.parametrize("value", ["-5", "+1e3", "a=b", "", -5, None])
def test_numbers_and_plain_text_stay(value: str | int | None) -> None:
    assert safe(value) == value
