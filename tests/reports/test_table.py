"""Tidy tables, and CSV that a spreadsheet may open."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from needlemap.records.loaded import Loaded
from needlemap.records.record import NeedleRecord, PromptRecord, Record, ScorerRecord
from needlemap.records.run_file import RuledScorer, RunFile, RunTokenizer
from needlemap.reports.table import (
    DataTable,
    Value,
    cells_table,
    csv_text,
    escape_formula,
    trials_table,
)


def rows(table: DataTable) -> list[dict[str, Value]]:
    """Rows by column name."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def parsed(table: DataTable) -> list[dict[str, str]]:
    """Rows of its CSV by column name."""
    return list(csv.DictReader(io.StringIO(csv_text(table))))


def a_record(length: int = 1000, depth: float = 0.29, repeat: int = 0, **fields: Any) -> Record:
    name = f"{length} {depth} {repeat}"
    prompt = PromptRecord(sha256=f"sha of {name}", tokens=length, haystack_tokens=length)
    asked = {"length_tokens": length, "depth": depth, "repeat": repeat, "seed": 7, "prompt": prompt}
    return Record(**{"key": f"key of {name}", "task": "single", "model": "m", **asked, **fields})


def a_run(*records: Record, path: str = "r", asked: int = 1) -> Loaded:
    """A run that was to ask so many repeats of the cells that it has records of."""
    cells = sorted({(record.length_tokens, record.depth) for record in records})
    return Loaded(
        path,
        RunFile(
            settings={"model": "m", "task": "single", "mode": "exact"},
            tokenizer=RunTokenizer(name="cl100k_base", fingerprint=""),
            scorer=RuledScorer(name="exact", options={}),
            cells=[(length, depth, list(range(asked))) for length, depth in cells],
        ),
        records,
    )


def test_one_row_per_cell_in_percent():
    run = a_run(
        *(
            a_record(1000, 0.5, repeat, score=score)
            for repeat, score in enumerate([1, 1, 0.5, 0.5])
        ),
        a_record(1000, 0.29, score=1),
        asked=4,
    )
    first, second = rows(cells_table([run]))
    low, high = second["low"], second["high"]
    assert second == {
        "run": "r", "model": "m", "task": "single", "length_tokens": 1000, "depth_percent": 50,
        "realised_depth_percent": 50, "score": 75, "n": 4, "low": low, "high": high, "missing": 0,
        "failures": "",
    }  # fmt: skip
    assert low < 75 < high
    assert (first["depth_percent"], first["n"], first["missing"]) == (29, 1, 3)


def test_missing_is_empty_and_zero_is_zero():
    run = a_run(
        a_record(1000, score=0),
        a_record(2000, failure="timed out"),
        a_record(3000, failure="timed out"),
        asked=3,
    )
    wrong, failed, _ = parsed(cells_table([run]))
    assert (wrong["score"], wrong["n"]) == ("0.0", "1")
    assert (failed["score"], failed["low"], failed["n"], failed["missing"]) == ("", "", "0", "3")
    assert failed["failures"] == "timed out: 1"


def test_a_prompt_that_two_depths_share_is_in_both_rows():
    same = PromptRecord(sha256="one", tokens=9, haystack_tokens=9)
    run = a_run(
        a_record(depth=0.1, score=1, prompt=same), a_record(depth=0.2, score=1, prompt=same)
    )
    assert [(row["n"], row["score"]) for row in rows(cells_table([run]))] == [(1, 100), (1, 100)]


def test_several_runs_are_told_by_their_folder():
    runs = [a_run(a_record(score=1), path="one"), a_run(a_record(score=0), path="two")]
    for table in (cells_table(runs), trials_table(runs)):
        assert [(row["run"], row["model"], row["score"]) for row in rows(table)] == [
            ("one", "m", 100),
            ("two", "m", 0),
        ]


def test_a_trial_row_holds_what_happened():
    record = a_record(
        answer='He said "eat",\nthen left.', score=0.285, keywords=("a", "b"), shared_tokens=12, usd=0.5,  # noqa: E501
        scorer=ScorerRecord(name="exact", scale=(0, 10), native=2.85), latency_s=1.5, attempts=2,
        needles=(NeedleRecord(meant=0.29, realised=0.3, byte=1),),
    )  # fmt: skip
    (row,) = rows(trials_table([a_run(record)]))
    known = {name: value for name, value in row.items() if value not in (None, "")}
    assert known == {
        "run": "r", "model": "m", "task": "single", "length_tokens": 1000, "depth_percent": 29,
        "realised_depth_percent": 30, "repeat": 0, "seed": 7, "score": 28.5, "native_score": 2.85,
        "scorer": "exact", "outcome": "scored", "keywords": "a; b",
        "answer": 'He said "eat",\nthen left.', "planned_tokens": 12, "usd": 0.5, "judge_usd": 0.0,
        "latency_s": 1.5, "attempts": 2, "prompt_sha256": "sha of 1000 0.29 0", "key": "key of 1000 0.29 0",  # noqa: E501
    }  # fmt: skip
    assert parsed(trials_table([a_run(record)]))[0]["answer"] == record.answer


def test_trials_are_in_the_order_of_the_map_not_of_arrival():
    records = [a_record(2000), a_record(1000, 0.5, 1), a_record(1000, 0.5, 0), a_record(1000, 0.1)]
    places = [
        (row["length_tokens"], row["depth_percent"], row["repeat"])
        for row in rows(trials_table([a_run(*records)]))
    ]
    assert places == sorted(places)


def test_an_unmeasured_trial_has_no_score():
    (row,) = parsed(trials_table([a_run(a_record(failure="timed out"))]))
    assert (row["score"], row["failure"]) == ("", "timed out")


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "＝1", '=HYPERLINK("http://x")']
)
def test_text_that_a_spreadsheet_would_run_is_disarmed(text):
    run = a_run(a_record(answer=text, model=text, error=text), path=text)
    (row,) = parsed(trials_table([run]))
    safe = f"'{text}".replace("\t=", "\t'=")
    assert {row[name] for name in ("answer", "run", "model", "error")} == {safe}
    assert (
        rows(trials_table([run]))[0]["answer"] == text
    )  # Parquet runs nothing, so it is kept there


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
def test_no_line_of_an_answer_is_a_row_or_a_formula(end):
    """A carriage return was not quoted: spreadsheets began a row there, with a formula."""
    said = f"4711{end}=1+1{end}"
    text = csv_text(
        trials_table([a_run(a_record(answer=said), a_record(2000, answer=f"{end}=1+1"))])
    )
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    safe = said.replace("=", "'=")  # where ';' parts lists, the quotes begin no cell
    assert (first["answer"], second["answer"]) == (safe, f"'{end}'=1+1")
    assert f'"{safe}"' in text
    assert [row["length_tokens"] for row in csv.DictReader(io.StringIO(text, newline=None))] == [
        "1000",
        "2000",
    ]


@pytest.mark.parametrize("value", ["-5", "+1e3", "a=b", "", -5, None])
def test_numbers_and_plain_text_stay(value):
    assert escape_formula(value) == value
