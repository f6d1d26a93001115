"""Whole checks of made-up servers, in memory: what fails, what is open, what is left alone.

The servers are those of `benchmarks/sides`; `benchmarks/green.py` asks a thousand more.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks"))
from needlemap.servers.check import Answers, Options, Schedule
from needlemap.servers.check import Reply as Answer
from sides.engines import Engine, Machine, Reply, Seen, chance
from sides.replayed import Outcome, check

LONG = 60_000  # tokens: more than the second size has, less than the longest
COUNTERS = [  # what a server counts of a prompt that its cache holds
    "openai",
    "scaled",
    pytest.param("none", marks=pytest.mark.long),
    pytest.param("exclusive", marks=pytest.mark.long),
]


def lost(reply: Reply) -> Reply:
    """No answer to the question."""
    return replace(reply, text="The text does not say.")


def checked(change, seed=7, max_length=128_000, **machine) -> Outcome:
    """What a check comes to of a server that changes right replies so."""
    options = Options(max_length=max_length, promised=True)
    return check(options, Machine(**machine), [change], "tests", seed)


def sound(_seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return reply


def lost_while_computed_beside_others(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    long = seen.request.tokens - seen.hit > 5_000
    return lost(reply) if long and seen.flying else reply


def sees_the_last_tokens_only(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return lost(reply) if seen.request.tokens - seen.request.asked.start > LONG else reply


def head_cut_and_counted(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    if seen.request.tokens < LONG:
        return reply
    cut = replace(reply, prompt_tokens=LONG)
    return lost(cut) if seen.request.tokens - seen.request.asked.start > LONG else cut


def cut_behind_the_middle(counted: int):
    """Of long prompts the last fifth is left, in which nothing is found."""

    def change(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
        short = seen.request.tokens < LONG
        return (
            reply if short else replace(lost(reply), prompt_tokens=counted or reply.prompt_tokens)
        )

    return change


def fails_beyond(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return replace(reply, error="server") if seen.request.tokens > LONG else reply


def lost_at_one_token_in_32(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    long = seen.request.tokens > LONG
    return lost(reply) if long and seen.request.asked.start % 32 == 17 else reply


def weak_at_the_head(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    head = seen.request.asked.start < 100
    return lost(reply) if head and chance(seen.request.begin) < 0.5 else reply


def one_in_five_errs(_seen: Seen, reply: Reply, engine: Engine) -> Reply:
    return lost(reply) if engine.random.random() < 0.2 else reply


def one_back_end_of_two_is_dead(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return lost(reply) if seen.replica == 0 else reply


def ties_tip(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    return lost(reply) if chance(seen.request.name, seen.state) < 0.02 else reply


@pytest.mark.parametrize("change", [sound, ties_tip])
@pytest.mark.parametrize("counters", COUNTERS)
def test_a_server_that_computes_right_passes_whatever_it_counts(change, counters):
    assert checked(change, counters=counters).code == 0


def test_a_long_prompt_that_is_lost_while_others_are_computed_fails_load():
    came = checked(lost_while_computed_beside_others)
    assert (came.code, came.failing) == (1, ("load",))


def test_a_model_that_sees_the_last_tokens_only_is_not_taken_for_a_cut():
    came = checked(sees_the_last_tokens_only)
    assert came.code == 5
    assert "cut" in came.open


def test_places_far_from_the_last_block_count_too():
    """Only sixteen places near the prompt's end were tried, so that one token in 32 passed."""
    came = checked(lost_at_one_token_in_32)
    assert came.code in (1, 5)
    (pattern,) = [said for said in came.said if said.startswith("pattern")]
    assert "where place % 32 = 17" in pattern


def test_a_model_that_is_weak_at_one_depth_is_not_blamed_for_the_places_there():
    came = checked(weak_at_the_head)
    assert "pattern" not in came.failing


def test_a_head_that_is_lost_and_not_counted_is_a_cut():
    came = checked(head_cut_and_counted)
    assert (came.code, came.failing) == (1, ("cut",))


def test_where_nothing_is_found_and_most_is_not_counted_the_prompt_was_cut():
    """It was undecided: 'none found in either way', though the server counted a fifth."""
    came = checked(cut_behind_the_middle(25_000))
    assert (came.code, came.failing) == (1, ("cut",))


@pytest.mark.parametrize("counters", COUNTERS)
def test_a_model_that_finds_nothing_in_long_prompts_is_not_taken_for_a_cut(counters):
    came = checked(cut_behind_the_middle(0), counters=counters)
    assert (came.code, came.failing) == (5, ())


def test_a_size_that_only_brings_errors_is_no_size_that_was_not_asked():
    came = checked(fails_beyond)
    assert came.code == 5
    assert "128k no prompt answered" in came.line


def test_a_server_that_samples_is_not_blamed_for_answers_that_change():
    assert checked(one_in_five_errs).code != 1


@pytest.mark.parametrize("max_length", [pytest.param(2_000, marks=pytest.mark.long), 128_000])
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_one_dead_back_end_of_two_by_turn_fails(seed, max_length):
    """The shortest prompts are asked twice in a row, so that each changed: as the yardstick, they
    excused all others."""
    came = checked(one_back_end_of_two_is_dead, seed, max_length, replicas=2, routed="turn")
    assert (came.code, came.failing) == (1, ("pattern", "same"))


@pytest.mark.parametrize(
    ("size", "less"), [(8_000, 8), (8_000, 30), (8_000, 63), (32_000, 30), (128_000, 30)]
)
def test_a_model_that_ends_within_the_lengths_of_a_size_is_not_blamed(size, less):
    """`cache` paired a prompt with one of 64 tokens more, behind which the model ended."""
    ends = size - 300 - less
    came = checked(lambda seen, reply, _: lost(reply) if seen.request.tokens > ends else reply)
    assert (came.code, came.failing) == (5, ())


def endless(reply: Reply) -> Reply:
    return replace(reply, text="the the " * 30, finish="length")


def needs_room(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """A reasoning model, of which one long answer in five needs twice the budget."""
    short = seen.request.tokens < 20_000 or seen.request.room > 1
    return reply if short or chance(seen.request.name) > 0.2 else endless(reply)


def heeds_no_stop(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    short = seen.request.tokens < 20_000
    return reply if short or chance(seen.request.name) > 0.2 else endless(reply)


def test_a_model_that_needs_a_larger_budget_behind_long_prompts_is_not_blamed():
    came = checked(needs_room)
    assert (came.code, came.failing) == (5, ())
    (stop,) = [said for said in came.said if said.startswith("stop")]
    assert "do with 4 times the budget: raise --max-answer-tokens" in stop


def test_answers_that_do_not_end_with_four_times_the_budget_fail_stop():
    came = checked(heeds_no_stop)
    assert (came.code, came.failing) == (1, ("stop",))


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_temperature_is_not_taken_for_a_race(share):
    """Two answers that are each right by chance differ in half of the cases at most."""

    def samples(_seen: Seen, reply: Reply, engine: Engine) -> Reply:
        return lost(reply) if engine.random.random() < share else reply

    came = checked(samples)
    assert (came.code, came.failing) == (5, ())


def test_a_race_behind_long_prompts_fails_same():
    def races(seen: Seen, reply: Reply, engine: Engine) -> Reply:
        long = seen.request.tokens > 20_000
        return lost(reply) if long and engine.random.random() < 0.3 else reply

    assert "same" in checked(races).failing


def spoilt_by_a_wave(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
    """mlx-lm 0.31.0: what was computed beside others is wrong once it is read from the cache."""
    short = seen.request.tokens < 1_000
    return lost(reply) if short and seen.hit and seen.batched else reply


def test_each_prompt_of_a_wave_is_sent_once_more():
    came = checked(spoilt_by_a_wave)
    assert came.code == 1
    assert "load" in came.failing
    (load,) = [said for said in came.said if said.startswith("load")]
    assert "behind the wave" in load


def test_a_server_that_caches_first_prompts_already_has_no_cold_ones():
    """A first prompt is cold if the server says so."""
    schedule, answers = Schedule(Options(max_length=128_000), seed=7), Answers()
    for ask in schedule.cells():
        answers.add(Answer.of(ask, ask.secret, cached_tokens=ask.length - 1))
    for name in ("cache", "onset"):
        finding = schedule.probes[name].judge(schedule, answers, look=1)
        assert (finding.state, finding.n) == ("NOT ENOUGH DATA", 0)


@pytest.mark.parametrize(("share", "code"), [(0.0, 0), (0.06, 1)])
def test_the_gauge_that_loses_one_in_twenty_alone_fails(share, code):
    options = Options(max_length=16_000, promised=True, holds=16_384, few=True)

    def change(seen: Seen, reply: Reply, _engine: Engine) -> Reply:
        return lost(reply) if chance(seen.request.name) < share else reply

    came = check(options, Machine(), [change], "gauge", 7)
    assert came.code == code
    assert ("length" in came.failing) == bool(code)
