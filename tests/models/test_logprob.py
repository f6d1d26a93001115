"""How likely the reference answer is."""

from __future__ import annotations

import asyncio
from math import exp, log

import pytest

from needlemap.errors import SettingsError
from needlemap.models import Answer, Forced
from needlemap.models.judge import LEAST_NATS, Logprob
from needlemap.settings.reading import configure
from needlemap.tasks import Reference
from needlemap.trials.build import prepare


def weigh(forced):
    return Logprob().weigh(Answer("", forced=forced), Reference("Jack"))


def test_the_share_is_the_geometric_mean_probability_of_the_tokens():
    score = weigh(Forced((log(0.5), log(0.125)), False))
    assert score.share == pytest.approx(0.25)
    assert score.native == pytest.approx(log(0.25))
    assert score.why == {"greedy_match": False, "tokens": 2}


def test_a_certain_answer_is_1_and_an_impossible_one_0():
    assert weigh(Forced((0.0, 0.0), True)).share == 1.0
    worst = weigh(Forced((-1e6,), False))
    assert (worst.native, worst.share) == (LEAST_NATS, exp(LEAST_NATS))


def test_a_text_has_no_probabilities():
    with pytest.raises(SettingsError, match="use it in a run, with --model hf/PATH"):
        asyncio.run(Logprob().score("Jack", Reference("Jack")))


def test_it_takes_no_options():
    with pytest.raises(SettingsError, match="Unknown option 'mean' of Logprob"):
        Logprob(mean="sum")


def test_it_is_a_weigher():
    assert Logprob().passes == ("whole",)


def test_a_model_that_gives_no_probabilities_is_refused_before_anything_is_built():
    settings = configure(
        None, {"model": "anthropic/claude", "scorer": "logprob", "tokenizer": "gpt-4"}
    )
    with pytest.raises(
        SettingsError, match=r"which 'anthropic/claude' does not give\. Use --model hf/PATH"
    ):
        prepare(settings)
