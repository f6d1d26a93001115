"""What `needlemap run` and `report` say about the server's own counts."""

from __future__ import annotations

import pytest

GRID = ("--lengths", "1k,2k", "--depths", "0,50,100", "--concurrency", "1")


def test_cached_tokens_stand_beside_the_plans_promise_in_run_and_report(needlemap, wire):
    ended = needlemap.run(wire, *GRID)
    records = needlemap.records()
    cached = sum(record["cached_tokens"] for record in records)
    counted = sum(record["prompt_tokens"] for record in records)
    promise = sum(record["shared_tokens"] for record in records)
    assert promise > 0
    line = f"cached: {cached:,} of {counted:,} prompt tokens; planned {promise:,}\n"
    assert line in ended.stderr
    assert line in needlemap("report", "r").stderr


def test_modes_that_share_nothing_have_no_promise(needlemap, wire):
    ended = needlemap.run(wire, *GRID, "--mode", "cold")
    assert {record["shared_tokens"] for record in needlemap.records()} == {None}
    assert "planned" not in ended.stderr


def test_a_server_that_reports_no_usage_is_said_to_and_nothing_is_made_up(needlemap, wire):
    wire.schedule("no-usage", cycle=True)
    ended = needlemap.run(wire, *GRID)
    for record in needlemap.records():
        assert record["score"] == 1
        assert (
            record["prompt_tokens"]
            is record["cached_tokens"]
            is record["completion_tokens"]
            is None
        )
        assert record["usage"] == {}
    assert (
        "the server reports no usage: it is unknown how many tokens it counted, and whether"
        in ended.stderr
    )
    assert "cached:" not in ended.stderr
    assert "cached" not in needlemap("report", "r").stderr


def test_a_quiet_run_says_nothing_of_it(needlemap, wire):
    assert "cached" not in needlemap.run(wire, *GRID, "--quiet").stderr


def test_framing_tokens_are_taken_off_the_prompt(needlemap, wire):
    needlemap.run(wire, "--lengths", "300", "--depths", "0,100", "--framing-tokens", "25")
    assert {record["prompt"]["tokens"] for record in needlemap.records()} == {300 - 40 - 25}


def test_framing_tokens_are_no_business_of_models_fed_with_ids(needlemap):
    ended = needlemap("run", "--model", "demo/retriever", "--framing-tokens", "8", code=2)
    assert "is fed token ids" in ended.stderr
    assert "Leave --framing-tokens out." in ended.stderr


@pytest.mark.parametrize("tokens", ["-101", "100001"])
def test_framing_tokens_that_no_template_has_are_refused(needlemap, tokens):
    ended = needlemap("run", "--model", "baseline/bm25", "--framing-tokens", tokens, code=2)
    assert "Setting 'framing_tokens' in the command line" in ended.stderr
