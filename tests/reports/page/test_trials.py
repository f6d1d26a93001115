"""The columns of trials that the page shows."""

from __future__ import annotations

import json

from needlemap.records.record import NeedleRecord
from needlemap.reports.page.trials import Detail, trial_columns


def test_rows_are_by_cell_then_repeat_and_all_columns_are_as_long(make_run, make_record):
    made = [
        make_record(1000, 1.0, 1),
        make_record(1000, 0.0),
        make_record(1000, 1.0, 0),
        make_record(500, 0.5),
    ]
    run = make_run(made)
    columns = trial_columns(run.map)
    assert columns["cell"] == [0, 1, 2, 2]
    assert columns["repeat"] == [0, 0, 0, 1]
    whole = {
        name: column
        for name, column in columns.items()
        if name not in ("strings", "passages", "scale")
    }
    assert {len(column) for column in whole.values()} == {4}
    assert columns["scale"] == [0.0, 1.0]


def test_texts_are_places_in_one_table_that_holds_each_once(make_run, make_record):
    run = make_run([make_record(repeat=repeat, answer="It is 51328.") for repeat in range(3)])
    columns = trial_columns(run.map)
    text = columns["strings"]
    assert len(set(text)) == len(text)
    assert {text[at] for at in columns["answer"]} == {"It is 51328."}
    assert text[columns["question"][0]] == "Which code?"
    assert [text[at] for at in columns["keywords"][0]] == ["51328"]
    assert json.loads(text[columns["why"][0]]) == {"found": ["51328"], "missing": []}
    assert text[columns["at"][0]] == "2026-11-20T12:00:00"
    assert text[columns["sha"][0]] == run.records[0].prompt.sha256[:12]


def test_a_long_answer_is_cut_and_says_by_how_much(make_run, make_record):
    run = make_run([make_record(answer="x" * 100_000), make_record(repeat=1, answer="")])
    columns = trial_columns(run.map)
    assert columns["cut"] == [80_000, 0]
    assert [len(columns["strings"][at]) for at in columns["answer"]] == [20_000, 0]


def test_what_is_not_known_is_null(make_run, make_record):
    nothing = {
        "answer": None,
        "prompt": None,
        "scorer": None,
        "needles": (),
        "latency_s": None,
        "finish": None,
    }
    run = make_run([make_record(score=None, failure="timed out", error="No answer.", **nothing)])
    columns = trial_columns(run.map)
    for name in (
        "score",
        "native",
        "answer",
        "why",
        "finish",
        "tokens",
        "latency",
        "usd",
        "sha",
        "collisions",
    ):
        assert columns[name] == [None], name
    assert columns["needles"] == [[]]
    assert columns["strings"][columns["failure"][0]] == "timed out"
    assert columns["strings"][columns["outcome"][0]] == "timed out"


def test_needles_stand_in_passages_and_old_records_in_none(make_run, make_record):
    old = NeedleRecord(meant=0.5, realised=0.51, byte=3)
    run = make_run([make_record(), make_record(repeat=1, needles=(old,))])
    columns = trial_columns(run.map)
    ((meant, realised, text, passage, at, before, after),) = columns["needles"][0]
    whole = columns["passages"][passage]
    assert (meant, realised) == (0.5, 0.5)
    assert whole[at - before : at] + columns["strings"][text] + whole[at : at + after] == (
        "All went well. The code is 51328. Then it rained."
    )
    assert columns["needles"][1] == [[0.5, 0.51, None, None, 0, 0, 0]]


def test_less_detail_leaves_out_what_is_around_needles_that_were_found(make_run, make_record):
    run = make_run([make_record(), make_record(repeat=1, score=0.0, answer="I do not know, " * 9)])
    columns = trial_columns(run.map, Detail(answer=20, around_right=False))
    assert [row[0][3] for row in columns["needles"]] == [None, 0]
    assert columns["cut"] == [0, 115]
    assert trial_columns(run.map, Detail(around_right=False, around_wrong=False))["passages"] == []
