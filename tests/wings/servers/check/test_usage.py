"""Counters that cannot be true are reported, and decide nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from needlemap.servers.check import Answers, Options, Reply, Schedule, judge
from needlemap.servers.check.pairs import cut_first_prompts
from needlemap.servers.check.probe import probes
from needlemap.servers.check.usage import untrue

RANDOM = random.Random(7)
UNTRUE = {
    "double": lambda tokens: 2 * tokens,
    "half": lambda tokens: tokens // 2,
    "zero": lambda _: 0,
    "constant": lambda _: 1_000,
    "random": lambda tokens: RANDOM.randrange(tokens),
    "now and then": lambda tokens: tokens if RANDOM.random() < 0.9 else 3 * tokens,
}
TRUE = {
    "as sent": lambda tokens: tokens,
    "with a template": lambda tokens: tokens + 40,
    "another vocabulary": lambda tokens: round(0.8 * tokens) + 12,
}


def answered(count, max_length=128_000) -> tuple[Schedule, Answers]:
    schedule, answers = Schedule(Options(max_length=max_length), seed=7), Answers()
    for ask in schedule.cells():
        answers.add(Reply.of(ask, ask.secret, prompt_tokens=count(ask.length)))
    return schedule, answers


@pytest.mark.parametrize("kind", UNTRUE)
def test_counters_that_cannot_be_true_are_reported(kind):
    schedule, answers = answered(UNTRUE[kind])
    finding = probes()["usage"].judge(schedule, answers, 1)
    assert (finding.state, finding.decides) == ("SUSPECT", False)
    assert "count" in finding.said


@pytest.mark.parametrize("kind", TRUE)
@pytest.mark.parametrize("max_length", [4_000, 128_000])
def test_counters_of_honest_servers_fit(kind, max_length):
    schedule, answers = answered(TRUE[kind], max_length)
    assert probes()["usage"].judge(schedule, answers, 1).state == "PASS"


def test_more_tokens_cached_than_sent_are_reported():
    schedule, answers = Schedule(Options(max_length=128_000), seed=7), Answers()
    for ask in schedule.cells():
        counts = {"prompt_tokens": ask.length, "cached_tokens": 2 * ask.length}
        answers.add(Reply.of(ask, ask.secret, **counts))
    finding = probes()["usage"].judge(schedule, answers, 1)
    assert "more tokens cached than sent" in finding.said


def test_a_server_that_counts_nothing_is_not_blamed():
    schedule, answers = answered(lambda _: None)
    assert probes()["usage"].judge(schedule, answers, 1).state == "not applicable"
    assert judge(schedule, answers).verdict.word != "FAIL"


def test_prompts_of_nearly_one_length_tell_nothing_of_the_counts():
    """A few longer prompts do not move the tenths that are compared: it was a division by 0."""
    schedule = Schedule(Options(max_length=4_000), seed=7)
    asks = sorted(schedule.cells(), key=lambda ask: ask.length)
    replies = [
        replace(Reply.of(asks[-1], "", prompt_tokens=9_000), own_tokens=4_000) for _ in range(99)
    ]
    short = replace(Reply.of(asks[0], "", prompt_tokens=900), own_tokens=400)
    assert untrue([*replies, short]) == ""


@pytest.mark.parametrize("template_tokens", [90, 150])
def test_a_long_template_is_not_taken_for_another_vocabulary(template_tokens):
    """The server counted 8,079 of 7,989 tokens sent, and all long prompts were called cut."""
    _, answers = answered(lambda tokens: tokens + template_tokens)
    assert cut_first_prompts(answers, 8_000) == []
    assert cut_first_prompts(answers, 128_000) == []


def test_a_cut_is_seen_in_the_counts_of_another_vocabulary():
    _, answers = answered(lambda tokens: round(0.8 * min(tokens, 20_000)))
    assert cut_first_prompts(answers, 8_000) == []
    assert cut_first_prompts(answers, 32_000)
