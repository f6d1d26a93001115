"""An answer that nothing can be taken from scores 0 and is shown as what it is, wherever outcomes
are."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from needlemap import load, run
from needlemap.records.loaded import load_run
from needlemap.reports.page.summary import summary

GIVEN = {"lengths": [1000], "depths": [0, 100], "max_answer_tokens": 64, "quiet": True}
TOLD = "unreadable: 2/2 = 100.0 % [33.1, 100.0] of the answers"


def test_an_unreadable_answer_is_told_on_the_terminal_the_page_and_in_tables(tmp_path, typed):
    """The baseline answers with a sentence, where the question asks for a box."""
    path = tmp_path / "r"
    records = run(out=path, model="baseline/bm25", task="kinship", **GIVEN).records()
    assert {(one.score, one.outcome, one.scorer.unreadable) for one in records} == {
        (0, "unreadable answer", True)
    }
    assert load(path).to_pandas()["outcome"].unique().tolist() == ["unreadable answer"]
    assert TOLD in typed("report", str(path)).stdout
    typed("report", str(path), "--format", "trials", "-o", str(tmp_path / "r.csv"))
    assert "unreadable answer" in (tmp_path / "r.csv").read_text("utf-8")
    assert TOLD in json.dumps(
        summary([load_run(path)], made=datetime(2026, 1, 1, tzinfo=UTC)), default=str
    )
