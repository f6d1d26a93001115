"""Requests go out as fast as limits allow: the user's, those of headers, and those found by
refusals."""

from __future__ import annotations

import asyncio
import json
from time import monotonic

import pytest

from needlemap.allowance import Allowance, Quota, read_allowance
from needlemap.asking.pacer import Bucket, Pacer, Ticket
from needlemap.errors import Failure, Unmeasured
from needlemap.grid import duration_label
from needlemap.models.anthropic import AnthropicModel

GRID = ("--lengths", "200", "--depths", "50", "--mode", "single")


def limited(retry_after_s: float | None = None) -> Unmeasured:
    return Unmeasured(Failure.RATE_LIMITED, "429", transient=True, retry_after_s=retry_after_s)


async def admitted(pacer: Pacer, count: int, tokens: float = 0.0) -> list[Ticket]:
    return [ticket for _ in range(count) if (ticket := await pacer.admit(tokens))]


def test_no_more_requests_are_open_than_the_width():
    async def story() -> None:
        pacer = Pacer(2)
        first, _ = await admitted(pacer, 2)
        third = asyncio.create_task(pacer.admit())
        await asyncio.sleep(0.02)
        assert not third.done()
        pacer.answered(first)
        assert (await third) is not None

    asyncio.run(story())


def test_refusals_halve_nothing_twice_for_requests_that_were_sent_together():
    async def story() -> None:
        pacer = Pacer(10)
        tickets = await admitted(pacer, 10)
        for ticket in tickets:
            pacer.refused(ticket, limited(0.01))
        assert pacer.width == 7
        for _ in range(8):
            for ticket in await admitted(pacer, pacer.width):
                pacer.answered(ticket)
        assert pacer.width == 10

    asyncio.run(story())


def test_nobody_sends_while_the_server_asked_to_wait():
    async def story() -> None:
        pacer = Pacer(4)
        one, other = await admitted(pacer, 2)
        start = monotonic()
        pacer.refused(one, limited(0.2))
        pacer.answered(other)
        await pacer.admit()
        assert monotonic() - start >= 0.2

    asyncio.run(story())


def refused_for(seconds: float, *, answered: bool) -> tuple[bool, list[str]]:
    """Whether a request that was refused so long may go out again, and what was said meanwhile."""
    said: list[str] = []

    async def story() -> bool:
        pacer = Pacer(4, say=said.append)
        one, two, three = await admitted(pacer, 3)
        if answered:
            pacer.answered(one)
        else:
            pacer.ended()
        assert pacer.refused(two, limited(0.0))
        pacer._refused_since_s -= seconds
        return pacer.refused(three, limited(20.0))

    return asyncio.run(story()), said


@pytest.mark.parametrize(
    ("seconds", "answered", "again"),
    [(290, False, True), (310, False, False), (3590, True, True), (3610, True, False)],
)
def test_a_server_that_only_refuses_is_asked_for_five_minutes_or_an_hour_if_it_ever_answered(
    seconds, answered, again
):
    asked_again, said = refused_for(seconds, answered=answered)
    assert asked_again is again
    lasted = f"no answer for {duration_label(seconds)}"
    assert said == [f"rate limited: {lasted}; asking again in 20 s (429)"]


@pytest.mark.parametrize("fault", ["429-after:0", "429-ms:1"])
def test_a_server_that_says_429_with_hardly_any_wait_is_asked_less_and_less_often(
    needlemap, wire, fault
):
    """It met hundreds of requests a minute and more, for which providers block keys."""
    wire.schedule("ok", *[fault] * 500)
    needlemap.run(wire, *GRID, "--repeats", "9", "--limit-time", "4s", "--no-canary", code=None)
    times = [request["time"] for request in wire.log()]
    assert 3 < len(times) < 40
    assert times[-1] - times[-2] > 0.2


def test_a_bucket_that_refills_in_a_day_ends_the_run_in_words(needlemap, wire):
    """It stopped in silence for a day."""
    reply = {
        "body": json.dumps({"choices": [{"message": {"content": "7"}}]}),
        "headers": {
            "x-ratelimit-limit-requests": "4",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "24h",
        },
    }
    wire.schedule(*[f"reply:{json.dumps(reply)}"] * 9)
    grid = (*GRID, "--repeats", "9", "--concurrency", "1", "--no-canary")
    ended = needlemap.run(wire, *grid, code=2)
    assert "every request would fail: The server's rate limit leaves no room for " in ended.stderr
    assert len(wire.log()) == 1
    assert [row["outcome"] for row in needlemap.records()] == ["scored", "rate limited"]
    assert [row["attempts"] for row in needlemap.records()] == [1, 0]


def test_short_waits_are_told_when_they_add_up(needlemap, wire):
    wire.limit(requests_per_minute=60, burst=0.05)
    grid = (*GRID, "--repeats", "14", "--concurrency", "8", "--no-canary")
    ended = needlemap.run(wire, *grid)
    assert "the server's rate limit slows this down; asking again in " in ended.stderr


def waited_out(
    since_s: float, *, answered: bool, meanwhile: bool = False, outage: bool = True
) -> bool:
    """Whether a request that failed is sent again, though its retries are used up, after so
    long."""

    async def story() -> bool:
        pacer = Pacer(4)
        one, two = await admitted(pacer, 2)
        if answered:
            pacer.answered(one)
        failure = Unmeasured(Failure.SERVER, "503", transient=True)
        failure.outage = outage
        failed_s = monotonic()
        pacer.failed(failure, 1.0)
        pacer._out_since_s -= since_s
        if meanwhile:
            pacer.answered(two)
        return pacer.waits_out(failure, failed_s)

    return asyncio.run(story())


def test_a_server_that_is_not_there_is_waited_for_beyond_the_retries():
    """Six retries took about a minute: a server that was started again in three lost trials, or the
    run."""
    assert [waited_out(after_s, answered=False) for after_s in (0, 180, 290, 310)] == [
        True,
        True,
        True,
        False,
    ]
    assert [waited_out(after_s, answered=True) for after_s in (0, 180, 590, 610)] == [
        True,
        True,
        True,
        False,
    ]


def test_what_fails_while_others_are_answered_or_is_no_outage_has_its_retries_and_no_more():
    assert not waited_out(0, answered=True, meanwhile=True)
    assert not waited_out(0, answered=True, outage=False)


@pytest.mark.parametrize("faults", [["503", "502", "529"], ["down:2"]])
def test_an_outage_longer_than_the_retries_costs_no_trial(needlemap, wires, faults):
    wire = wires()
    wire.schedule(*faults)
    ended = needlemap.run(wire, *GRID, "--repeats", "3", "--retries", "1", "--concurrency", "1")
    assert "(n=3, 0 missing)" in ended.stdout


def test_without_retries_nothing_is_waited_for(needlemap, wire):
    wire.schedule("503", cycle=True)
    needlemap.run(wire, *GRID, "--repeats", "3", "--retries", "0", "--no-canary", code=2)
    assert len(wire.log()) == 3


def test_a_short_wait_is_not_told():
    said: list[str] = []

    async def story() -> None:
        pacer = Pacer(4, say=said.append)
        for ticket in await admitted(pacer, 3):
            pacer.refused(ticket, limited(2.0))

    asyncio.run(story())
    assert said == []


def test_a_long_wait_is_told_and_a_server_that_never_answers_ends_the_run(
    needlemap, wire, monkeypatch
):
    wire.schedule("429-after:6")
    ended = needlemap.run(wire, *GRID)
    assert "rate limited: asking again in 6 s" in ended.stderr
    wire.schedule("429", cycle=True)
    monkeypatch.setattr("needlemap.asking.pacer.FIRST_PATIENCE_S", 2.0)
    ended = needlemap.run(wire, *GRID, "-o", "other", code=2)
    assert "rate limited" in ended.stderr
    assert len(wire.log()) < 10


def test_a_users_limit_spreads_requests_evenly():
    async def story() -> list[float]:
        pacer, times = Pacer(requests_per_minute=60 * 50), []
        for _ in range(8):
            await pacer.admit()
            times.append(monotonic())
        return times

    times = asyncio.run(story())
    assert times[-1] - times[0] >= 0.13  # seven gaps of 0.02 s, but for what the clock rounds


def test_time_that_is_up_lets_nothing_out():
    async def story() -> None:
        left_s = [0.05]
        pacer = Pacer(1, left_s=lambda: left_s[0])
        ticket = await pacer.admit()
        assert ticket
        pacer.refused(ticket, limited(60))
        left_s[0] = 0.0
        assert await pacer.admit() is None
        assert not await pacer.rest(1)

    asyncio.run(story())


def test_headers_tell_a_rate_that_the_bucket_follows():
    bucket = Bucket.learned(Quota(1000, 1000), 0.0)
    bucket.hear(Quota(1000, 900, full_in_s=10), 0, 0.0, 0.0)
    bucket.hear(Quota(1000, 900, full_in_s=10), 0, 0.0, 0.0)
    assert bucket.rate == pytest.approx(10, rel=0.7)
    bucket.hear(Quota(1000, 0, full_in_s=100), 0, 0.0, 0.0)
    assert bucket.wait_s(1, 0.0) == pytest.approx(0.1, rel=0.5)
    assert bucket.wait_s(1, 200.0) == 0  # full again, as the server said


def test_a_request_larger_than_the_whole_allowance_waits_until_that_is_full_and_goes():
    bucket = Bucket(10.0, 100.0, 50.0)
    assert bucket.wait_s(1000, 0.0) == pytest.approx(5.0)
    assert bucket.wait_s(1000, 5.0) == 0


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        (
            {
                "x-ratelimit-limit-requests": "1000",
                "x-ratelimit-remaining-requests": "998",
                "x-ratelimit-reset-requests": "2m52.8s",
            },
            Quota(1000, 998, 172.8),
            None,
        ),
        (
            {"x-ratelimit-limit-tokens": "8000", "x-ratelimit-remaining-tokens": "-27"},
            None,
            Quota(8000, -27),
        ),
        (
            {
                "anthropic-ratelimit-tokens-limit": "400000",
                "anthropic-ratelimit-tokens-remaining": "1000",
                "anthropic-ratelimit-tokens-reset": "1970-01-01T00:02:00Z",
            },
            None,
            Quota(400000, 1000, 90.0),
        ),
    ],
)
def test_headers_are_read_as_providers_write_them(headers, requests, tokens):
    names = AnthropicModel.limit_headers
    assert read_allowance(headers, 30.0, names) == Allowance(requests, tokens)


@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "-"])
def test_headers_that_make_no_sense_are_not_heard(text):
    assert (
        read_allowance({"x-ratelimit-limit-requests": text, "x-ratelimit-remaining-requests": text})
        is None
    )
    assert read_allowance({}) is None


@pytest.mark.parametrize(
    "limits",
    [
        {"requests_per_minute": 600, "burst": 1 / 60},
        {"requests_per_minute": 600, "burst": 1 / 60, "headers": "none"},
        {"requests_per_minute": 600, "burst": 1 / 60, "headers": "none", "retry_after": False},
        {"tokens_per_minute": 600 * 155, "burst": 1 / 60},
    ],
    ids=["headers", "retry-after", "nothing", "tokens"],
)
def test_a_run_against_a_limited_server_loses_no_trial_and_little_time(needlemap, wire, limits):
    """The floor is (20 - 10) / 10 a second; how near it comes is measured by
    benchmarks/rates.py."""
    wire.limit(**limits)
    needlemap.run(wire, *GRID, "--repeats", "20", "--concurrency", "8", "--retries", "0")
    assert {record["failure"] for record in needlemap.records()} == {None}
    taken = [request for request in wire.log() if not request["refused"]]
    assert len(taken) == 20
    assert taken[-1]["time"] - taken[0]["time"] < 1 * 3
    if limits.get("headers") != "none":
        assert len(wire.log()) - 20 <= 10


def test_our_own_limit_holds_against_a_server_without_any(needlemap, wire):
    needlemap.run(
        wire, *GRID, "--repeats", "12", "--requests-per-minute", "600", "--concurrency", "8"
    )
    times = [request["time"] for request in wire.log()]
    assert times[-1] - times[0] > 11 * 0.1 * 0.9
