"""Tables for pandas: a row a cell, a row a trial; a clear word where pandas is not installed."""

from __future__ import annotations

import math
import sys

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records.record import Record, ScorerRecord
from needlemap.stats import prompts_of
from needlemap.stats.means import Map, make_map
from needlemap.stats.table_schema import CELLS, trial_frame


def record(depth: float, score: float | None, repeat: int = 0) -> Record:
    fields = {"task": "t", "model": "m", "length_tokens": 1000, "seed": 0, "prompt_tokens": 990}
    scorer = ScorerRecord(
        name="judge", scale=(1, 10), native=None if score is None else 1 + 9 * score
    )
    return Record(
        key=f"{depth} {repeat}", depth=depth, repeat=repeat, score=score, scorer=scorer, **fields
    )


RECORDS = [record(0.0, 1.0), record(0.0, 0.0, 1), record(0.5, None)]


@pytest.fixture
def a_map() -> Map:
    prompts = prompts_of(RECORDS, [[1000, 0.0, [0, 1]], [1000, 0.5, [0]]])
    return make_map(prompts, model="m", tokenizer="k", task="t", scorer="judge", mode="exact")


def test_a_map_has_a_row_a_cell(a_map):
    pytest.importorskip("pandas")
    frame = a_map.to_pandas()
    assert list(frame.columns) == [
        column.name for column in CELLS[3:]
    ]  # those of the CSV, but for the run
    first, second = frame.to_dict("records")
    assert (first["length_tokens"], first["depth_percent"], first["score"]) == (1000, 0.0, 50.0)
    assert (first["n"], first["missing"]) == (2, 0)
    assert 0 < first["low"] < 50 < first["high"] < 100
    assert second["depth_percent"] == 50
    assert (second["n"], second["missing"]) == (0, 1)
    assert math.isnan(second["score"])
    assert math.isnan(second["low"])


def test_records_have_a_row_a_trial():
    pandas = pytest.importorskip("pandas")
    frame = trial_frame(RECORDS)
    assert frame["score"].tolist()[:2] == [100.0, 0.0]
    assert frame["depth_percent"].tolist() == [0.0, 0.0, 50.0]
    assert frame["native_score"].tolist()[:2] == [10.0, 1.0]
    assert frame["prompt_tokens"].tolist() == [990, 990, 990]
    assert frame["cached_tokens"].isna().all()
    assert pandas.isna(frame["score"][2])


def test_no_records_are_an_empty_table_with_its_columns():
    pytest.importorskip("pandas")
    assert trial_frame([]).shape[0] == 0
    assert "answer" in trial_frame([]).columns


def test_without_pandas_it_says_what_to_type(a_map, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NeedlemapError, match=r"A table needs pandas\. Run: .* install pandas"):
        a_map.to_pandas()
