"""A quick check: a few prompts, which show a total loss and say what they do not show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks"))
from needlemap.errors import SettingsError
from needlemap.servers.check import Answers, Ask, Options, Schedule, judge
from needlemap.servers.check import Reply as Answer
from needlemap.servers.check.command import longest_of
from needlemap.servers.check.judge import Checked
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


def judged(options: Options, is_lost: Callable[[Ask], bool]) -> Checked:
    schedule, answers = Schedule(options, seed=7), Answers()
    for ask in schedule.cells():
        answers.add(Answer.of(ask, "Not said." if is_lost(ask) else ask.secret))
    return judge(schedule, answers)


@pytest.mark.parametrize(
    ("options", "is_lost"),
    [
        (QUICK, lambda _: False),
        (replace(QUICK, require=("2k",)), lambda ask: ask.length > 4_000),
    ],
)
def test_the_line_and_the_table_name_the_same_loss_that_is_ruled_out(options, is_lost):
    """The table had 16 points, and the line 17; or the line had the 100 of a size that is lost and
    not required."""
    checked = judged(options, is_lost)
    assert checked.verdict.word == "PASS"
    assert checked.findings[0].sizes[0].upper == pytest.approx(16.11, abs=0.01)
    assert checked.findings[0].excludes == "17 points"
    assert "(a loss of 17 points or more is ruled out at each)" in checked.verdict.claim


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
