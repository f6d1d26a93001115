"""Log-probabilities of real servers, against transformers on the same weights: of answers, and of
given ones.

In nats, of every token and the likeliest other. llama.cpp keeps keys and values in 16 bits unless
it is told otherwise: TOLERANCE. In 32 bits sums differ in their order: CLOSE.
"""

from __future__ import annotations

import asyncio

import pytest

from needlemap.models import Decoding
from needlemap.models.openai import OpenAIModel
from needlemap.prompts import TEXT, Prompt

pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")

from needlemap.models.hf import HuggingFaceModel

TOLERANCE, CLOSE = 0.05, 0.0005
EXACT = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
SIZES = (
    100,
    200,
    300,
    400,
    500,
    600,
    800,
    1000,
    2500,
)  # characters; the last are beyond what it was trained for
GIVEN = "The magic number for Oslo is 6166."
GRID = ("--lengths", "64,128,256,700", "--depths", "0,50,100")
WANTED = Decoding(max_answer_tokens=20, timeout_s=60, logprobs=True)


@pytest.fixture
def prompts(shared):
    """Essays with a needle in their midst, as texts, which each side tokenises: in chat, or
    plain."""

    def build(chat):
        essays = sorted((shared / "data" / "PaulGrahamEssays").glob("*.txt"))
        question, found = "What is the magic number for Oslo?", []
        for size, essay in zip(SIZES, essays, strict=False):
            text = essay.read_text("utf-8")
            whole = f"{text[: size // 2]} {GIVEN} {text[size // 2 : size]}\n\n{question}\n"
            found.append(Prompt.plain([("user", whole) if chat else (TEXT, f"{whole}The answer:")]))
        return found

    return build


@pytest.fixture
def both(asking):
    """What a server and transformers think of their own answers, or of a given one."""

    def ask(served, prompts, *, chat=True, given=False):
        there = OpenAIModel(
            served.model, base_url=served.base_url, api="chat" if chat else "completions"
        )
        here = HuggingFaceModel(
            str(asking.checkpoint), device="cpu", dtype="float32", base=not chat
        )
        return [asyncio.run(answers(model, prompts, given)) for model in (there, here)]

    return ask


async def answers(model, prompts, given):
    try:
        if given:
            return [await model.force(prompt, GIVEN, WANTED) for prompt in prompts]
        return [await model.answer(prompt, WANTED) for prompt in prompts]
    finally:
        await model.close()


def largest(there, here):
    """The largest difference up to the first token that differs, of tokens and of the likeliest
    others."""
    worst = [0.0, 0.0]
    for one, other in zip(there, here, strict=True):
        assert one.logprobs.start == other.logprobs.start == other.prompt_tokens
        for place, pair in enumerate(zip(one.logprobs.tokens, other.logprobs.tokens, strict=False)):
            for column, name in enumerate(("nats", "other_nats")):
                difference = (
                    getattr(one.logprobs, name)[place] - getattr(other.logprobs, name)[place]
                )
                worst[column] = max(worst[column], abs(difference))
            if pair[0] != pair[1]:  # a stop token has no text there
                break
    print(f"largest difference: {worst[0]:.6f} and {worst[1]:.6f} nats")
    return max(worst)


@pytest.mark.parametrize(("options", "tolerance"), [((), TOLERANCE), (EXACT, CLOSE)])
def test_an_answers_log_probabilities_are_those_of_transformers(
    llama, prompts, both, options, tolerance
):
    there, here = both(llama(1, 2048, *options), prompts(chat=True))
    assert {answer.logprobs.way for answer in there} == {"generated"}
    assert sum(len(answer.logprobs.tokens) for answer in there) > 100
    assert largest(there, here) < tolerance


@pytest.mark.parametrize("chat", [True, False])
def test_a_given_answer_is_weighed_step_by_step_as_transformers_weighs_it(
    llama, prompts, both, chat
):
    there, here = both(llama(1, 2048, *EXACT), prompts(chat), chat=chat, given=True)
    assert {answer.logprobs.way for answer in there} == {"steps"}
    for one, other in zip(there, here, strict=True):
        assert one.logprobs.tokens == other.logprobs.tokens
        assert one.forced.greedy == other.forced.greedy
    assert largest(there, here) < CLOSE
    assert min(min(answer.logprobs.nats) for answer in here) < -1, "unlikely tokens too"


def test_they_change_no_answer(llama, asking):
    served, exact = llama(), ("--tokenizer", asking.checkpoint, "--concurrency", 1)
    _, plain = asking.run(served, *GRID, *exact, out="plain")
    _, told = asking.run(served, *GRID, *exact, "--logprobs", out="told")
    assert [row["answer"] for row in plain] == [row["answer"] for row in told]
    assert [row["key"] for row in plain] == [row["key"] for row in told]
    assert [row["logprobs"] for row in plain] == [None] * len(plain)
    assert {len(row["logprobs"]["nats"]) - row["completion_tokens"] for row in told} == {0}


def test_a_run_scored_by_logprob_says_how_it_was_weighed(llama, asking):
    exact = ("--tokenizer", asking.checkpoint, "--concurrency", 2)
    _, records = asking.run(llama(2), *GRID, *exact, "--scorer", "logprob")
    for row in records:
        assert (row["logprobs"]["way"], row["answer"]) == ("steps", None)
        assert row["scorer"]["native"] == pytest.approx(
            sum(row["logprobs"]["nats"]) / row["scorer"]["why"]["tokens"]
        )
        assert row["usage"]["requests"] == row["scorer"]["why"]["tokens"]


def test_recovery_comes_of_three_passes_of_each_item(llama, asking):
    exact = ("--tokenizer", asking.checkpoint, "--concurrency", 1, "--scorer", "recovery")
    _, records = asking.run(llama(), "--lengths", "128", "--depths", "0,100", *exact)
    assert len(records) == 2
    for row in records:
        whole, (bare, oracle) = row["logprobs"], row["beside"]
        assert (whole["way"], row["answer"]) == ("steps", None)
        assert (bare["role"], oracle["role"]) == ("bare", "oracle")
        assert len(whole["nats"]) == len(bare["nats"]) == len(oracle["nats"])
        gain, most = row["scorer"]["ratio"]
        assert (gain, most) == (row["scorer"]["why"]["gain"], row["scorer"]["why"]["oracle_gain"])
        assert gain > 1, "the model was trained to find this needle"
    bare, oracle = ([row["beside"][at]["tokens"] for row in records] for at in (0, 1))
    assert 0 < sum(oracle) < sum(bare) == max(bare), "both depths share them, so each is asked once"


def test_vllm_repeats_a_given_answer_as_transformers_weighs_it(vllm, prompts, both):
    there, here = both(vllm, prompts(chat=True), given=True)
    assert {answer.logprobs.way for answer in there} == {"echo"}
    assert largest(there, here) < TOLERANCE


def test_vllm_tells_an_answers_log_probabilities(vllm, prompts, both):
    assert largest(*both(vllm, prompts(chat=True))) < TOLERANCE


def test_a_server_that_cannot_weigh_ends_the_run_in_words(transformers_serve, asking):
    flags = ("--tokenizer", asking.checkpoint, "--scorer", "logprob")
    ended, _ = asking.run(transformers_serve, *GRID, *flags, code=2)
    assert "does not say how likely a given answer is" in ended.stderr


def test_a_server_that_leaves_them_out_is_told_once_and_scored_all_the_same(
    transformers_serve, asking
):
    ended, records = asking.run(
        transformers_serve, *GRID, "--tokenizer", asking.checkpoint, "--logprobs"
    )
    assert ended.stderr.count("sends no log-probabilities: records lack them") == 1
    assert {row["logprobs"] for row in records} == {None}
    assert all(row["score"] == 1 for row in records if row["length_tokens"] <= 256)
