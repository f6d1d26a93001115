"""Whole checks of made-up servers, in memory: what fails, what is open, what is left alone.

The servers are those of `benchmarks/sides`; `benchmarks/green.py` asks a thousand more.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks"))
from needlemap.servers.check import Options
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
    (edges,) = [said for said in came.said if said.startswith("edges")]
    assert "where place % 32 = 17" in edges


def test_a_model_that_is_weak_at_one_depth_is_not_blamed_for_the_places_there():
    came = checked(weak_at_the_head)
    assert "edges" not in came.failing


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
    assert (came.code, came.failing) == (1, ("same",))
