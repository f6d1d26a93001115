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


CHECK = ("--max-length", "400", "--max-answer-tokens", "24", "--probe", "length", "--minutes", "1")


@pytest.mark.parametrize("flags", [(), ("--logprobs", "off")])
def test_a_check_goes_on_without_them(needlemap: Any, wire: Any, flags: tuple[str, ...]) -> None:
    wire.schedule(fault(*REFUSALS[0]), cycle=True)
    model = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    ended = needlemap("check", *model, *CHECK, "--quiet", *flags, "-o", "c", code=None)
    assert "No answer ever came" not in ended.stderr
    sent = ["logprobs" in request["body"] for request in wire.log()]
    assert len(sent) > 3, ended
    assert sum(sent) in (range(1) if flags else range(1, 5))
