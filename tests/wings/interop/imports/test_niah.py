"""needlehaystack version 2: rows as its own code writes them, with seeds, errors and a recipe."""

from __future__ import annotations

import json

import pytest

from needlemap.errors import NeedlemapError
from needlemap.interop.needlehaystack_results import from_jsonl

ROW = {
    "schema_version": 2,
    "run_name": "first",
    "model_id": "gpt",
    "model_request_name": "gpt-4o-mini",
    "task_type": "single",
    "context_length": 2000,
    "target_depth_percent": 50.0,
    "recipe": {
        "haystack": {"type": "files"},
        "inserter": "single_depth",
        "needle_placements": [
            {"text": "Soup is best.", "insertion_token_index": 990, "actual_depth_percent": 49.5}
        ],
        "final_context_token_count": 2004,
    },
    "needle_metadata": {},
    "expected_answer": "Soup",
    "prompt_question": "What is best?",
    "response": "Soup.",
    "score": {"value": 1.0, "details": {"matches": 1, "total": 1}},
    "usage": {"input_tokens": 2020, "output_tokens": 3},
    "cost_usd": 0.0003,
    "duration_seconds": 0.7,
    "status": "ok",
    "error": None,
    "timestamp_utc": "2026-06-01T10:00:00+00:00",
    "seed": None,
}
FAILED = {
    "response": None,
    "score": None,
    "usage": None,
    "cost_usd": None,
    "status": "error",
    "error": "429",
}


def lines(*changes: dict[str, object]) -> bytes:
    return b"".join(json.dumps(ROW | change).encode() + b"\n" for change in changes)


def test_a_row_keeps_what_happened():
    (row,) = from_jsonl(lines({}), "r.jsonl")
    assert (row.length, row.depth_percent, row.realised, row.native) == (2000, 50.0, 49.5, 1.0)
    assert (row.model, row.answered_by, row.series, row.task) == (
        "gpt",
        "gpt-4o-mini",
        "first",
        "single",
    )
    assert (row.question, row.reference, row.needle, row.answer) == (
        "What is best?",
        "Soup",
        "Soup is best.",
        "Soup.",
    )
    assert (row.prompt_tokens, row.completion_tokens, row.usd, row.latency_s) == (
        2020,
        3,
        0.0003,
        0.7,
    )
    assert (row.tokenizer, row.scorer, row.scale) == ("cl100k_base", "exact_match", (0.0, 1.0))


def test_a_failed_row_is_missing_with_its_reason():
    (row,) = from_jsonl(lines(FAILED), "r.jsonl")
    assert (row.native, row.answer, row.error) == (None, None, "429")


def test_seeds_are_repeats_in_their_order_in_every_cell():
    rows = from_jsonl(
        lines({"seed": 10}, {"seed": 9}, {"seed": 10, "context_length": 4000}), "r.jsonl"
    )
    assert [row.version for row in rows] == [2, 1, 2]


def test_a_torn_last_line_is_left_out_and_no_other():
    whole = lines({}, {"target_depth_percent": 60})
    assert len(from_jsonl(whole[:-20], "r.jsonl")) == 1
    with pytest.raises(NeedlemapError, match=r"^r\.jsonl, line 2: not readable as JSON"):
        from_jsonl(lines({}) + b"{torn\n" + lines({}), "r.jsonl")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 3}, "r.jsonl, line 1: schema_version 3, only 2 is known."),
        ({"score": 1.0}, "r.jsonl, line 1: field 'score' must hold fields of its own, got 1.0."),
        ({"score": {"value": "x"}}, "r.jsonl, line 1: field 'value' must be a number, got 'x'."),
    ],
)
def test_what_is_not_known_is_named(change, words):
    with pytest.raises(NeedlemapError) as error:
        from_jsonl(lines(change), "r.jsonl")
    assert str(error.value) == words


def test_our_own_records_are_not_taken_for_theirs():
    with pytest.raises(NeedlemapError, match="no needlehaystack 2 result"):
        from_jsonl(b'{"schema": 1, "key": "x"}\n', "records-1.jsonl")
