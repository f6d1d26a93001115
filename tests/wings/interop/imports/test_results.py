"""needlehaystack version 1: result files, the first OpenAI lists, tables, and how repeats are
numbered."""

from __future__ import annotations

import json

import pytest

from needlemap.errors import NeedlemapError
from needlemap.interop.needlehaystack_results import from_csv, from_json

RESULT = {
    "model": "claude-2.1",
    "context_length": 1000,
    "depth_percent": 1.199,
    "version": 2,
    "needle": "\n    Eat a sandwich in the park.\n    ",
    "model_response": " Eat.\n",
    "score": 10,
    "test_duration_seconds": 1.5,
    "test_timestamp_utc": "2023-12-20 14:05:39+0000",
}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_a_result_file_is_one_row():
    (row,) = from_json(encoded(RESULT), "c_results.json")
    assert (row.length, row.depth_percent, row.native, row.version) == (1000, 1.199, 10, 2)
    assert (row.model, row.needle, row.answer) == (
        "claude-2.1",
        "Eat a sandwich in the park.",
        " Eat.\n",
    )
    assert (row.latency_s, row.finished_at, row.scale) == (1.5, "2023-12-20 14:05:39+0000", None)


def test_the_first_openai_set_is_a_list_of_three_fields():
    data = encoded([{"token_limit": 1000, "depth_percent": depth, "score": 10} for depth in (0, 7)])
    rows = from_json(data, "OpenAI_OriginalResults_2.json")
    assert [(row.length, row.depth_percent, row.version, row.model) for row in rows] == [
        (1000, 0, 2, ""),
        (1000, 7, 2, ""),
    ]


@pytest.mark.parametrize(
    ("name", "version"),
    [("a_results.json", 1), ("a_results_3.json", 3), ("token_len_1000.json", 1), ("b_0.json", 1)],
)
def test_without_a_version_the_file_name_tells_the_repeat(name, version):
    without = {key: value for key, value in RESULT.items() if key != "version"}
    assert from_json(encoded(without), name)[0].version == version


def test_answers_with_half_characters_can_be_kept():
    (row,) = from_json(encoded({**RESULT, "model_response": "a\ud800b"}), "x.json")
    assert row.answer == "a?b"


def test_a_score_of_null_is_missing():
    (row,) = from_json(encoded({**RESULT, "score": None}), "x.json")
    assert (row.native, row.error) == (None, "no score in the file")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"score": "ten"}, "x.json: field 'score' must be a number, got 'ten'."),
        ({"score": True}, "x.json: field 'score' must be a number, got True."),
        ({"score": float("nan")}, "x.json: field 'score' must be a number, got nan."),
        ({"score": [1]}, "x.json: field 'score' must be a number, got [1]."),
        (
            {"context_length": 0},
            "x.json: field 'context_length' must be a whole number from 1, got 0.",
        ),
        (
            {"context_length": 10.5},
            "x.json: field 'context_length' must be a whole number from 1, got 10.5.",
        ),
        ({"depth_percent": 101}, "x.json: field 'depth_percent' must lie in 0..100, got 101."),
        ({"version": 0}, "x.json: field 'version' must be a whole number from 1, got 0."),
    ],
)
def test_a_wrong_field_is_named_with_its_file(changed, words):
    with pytest.raises(NeedlemapError) as error:
        from_json(encoded(RESULT | changed), "x.json")
    assert str(error.value) == words


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b"[]", b"{}", b"3", b"null", b'[{"a": 1}]', b"\xff"]
)
def test_what_is_no_result_is_refused_in_one_line(data):
    with pytest.raises(NeedlemapError, match=r"^x\.json") as error:
        from_json(data, "x.json")
    assert "\n" not in str(error.value)


def test_a_table_without_scores_says_which_it_wants():
    with pytest.raises(NeedlemapError, match=r"g\.csv holds means of cells"):
        from_csv("model,context_length,depth_percent,score_mean,n_runs\nm,1000,0,10,1\n", "g.csv")
    with pytest.raises(
        NeedlemapError, match=r"t\.csv, row 2: no field 'score'\. Did you mean 'scores'\?"
    ):
        from_csv("model,context_length,depth_percent,scores\nm,1000,0,10\n", "t.csv")


def test_a_row_of_another_width_is_refused():
    with pytest.raises(NeedlemapError, match=r"t\.csv, row 3: 3 columns expected"):
        from_csv("context_length,depth_percent,score\n1000,0,1\n1000,0\n", "t.csv")


@pytest.mark.parametrize("row", ['1000,0,"1', '1000,0,"1"x', "1000,0," + "1" * 200_000])
def test_a_broken_row_is_named_by_its_line(row):
    with pytest.raises(NeedlemapError, match=r"^t\.csv, line \d: not readable as CSV"):
        from_csv(f"context_length,depth_percent,score\n{row}\n", "t.csv")
