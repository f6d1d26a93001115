"""OpenCompass' CDME scores to the last digit: its own code made the vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.interop.opencompass import score


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "vectors" / "opencompass"


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_scores_equal_the_evaluators_to_the_last_digit(vectors: Path) -> None:
    checked = 0
    for row in rows(vectors / "scores.jsonl"):
        if row["evaluator"] == "cdme_single":
            made = score([row["prediction"]], [row["reference"]], trim=row["options"]["use_trim"])
        elif row["evaluator"] == "cdme_multi":
            answer, keyword = row["reference"].split("*")
            made = score([row["prediction"]], [answer], keyword)
            assert made == score([row["prediction"]], [row["reference"]], [keyword])
        else:
            continue
        checked += 1
        assert made == {"score": row["score"], "details": [row["detail"]]}
    assert checked >= 78


def test_batch_scores_equal_the_evaluators(vectors: Path) -> None:
    checked = 0
    for row in rows(vectors / "scores_batch.jsonl"):
        if not row["evaluator"].startswith("cdme"):
            continue
        packed = row["evaluator"] == "cdme_multi"
        keywords = [reference.split("*")[1] for reference in row["references"]] if packed else None
        made = score(
            row["predictions"], row["references"], keywords, row["options"].get("use_trim", False)
        )
        checked += 1
        if "result" in row:
            assert made == row["result"]
            continue
        assert made["score"] == row["score"]
        assert [detail["score"] for detail in made["details"]] == row["scores"]
    assert checked >= 5


def test_asterisks_in_references_are_text_without_a_keyword() -> None:
    assert score(["2*3"], ["2*3"])["score"] == 100
    assert score(["2"], ["2*3"])["score"] < 50


def test_keywords_must_match_the_references_in_number() -> None:
    with pytest.raises(SettingsError, match="2 keywords for 1 references"):
        score(["a"], ["b"], ["c", "d"])
