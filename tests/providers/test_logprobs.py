"""Servers that refuse log-probabilities: they are left out from the first refusal on."""

from __future__ import annotations

import json
from typing import Any

import pytest

GRID = ("--lengths", "200,300", "--depths", "0,50,100")
REFUSALS = [
    (403, {"error": {"message": "You are not allowed to request logprobs from this model"}}),
    (400, {"error": {"message": "Logprobs is not supported for this model.", "code": 400}}),
    (400, {"error": {"message": "Invalid 'top_logprobs': must be at most 1, got 2"}}),
    (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "top_logprobs"], "input": 2}]}),
]


def fault(status: int, body: Any) -> str:
    return f"without-logprobs:reply:{json.dumps({'status': status, 'body': json.dumps(body)})}"


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_refused_log_probabilities_are_dropped_with_one_line(
    needlemap: Any, wire: Any, status: int, body: Any
) -> None:
    wire.schedule(fault(status, body), cycle=True)
    ended = needlemap.run(wire, *GRID, "--logprobs", "--concurrency", "1")
    assert "overall 100.0 (n=6, 0 missing)" in ended.stdout
    assert ended.stderr.count("gives no log-probabilities: records lack them") == 1
    assert ["logprobs" in request["body"] for request in wire.log()] == [True] + [False] * 6


def test_a_key_that_is_refused_is_no_refusal_of_log_probabilities(
    needlemap: Any, wire: Any
) -> None:
    body = {"error": {"message": "No access to this project"}}
    wire.schedule(fault(403, body), cycle=True)
    needlemap.run(wire, *GRID, "--logprobs", code=2)


SHORT = ("--max-length", "400", "--max-answer-tokens", "24")
CHECK = (*SHORT, "--probe", "length", "--limit-tokens", "8k")


@pytest.mark.parametrize("flags", [(), ("--logprobs", "off")])
def test_a_check_goes_on_without_them(needlemap: Any, wire: Any, flags: tuple[str, ...]) -> None:
    wire.schedule(fault(*REFUSALS[0]), cycle=True)
    model = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    ended = needlemap("check", *model, *CHECK, "--quiet", *flags, "-o", "c", code=None)
    assert "No answer ever came" not in ended.stderr
    sent = ["logprobs" in request["body"] for request in wire.log()]
    assert len(sent) > 3, ended
    assert sum(sent) in (range(1) if flags else range(1, 5))


SIDE = ("--model", "openai/wire", "--tokenizer", "cl100k_base", "--max-answer-tokens", "60")
STORM = ("--max-length", "2k", "--load", "4", "--limit-tokens", "20k", "--logprobs")
AB = ("demo", "--lengths", "200", "--until", "4", "--arm", "new=baseline/bm25")


@pytest.mark.parametrize("command", ["ab", "storm"])
@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_ab_and_storm_go_on_without_them(
    needlemap: Any, wire: Any, command: str, status: int, body: Any
) -> None:
    wire.schedule(fault(status, body), cycle=True)
    at = "--arm=ref=" if command == "ab" else "--base-url="
    more = AB if command == "ab" else STORM
    typed = (*more, *SIDE, f"{at}{wire.base_url}", "--quiet", "-o", "r")
    ended = needlemap(command, *typed, code=None)
    sent = ["logprobs" in request["body"] for request in wire.log()]
    assert len(sent) > 8, ended
    # Those that were under way when the first was refused.
    assert 1 <= sum(sent) <= 4
    assert not any(sent[8:])
    asked = [
        record
        for file in needlemap.folder.rglob("records-*.jsonl")
        if "new" not in file.parent.name
        for record in needlemap.records(f"r/{file.parent.name}")
    ]
    assert asked
    assert not any(record["failure"] for record in asked)
