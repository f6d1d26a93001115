"""A quick check: a few prompts, which show a total loss and say what they do not show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks"))
from needlemap.errors import SettingsError
from needlemap.servers.check import Options, Schedule
from needlemap.servers.check.command import longest_of
from sides.engines import Engine, Machine, Reply, Seen
from sides.replayed import Outcome, check

QUICK = Options(max_length=8_000, quick=True)


def quickly(is_lost, options=QUICK, **machine) -> Outcome:
    def change(seen: Seen, reply: Reply, engine: Engine) -> Reply:
        return replace(reply, text="Not said.") if is_lost(seen, engine) else reply

    return check(options, Machine(**machine), [change], "quick", 7)


def test_it_sends_at_most_60_prompts_and_240000_tokens_even_without_a_cache():
    schedule = Schedule(QUICK, seed=7)
    assert schedule.sizes == (2_000, 8_000)
    assert schedule.first_round_cost.prompts <= 60
    assert schedule.first_round_cost.sent <= 240_000
    assert {ask.length > 8_000 for ask in schedule.cells()} == {False}


def test_a_sound_server_passes_and_the_line_says_what_was_not_tested():
    came = quickly(lambda *_: False)
    assert came.code == 0
    assert came.line == (
        "PASS check: no total loss at 2k and 8k (a loss of 17 points or more is ruled out at "
        "each); not tested: drift, replicas, lengths between, follow-up turns."
    )


@pytest.mark.parametrize(
    "is_lost",
    [
        lambda *_: True,
        lambda seen, _: seen.request.tokens > 4_000,
        lambda seen, _: seen.hit > 0,
        lambda seen, _: not seen.hit and seen.request.tokens > 1_000,
        lambda seen, _: bool(seen.flying),
        lambda _, engine: engine.random.random() < 0.6,
    ],
)
def test_a_total_loss_is_suspect(is_lost):
    assert quickly(is_lost).code == 5


def test_the_gauge_that_loses_three_facts_fails():
    known = replace(QUICK, holds=16_384)
    assert quickly(lambda seen, _: seen.request.tokens > 4_000, known).code == 1
    assert quickly(lambda *_: False, known).code == 0


def test_nothing_more_is_sent_where_something_is_lost():
    assert quickly(lambda *_: True).asked <= 60


def test_a_longer_prompt_is_refused():
    assert longest_of("4k", quick=True) == 4_000
    with pytest.raises(SettingsError, match="--quick sends prompts of up to 8k"):
        longest_of("32k", quick=True)
