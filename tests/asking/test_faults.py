"""What can go wrong between us and a server: retried within limits, then recorded, never scored as
0."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from needlemap.scorers import Score
from needlemap.scorers.words import Substring

GRID = ("--lengths", "200,300", "--depths", "0,25,50,75,100")


def arrivals(wire: Any) -> dict[str, list[float]]:
    """When each prompt was asked."""
    times: dict[str, list[float]] = {}
    for request in wire.log():
        times.setdefault(request["prompt_sha256"], []).append(request["time"])
    return times


def test_passing_faults_are_asked_again_until_all_is_scored(needlemap, wire):
    wire.schedule(
        "429-after:1", "500", "ok", "reset", "cut", "ok", "503", "invalid-json", "529", "429-ms:300"
    )
    ended = needlemap.run(wire, *GRID)
    assert "overall 100.0 (n=10, 0 missing)" in ended.stdout
    records = needlemap.records()
    assert len(records) == 10
    assert sum(record["attempts"] for record in records) == len(wire.log()) == 18
    waited = {
        request["fault"]: later - request["time"]
        for request in wire.log()
        if request["fault"].startswith("429")
        for earlier, later in pairwise(arrivals(wire)[request["prompt_sha256"]])
        if earlier == request["time"]
    }
    assert waited["429-after:1"] >= 1.0
    assert waited["429-ms:300"] >= 0.3


def test_what_lasts_is_recorded_without_a_score_and_asked_again_by_the_same_command(
    needlemap, wire
):
    faults = [
        "500",
        "null-content",
        "cut",
        "ok",
        "slow:9",
        "empty-choices",
        "429-large",
        "ok",
        "ok",
        "wrong-shape",
    ]
    wire.schedule(*faults)
    flags = (*GRID, "--retries", "0", "--timeout-s", "3", "--concurrency", "1")
    ended = needlemap.run(wire, *flags, code=3)
    assert "overall 100.0 (n=3, 7 missing)" in ended.stdout
    assert (
        "not measured: 1 connection lost, 1 rate limited, 1 server error, 1 timed out, 3 "
        "unreadable answer; "
        "to ask them again: the same command with -o r" in ended.stderr
    )
    assert "timed out: No answer within 3 s (setting: timeout_s)." in ended.stderr
    first = needlemap.records()
    failed = [record for record in first if record["failure"]]
    assert len(failed) == 7
    for record in failed:
        assert (record["score"], record["answer"], record["usd"]) == (None, None, None)
        assert record["error"]
        assert record["attempts"] == 1
    asked = [request["prompt_sha256"] for request in wire.log()]
    again = needlemap.run(wire, *flags)
    assert "3 already scored, 7 to ask" in again.stderr
    assert "overall 100.0 (n=10, 0 missing)" in again.stdout
    assert sorted(request["prompt_sha256"] for request in wire.log()[10:]) == sorted(
        sha for sha, fault in zip(asked, faults, strict=True) if fault != "ok"
    )


def test_retries_end_after_as_many_attempts_as_allowed(needlemap, wire):
    wire.schedule("ok", *["500"] * 3)
    needlemap.run(
        wire,
        "--lengths",
        "200,300",
        "--depths",
        "0",
        "--retries",
        "2",
        "--concurrency",
        "1",
        code=3,
    )
    assert len(wire.log()) == 4
    assert [(record["attempts"], record["failure"]) for record in needlemap.records()] == [
        (1, None),
        (3, "server error"),
    ]


def test_a_rate_limit_that_clears_costs_no_trial_however_often_it_is_met(needlemap, wire):
    wire.schedule("ok", *["429-ms:20"] * 12, "ok", *["429"] * 3)
    needlemap.run(wire, "--lengths", "200,300", "--depths", "0,50", "--retries", "0")
    assert len(wire.log()) == 4 + 12 + 3
    assert {record["failure"] for record in needlemap.records()} == {None}


def test_a_server_that_asks_for_hours_ends_the_run_instead_of_being_waited_for(needlemap, wire):
    wire.schedule("ok", *["429-after:7200"] * 9)
    ended = needlemap.run(wire, "--lengths", "200:400:9", "--depths", "0", code=2)
    assert "every request would fail" in ended.stderr
    assert len(wire.log()) <= 1 + 4


def test_an_empty_answer_is_the_models_and_scores_nothing(needlemap, wire):
    wire.schedule("empty-answer", "thinking")
    ended = needlemap.run(wire, "--lengths", "200", "--depths", "0,100", "--no-canary")
    assert "overall 0.0 (n=2, 0 missing)" in ended.stdout
    found = {
        (record["answer"], record["score"], record["outcome"]) for record in needlemap.records()
    }
    assert found == {("", 0.0, "scored"), ("", 0.0, "answer budget spent")}
    assert (
        "outcomes: 1 scored · 1 answer budget spent\ncut off: 1/2 = 50.0 % [9.1, 90.9]"
        in ended.stderr
    )


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("fault-401", "every request would fail: http://127.0.0.1:"),
        ("fault-404", "The model `fault-404` does not exist."),
        ("fault-429-quota", "You exceeded your current quota."),
        ("fault-500", "answered 500"),
    ],
)
def test_a_hopeless_run_stops_early_and_says_why_in_one_line(needlemap, wire, model, said):
    asked = (
        "--lengths",
        "200:400:9",
        "--model",
        f"openai/{model}",
        "--no-canary",
        "--retries",
        "0",
    )
    ended = needlemap.run(wire, *asked, code=2)
    assert said in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith(
        "needlemap: stopped, every request would fail: "
    )
    assert len(wire.log()) <= 8
    assert all(record["score"] is None for record in needlemap.records())


def test_lengths_that_the_model_refuses_are_not_sent_again_and_not_scored(needlemap, wires):
    wire = wires("--max-context", "250")
    flags = ("--lengths", "200,400,600,800,1000", "--depths", "0,50,100", "--concurrency", "1")
    ended = needlemap.run(wire, *flags, code=2)
    assert ended.stderr.splitlines()[-1].startswith(
        "needlemap: the model refused prompts of 400 tokens and more ("
    )
    assert ended.stderr.splitlines()[-1].endswith(" Use --lengths up to 200.")
    assert "200  100.0  n=3" in ended.stdout
    assert "400      -  n=0 missing 3 (3 prompt too long)" in ended.stdout
    refused = [record for record in needlemap.records() if record["score"] is None]
    assert {record["failure"] for record in refused} == {"prompt too long"}
    assert len(refused) == 12
    sent = [record for record in refused if record["attempts"]]
    assert len(wire.log()) == 3 + len(sent) < 10
    assert all("Not sent" in record["error"] for record in refused if not record["attempts"])


def test_half_a_character_and_control_codes_harm_neither_records_nor_terminal(needlemap, wire):
    wire.schedule("half-character", "say:\x1b]0;owned\x07 51328")
    ended = needlemap.run(wire, "--lengths", "200", "--depths", "0,100", "--concurrency", "1")
    answers = {record["answer"] for record in needlemap.records()}
    assert answers == {"51328 ?", "\x1b]0;owned\x07 51328"}
    assert "\x1b" not in ended.stdout + ended.stderr


def test_an_answer_prefix_is_part_of_the_answer_that_is_scored(needlemap):
    """Scored alone, a right continuation of the prefix lost most of its edit-distance score."""
    (needlemap.folder / "goes_on.py").write_text(
        'def f(messages):\n    return " 98Q12."\n', encoding="utf-8"
    )
    item = (
        "--needle",
        "The code is 98Q12.",
        "--question",
        "Which code?",
        "--scorer",
        "levenshtein",
    )
    grid = ("--lengths", "1k", "--depths", "50", "--answer-prefix", "The code is", "-o", "r")
    needlemap("run", "--model", "python/goes_on:f", *item, *grid)
    (record,) = needlemap.records()
    assert (record["answer"], record["score"]) == (" 98Q12.", 1.0)


def body(
    content: str = '"51328"', finish: str = '"stop"', usage: str = "{}", model: str = '"m"'
) -> str:
    """A reply of both wire formats as JSON text, with parts as a server spells them."""
    return (
        f'raw:{{"model": {model}, "usage": {usage}, "choices": [{{"message": {{"content": {content}}}, '  # noqa: E501
        f'"finish_reason": {finish}}}], "content": [{{"type": "text", "text": {content}}}], '
        f'"stop_reason": {finish}}}'
    )


DEEP = "[" * 400 + "]" * 400
ODD_REPLIES = {
    "half a character in upper case": body('"51328 \\uD800"'),
    "half a character in the model's name": body(model='"m\\uDFFF"'),
    "half a character in usage": body(usage='{"x\\uD800": "\\uD801"}'),
    "usage nested 400 deep": body(usage=f'{{"x": {DEEP}}}'),
    "counts below zero": body(usage='{"prompt_tokens": -1000000, "input_tokens": -1000000}'),
    "counts of 400 digits": body(
        usage=f'{{"prompt_tokens": {10**400}, "input_tokens": {10**400}}}'
    ),
    "counts that are no numbers": body(usage='{"prompt_tokens": 1e999, "completion_tokens": NaN}'),
    "more cached than sent": body(
        usage='{"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99999}, "input_tokens": 9}'  # noqa: E501
    ),
    "a number as the finish reason": body(finish="5"),
    "an object as the finish reason": body(finish='{"a": 1}'),
    "a list as the finish reason": body(finish='["stop"]'),
    "a megabyte of model name": body(model=f'"{"m" * 1_000_000}"'),
    "a megabyte of usage": body(
        usage=f'{{"x": [{", ".join(["1"] * 300_000)}], "y": "{"z" * 500_000}"}}'
    ),
}


@pytest.mark.parametrize("backend", ["openai", "anthropic"])
def test_odd_replies_are_scored_and_neither_end_the_run_nor_break_its_reports(typed, wire, backend):
    """Each ended the run in a traceback, at each start anew, or the page of its records."""
    wire.schedule("ok", *ODD_REPLIES.values())
    address = wire.root if backend == "anthropic" else wire.base_url
    server = ("--model", f"{backend}/gpt-4o", "--base-url", address, "--tokenizer", "cl100k_base")
    grid = ("--lengths", "200", "--depths", "50", "--repeats", 1 + len(ODD_REPLIES))
    limits = ("--max-answer-tokens", "40", "--limit-usd", "9")
    prices = ("--prices", "input=1", "--prices", "output=1")
    typed("run", *server, *grid, *limits, *prices, "-o", "r")
    rows = written(typed.folder)
    assert len(rows) == len(wire.log()) == 1 + len(ODD_REPLIES)
    assert {row["failure"] for row in rows} == {None}
    assert all(row["prompt_tokens"] is None or 0 <= row["prompt_tokens"] < 2**53 for row in rows)
    assert all(row["usd"] >= 0 for row in rows)
    assert all(isinstance(row["finish"], str | None) for row in rows)
    assert max(len(json.dumps(row)) for row in rows) < 30_000
    typed("report", "r", "-o", "x.html")


@pytest.mark.parametrize(
    ("backend", "reply"),
    [
        ("openai", body('[null, 5, {"text": {"a": 1}}, {"text": null}]')),
        ("anthropic", body('{"a": 1}')),
        ("anthropic", body("null")),
    ],
)
def test_parts_without_text_are_no_answer(typed, wire, backend, reply):
    """They were answers such as "{'a': 1}None", scored 0."""
    wire.schedule("ok", reply)
    address = wire.root if backend == "anthropic" else wire.base_url
    server = ("--model", f"{backend}/m", "--base-url", address, "--tokenizer", "cl100k_base")
    typed(
        "run", *server, "--lengths", "200", "--depths", "0,100", "--max-answer-tokens", "40", code=3
    )
    failed = [row for row in written(next(typed.folder.glob("*"))) if row["failure"]]
    assert [(row["failure"], row["answer"]) for row in failed] == [("unreadable answer", None)]


@pytest.mark.parametrize(
    ("returns", "failure"),
    [
        ('Answer("51328 \\ud800", finish=5, prompt_tokens=10**400, usage={"a": object()})', None),
        ('Answer("51328", model=b"x", latency_s=float("nan"), thinking=7, cached_tokens=-1)', None),
        ("Answer(None)", "unreadable answer"),
        ("Answer(b'51328')", "unreadable answer"),
    ],
)
def test_an_answer_of_a_users_function_is_held_to_the_same(typed, returns, failure):
    source = f"from needlemap.plugins import Answer\n\ndef f(messages):\n    return {returns}\n"
    name = f"odd_{abs(hash(returns))}"
    (typed.folder / f"{name}.py").write_text(source, "utf-8")
    grid = ("--lengths", "1k", "--depths", "0,50", "-o", "r")
    typed("run", "--model", f"python/{name}:f", *grid, code=None)
    assert {row["failure"] for row in written(typed.folder)} == {failure}


async def twice(*_: object) -> Score:
    return Score(2.0, 2.0, {"why": object()})


def test_a_score_that_fits_into_no_record_is_the_scorers_failure(typed, monkeypatch):
    monkeypatch.setattr(Substring, "score", twice)
    grid = ("--lengths", "1k", "--depths", "0,50", "-o", "r")
    typed("run", "--model", "baseline/bm25", *grid, code=None)
    assert {row["failure"] for row in written(typed.folder)} == {"scorer raised"}


def written(folder: Path) -> list[dict[str, Any]]:
    """All records of a run `r`, or of the one in a folder."""
    files = sorted(folder.glob("**/records-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def test_an_address_without_v1_works_and_the_run_says_so_once(typed, wire):
    """The commonest mistake ended in '404: Not Found'."""
    grid = ("--lengths", "200", "--depths", "0,50,100", "--max-answer-tokens", "40", "-o", "r")
    server = ("--model", "openai/m", "--base-url", wire.root, "--tokenizer", "cl100k_base")
    ended = typed("run", *server, *grid, "--concurrency", "1")
    told = (
        f"{wire.root} knows no /chat/completions: asked at {wire.base_url}, as --base-url may say"
    )
    assert ended.stderr.count(told) == 1
    assert "(n=3, 0 missing)" in ended.stdout
    again = typed("run", "--model", "openai/m", "--base-url", wire.base_url, *server[4:], *grid)
    assert "3 already scored" in again.stderr


def test_a_model_and_a_scorer_of_ones_own_that_raise_are_told_what_they_are_given(typed):
    (typed.folder / "mine.py").write_text(
        "def model(messages):\n    return messages['content']\n"
        "def scorer(answer, reference):\n    return answer.score\n"
    )
    grid = ("--lengths", "400", "--depths", "50", "--max-answer-tokens", "24")
    said = typed("run", "--model", "python/mine:model", *grid, "-o", "a", code=3).stderr
    assert "TypeError: list indices must be integers or slices, not str (mine.py, line 2)" in said
    assert "is called with messages, a list of {'role', 'content'}, and returns" in said
    flags = ("--model", "baseline/bm25", "--scorer", "python/mine:scorer")
    said = typed("run", *flags, *grid, "-o", "b", code=3).stderr
    assert "AttributeError: 'str' object has no attribute 'score' (mine.py, line 4)" in said
    assert "is called with the answer and the reference, and returns a number" in said
