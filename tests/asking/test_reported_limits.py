"""What a server reports of itself is read before a prompt is sent: its context and its slots."""

from __future__ import annotations

import pytest

from needlemap.http import Sent
from needlemap.http.served import cache_tokens

QWEN = ("--model", "openai/qwen3-8b", "--tokenizer", "qwen3")
GRID = ("--depths", "50", "--repeats", "1", "--no-canary")
VLLM = ("--models", "qwen3-8b", "--lists", "2000")
LLAMA_CPP = ("--models", "qwen3-8b", "--owner", "llamacpp", "--slots", "1", "--slot-tokens", "2000")


@pytest.mark.parametrize("server", [VLLM, LLAMA_CPP], ids=["in its list", "in its /props"])
def test_lengths_that_cannot_fit_are_refused_with_those_that_do(wires, needlemap, server):
    wire = wires(*server)
    ended = needlemap.run(wire, *QWEN, *GRID, "--lengths", "500,2000,2001,9k", code=2)
    assert "a context of 2,000 tokens, prompt and answer: lengths 2,001, 9,000 do" in ended.stderr
    assert "Use --lengths 500,2000." in ended.stderr
    assert wire.log() == []


def test_a_seek_beyond_the_context_is_refused_with_the_ends_that_fit(wires, needlemap):
    wire = wires(*VLLM)
    ended = needlemap.run(wire, *QWEN, "--seek", "85", "--lengths", "500,9k", code=2)
    assert "length 9,000 does not fit. Use --lengths 500,2000." in ended.stderr
    assert wire.log() == []


def test_a_length_of_another_vocabulary_is_an_estimate_and_is_sent(wires, needlemap):
    wire = wires("--models", "m", "--lists", "500")
    ended = needlemap.run(wire, *GRID, "--lengths", "400,501")
    assert "note: The server reports a context of 500 tokens" in ended.stderr
    assert len(wire.log()) == 2


def test_a_length_that_fits_in_no_vocabulary_is_refused(wires, needlemap):
    """A server that cuts prompts without a word would have made a map of its own context."""
    wire = wires("--models", "m", "--lists", "2000")
    ended = needlemap.run(wire, *GRID, "--lengths", "500,2500,9k", code=2)
    assert "length 9,000 does not fit. Lengths here are not in its own tokens" in ended.stderr
    assert "Use --lengths 500,2500." in ended.stderr
    assert wire.log() == []


def test_of_a_router_s_models_the_one_that_answers_at_props_is_not_known(wires, needlemap):
    wire = wires(*LLAMA_CPP, "--models", "qwen3-8b,other")
    needlemap.run(wire, *QWEN, *GRID, "--lengths", "2001")
    assert len(wire.log()) == 1


@pytest.mark.parametrize(("models", "tokens"), [("qwen3-8b", 4_000), ("qwen3-8b,other", None)])
def test_what_a_router_caches_of_a_model_is_not_known(wires, models, tokens):
    wire = wires(*LLAMA_CPP, "--slots", "2", "--models", models)
    assert cache_tokens(wire.base_url, "qwen3-8b", Sent()) == tokens


def test_no_more_prompts_are_sent_at_a_time_than_the_server_has_slots(wires, needlemap):
    wire = wires("--models", "m", "--owner", "llamacpp", "--slots", "2")
    ended = needlemap.run(wire, *GRID, "--lengths", "300,400,500,600", "--concurrency", "4")
    assert "note: the server has 2 slots, so that many prompts are sent at a time" in ended.stderr
