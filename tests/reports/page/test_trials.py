"""The columns of trials that the page shows."""

from __future__ import annotations

import json

from needlemap.records.record import NeedleRecord
from needlemap.reports.page.trials import Detail, _score_words, trial_columns


def test_rows_are_by_cell_then_repeat_and_all_columns_are_as_long(make_run, make_record):
    made = [
        make_record(1000, 1.0, 1),
        make_record(1000, 0.0),
        make_record(1000, 1.0, 0),
        make_record(500, 0.5),
    ]
    run = make_run(made)
    columns = trial_columns(run.map, run.prompts)
    assert columns["cell"] == [0, 1, 2, 2]
    assert columns["repeat"] == [0, 0, 0, 1]
    whole = {
        name: column
        for name, column in columns.items()
        if name not in ("strings", "passages", "facts")
    }
    assert {len(column) for column in whole.values()} == {4}
    assert {len(places) for _, places in columns["facts"]} == {4}


def facts_of(columns, row):
    """What was measured of a trial, in words."""
    return {
        name: columns["strings"][places[row]]
        for name, places in columns["facts"]
        if places[row] is not None
    }


def test_a_score_is_in_percent_and_on_its_scorers_own_scale(make_run, make_record):
    run = make_run([make_record(), make_record(repeat=1, score=None, scorer=None, failure="x")])
    columns = trial_columns(run.map, run.prompts)
    assert [columns["strings"][at] for at in columns["says"]] == ["100.0 %", "not measured"]
    assert _score_words(0.25, 3.25, 1.0, 10.0) == "25.0 % (3.25 on a scale of 1 to 10)"


def test_texts_are_places_in_one_table_that_holds_each_once(make_run, make_record):
    run = make_run([make_record(repeat=repeat, answer="It is 51328.") for repeat in range(3)])
    columns = trial_columns(run.map, run.prompts)
    text = columns["strings"]
    assert len(set(text)) == len(text)
    assert {text[at] for at in columns["answer"]} == {"It is 51328."}
    assert text[columns["question"][0]] == "Which code?"
    assert [text[at] for at in columns["keywords"][0]] == ["51328"]
    assert json.loads(text[columns["why"][0]]) == {"found": ["51328"], "missing": []}
    assert facts_of(columns, 0)["finished"] == "2026-11-20 12:00:00 UTC"
    assert facts_of(columns, 0)["prompt sha256"] == run.records[0].prompt.sha256[:12]


def test_a_long_answer_is_cut_and_says_by_how_much(make_run, make_record):
    run = make_run([make_record(answer="x" * 100_000), make_record(repeat=1, answer="")])
    columns = trial_columns(run.map, run.prompts)
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
    columns = trial_columns(run.map, run.prompts)
    for name in ("score", "answer", "why"):
        assert columns[name] == [None], name
    known = set(facts_of(columns, 0))
    assert not known & {"finish reason", "prompt", "latency", "cost", "prompt sha256"}
    assert columns["needles"] == [[]]
    assert columns["strings"][columns["failure"][0]] == "timed out"
    assert columns["strings"][columns["outcome"][0]] == "timed out"


def test_needles_stand_in_passages_and_old_records_in_none(make_run, make_record):
    old = NeedleRecord(meant=0.5, realised=0.51, byte=3)
    run = make_run([make_record(), make_record(repeat=1, needles=(old,))])
    columns = trial_columns(run.map, run.prompts)
    ((where, text, passage, at, before, after),) = columns["needles"][0]
    whole = columns["passages"][passage]
    assert columns["strings"][where] == "50 % (meant for 50 %)"
    assert whole[at - before : at] + columns["strings"][text] + whole[at : at + after] == (
        "All went well. The code is 51328. Then it rained."
    )
    ((where, *rest),) = columns["needles"][1]
    assert (columns["strings"][where], rest) == ("51 % (meant for 50 %)", [None, None, 0, 0, 0])


def test_less_detail_leaves_out_what_is_around_needles_that_were_found(make_run, make_record):
    run = make_run([make_record(), make_record(repeat=1, score=0.0, answer="I do not know, " * 9)])
    columns = trial_columns(run.map, run.prompts, Detail(answer=20, around_right=False))
    assert [row[0][2] for row in columns["needles"]] == [None, 0]
    assert columns["cut"] == [0, 115]
    assert (
        trial_columns(run.map, run.prompts, Detail(around_right=False, around_wrong=False))[
            "passages"
        ]
        == []
    )
