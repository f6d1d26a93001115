"""Refusals in a run: what ends it, what it sends no more, and what it says at the end."""

from __future__ import annotations

from typing import Any

import pytest
from reported import fault_of, row_named

GRID = ("--lengths", "200,400,600,800", "--depths", "0,100", "--concurrency", "1")
WORDS = 220  # more than a prompt of 200 tokens has


def refused(wire: Any) -> int:
    """How many longer prompts were sent."""
    return sum(request["prompt_words"] > WORDS for request in wire.log())


def run(needlemap: Any, wire: Any, row: dict[str, Any], *flags: str, code: int) -> Any:
    """A run whose model answers 200 tokens, and longer prompts as a row says."""
    wire.schedule(f"above:{WORDS}:{fault_of(row)}", cycle=True)
    return needlemap.run(wire, *GRID, *flags, code=code)


@pytest.mark.parametrize("name", ["nginx", "Groq's tokens a minute, as 413"])
def test_a_limit_that_is_not_the_models_is_not_called_so(
    needlemap: Any, wire: Any, name: str
) -> None:
    row = row_named(name)
    ended = run(needlemap, wire, row, code=3)
    assert "the model refused" not in ended.stderr
    assert "Use --lengths up to" not in ended.stderr
    assert f"not measured: 6 {row['want']['failure']}" in ended.stderr
    assert row["want"]["says"] in ended.stderr
    assert refused(wire) == 6


@pytest.mark.parametrize(
    ("name", "quiet"), [("Gemini, a day's quota", ()), ("OpenAI, no quota", ("--quiet",))]
)
def test_a_quota_that_is_used_up_ends_the_run_at_once_in_the_servers_words(
    needlemap: Any, wire: Any, name: str, quiet: tuple[str, ...]
) -> None:
    row = row_named(name)
    ended = run(needlemap, wire, row, *quiet, code=2)
    body = row["body"]["error"]["message"]
    assert "stopped, every request would fail" in ended.stderr
    assert body.rstrip(".") in ended.stderr.splitlines()[-1]
    assert refused(wire) == 1


def test_extra_usage_for_long_prompts_leaves_the_shorter_ones(needlemap: Any, wire: Any) -> None:
    row = row_named("Anthropic, extra usage")
    ended = run(needlemap, wire, row, code=3)
    assert "Extra usage is required for long context requests" in ended.stderr
    assert refused(wire) == 6


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "would exceed the rate limit for your organization of 300 input tokens per minute"),
        (
            {"x-ratelimit-limit-tokens": "300", "x-ratelimit-remaining-tokens": "300"},
            "Too many requests",
        ),
    ],
)
def test_a_prompt_above_the_limit_a_minute_is_not_waited_for(
    needlemap: Any, wire: Any, headers: dict[str, str], message: str
) -> None:
    """It never passes: it was asked again for an hour."""
    reply = {"status": 429, "headers": headers, "body": {"error": {"message": message}}}
    ended = run(needlemap, wire, reply, code=3)
    assert message in ended.stderr
    assert refused(wire) == 6


def test_a_prompt_below_the_limit_a_minute_is_waited_for(needlemap: Any, wire: Any) -> None:
    headers = {
        "x-ratelimit-limit-tokens": "3000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "200ms",
    }
    wire.schedule("ok", fault_of({"status": 429, "headers": headers, "body": {"error": "busy"}}))
    needlemap.run(wire, *GRID)
    assert len(wire.log()) == 8 + 1


@pytest.mark.parametrize("name", ["Bedrock throttles by 400", "Groq 498"])
def test_throttling_under_another_status_is_waited_for(
    needlemap: Any, wire: Any, name: str
) -> None:
    wire.schedule("ok", fault_of(row_named(name)))
    needlemap.run(wire, *GRID)
    assert len(wire.log()) == 8 + 1


def test_why_answers_are_missing_is_said_with_quiet_too(needlemap: Any, wire: Any) -> None:
    wire.schedule("ok", fault_of({"status": 400, "body": {"error": {"message": "No mood today"}}}))
    ended = needlemap.run(wire, *GRID, "--quiet", code=3)
    assert "needlemap: rejected: " in ended.stderr
    assert "answered 400: No mood today" in ended.stderr


def test_a_page_in_place_of_json_ends_the_run_at_once(needlemap: Any, wire: Any) -> None:
    wire.schedule(fault_of(row_named("a page in place of JSON")), cycle=True)
    last = needlemap.run(wire, *GRID, code=2).stderr.splitlines()[-1]
    assert "an HTML page, 'Open WebUI' in place of JSON: Is --base-url right? The " in last
    assert len(wire.log()) == 1
    wire.schedule(fault_of(row_named("a page in place of JSON")), cycle=True)
    ended = needlemap.run(wire, *GRID, "--no-canary", "-o", "other", code=2)
    assert "stopped, every request would fail" in ended.stderr
    assert len(wire.log()) == 1 + 3


def test_an_answer_in_the_thinking_alone_is_shown(needlemap: Any, wire: Any) -> None:
    wire.schedule(fault_of(row_named("the whole answer among the reasoning, content null")))
    last = needlemap.run(wire, *GRID, code=2).stderr.splitlines()[-1]
    assert "All that it said is in its thinking: 'The code is 51328.'" in last
    assert "enable_thinking: false" in last


def test_the_roles_of_a_reply_are_no_reason_to_change_those_of_the_request(
    needlemap: Any, wire: Any
) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": 3}}]}
    wire.schedule(fault_of({"body": reply}), cycle=True)
    ended = needlemap.run(wire, *GRID, "--retries", "0", code=2)
    assert "system_role" not in ended.stderr
