"""Recovery: how much of what a needle adds is left in a long prompt."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Forced, Logprobs
from needlemap.tasks import Reference
from needlemap.training.scorer import Recovery, places_of_words

REFERENCE = Reference("The code is 4711.", ("4711",))
TOKENS = ("The", " code", " is", " 47", "11", ".")


def given(value, rest=-0.1, best=None):
    """An answer whose value's two tokens have so many nats each."""
    nats = (rest, rest, rest, value, value, rest)
    others = (-9.0,) * 3 + ((best if best is not None else -9.0),) * 2 + (-9.0,)
    told = Logprobs(TOKENS, nats, (" x",) * 6, others, "walk")
    return Answer("", forced=Forced(nats, best is None), logprobs=told)


def weighed(whole, bare, oracle, **more):
    answer = given(whole, **more)
    answer = Answer(
        "",
        forced=answer.forced,
        logprobs=answer.logprobs,
        beside={"bare": given(bare, rest=-3.0), "oracle": given(oracle)},
    )
    return Recovery().weigh(answer, REFERENCE)


def test_gain_is_of_the_values_own_tokens_and_recovery_its_share_of_the_oracles():
    score = weighed(-4.0, -6.0, -1.0)
    assert (score.native, score.ratio, score.share) == (2.0, (2.0, 5.0), 0.4)
    assert score.why == {"gain": 2.0, "oracle_gain": 5.0, "first_choice": True, "tokens": 2}


def test_a_needle_that_harms_recovers_nothing_and_its_sum_says_by_how_much():
    score = weighed(-7.0, -6.0, -1.0)
    assert (score.share, score.ratio) == (0.0, (-1.0, 5.0))


def test_more_than_the_oracle_is_all():
    assert weighed(-0.5, -6.0, -1.0).share == 1.0


def test_where_the_oracle_gains_nothing_there_is_no_score_and_the_reason_says_so():
    with pytest.raises(Unmeasured, match="there is nothing to recover") as failed:
        weighed(-4.0, -6.0, -6.005)
    assert failed.value.failure is Failure.ORACLE


def test_accuracy_is_that_each_token_of_the_value_is_the_first_choice():
    assert weighed(-4.0, -6.0, -1.0, best=-3.9).why["first_choice"] is False
    assert weighed(-4.0, -6.0, -1.0, best=-4.0).why["first_choice"] is False
    assert weighed(-4.0, -6.0, -1.0, best=-4.1).why["first_choice"] is True


def test_tokens_that_spell_no_text_all_count():
    assert places_of_words(["\ufffd", "\ufffd"], ["杰克"]) == []
    assert places_of_words(["ab", "c"], ["BC"]) == [0, 1]


def test_a_text_has_no_probabilities():
    with pytest.raises(SettingsError, match="reads probabilities"):
        asyncio.run(Recovery().score("Jack", REFERENCE))
