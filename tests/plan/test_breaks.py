"""Cache breakpoints: they split a prompt where it parts from its neighbours, and change nothing in
it."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.models.anthropic import messages
from needlemap.plan import LEAST_TOKENS, broken, ordered, reused, with_breakpoints
from needlemap.prompts import Prompt

KINDS = {
    "english": {},
    "chinese": {"language": "chinese"},
    "several needles": {
        "task": "multi",
        "needles": ["The red key opens the shed.", "The shed holds the map."],
        "question": "What does the red key lead to?",
        "answer": "The map.",
    },
    "question first": {"question_position": "start"},
}


@pytest.fixture(scope="session")
def walk_of(prepared):
    """walk_of(kind, mode): prompts of 2,000 to 4,000 tokens in the order of their plan."""

    def walk(kind: str = "english", mode: str = "bins") -> list[Prompt]:
        experiment = prepared(lengths="2k:4k:4", depths="0:100:4", mode=mode, **KINDS[kind])
        return [trial.prompt for trial in ordered(experiment.trials, mode)]

    return walk


def break_tokens(prompt: Prompt) -> list[int]:
    """Tokens from the prompt's start to each of its breakpoints."""
    number = prompt.context[0]
    before = sum(len(span) for message in prompt.messages[:number] for span in message.spans)
    sizes = [len(span) for span in prompt.messages[number].spans]
    return [before + sum(sizes[: place + 1]) for place in prompt.breakpoints]


def same(one: Prompt, other: Prompt) -> bool:
    return (
        one.sha256 == other.sha256
        and one.ids.tolist() == other.ids.tolist()
        and one.context_text == other.context_text
        and [message.role for message in one.messages]
        == [message.role for message in other.messages]
        and (one.tokens, one.positions, one.needles)
        == (other.tokens, other.positions, other.needles)
    )


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4500), max_size=6), st.integers(0, 15), st.sampled_from(sorted(KINDS))
)
def test_a_broken_prompt_is_the_same_prompt(walk_of, points, place, kind):
    prompt = walk_of(kind)[place]
    found = broken(prompt, sorted(set(points)))
    assert same(found, prompt)
    number = prompt.context[0]
    start = sum(len(span) for message in prompt.messages[:number] for span in message.spans)
    stop = start + sum(len(span) for span in prompt.messages[number].spans)
    assert break_tokens(found) == sorted({point for point in points if start < point <= stop})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["exact", "bins"])
def test_breakpoints_lie_where_neighbours_part(walk_of, kind, mode):
    walk = walk_of(kind, mode)
    shared = [*reused(walk), 0]
    found = with_breakpoints(walk)
    for place, (prompt, before) in enumerate(zip(found, walk, strict=True)):
        assert same(prompt, before)
        points = {shared[place], shared[place + 1]}
        assert break_tokens(prompt) == sorted(point for point in points if point >= LEAST_TOKENS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_prompt_reads_what_the_one_before_wrote(walk_of, kind):
    """In bytes, as a provider compares them: the prefix to be read ends where one was written."""
    found = with_breakpoints(walk_of(kind))
    marked = [prefixes(prompt) for prompt in found]
    shared = reused(found)[1:]
    for common, (before, after) in zip(shared, pairwise(marked), strict=True):
        assert (common < LEAST_TOKENS) or before & after


def prefixes(prompt: Prompt) -> set[str]:
    """What a request asks to be kept: all text before the end of each marked block."""
    system, said = messages(prompt, cache=True)
    blocks = system + [block for message in said for block in message["content"]]
    texts = accumulate(block["text"] for block in blocks)
    return {text for text, block in zip(texts, blocks, strict=True) if "cache_control" in block}


def test_what_is_shorter_than_providers_keep_is_not_marked(walk_of):
    walk = walk_of()
    assert all(not prompt.breakpoints for prompt in with_breakpoints(walk, least_tokens=10**6))
    assert with_breakpoints([]) == []


GRID = (
    "--lengths",
    "2k:8k:6",
    "--depths",
    "0:100:6",
    "--mode",
    "bins",
    "--max-answer-tokens",
    "40",
)


@pytest.mark.parametrize(("lanes", "share"), [(1, 0.9), (3, 0.85)])
def test_most_of_what_the_plan_promises_is_read_from_an_anthropic_cache(
    needlemap, wire, lanes, share
):
    """A whole run, against a server that keeps exactly the prefixes that requests mark."""
    asking = ("--model", "anthropic/x", "--base-url", wire.root, "--tokenizer", "cl100k_base")
    flags = (*asking, *GRID, "--concurrency", lanes)
    (promise,) = [
        mode
        for mode in json.loads(needlemap("plan", *flags, "--json").stdout)["modes"]
        if mode["mode"] == "bins"
    ]
    assert promise["lanes"] == lanes
    assert promise["cached"] > 0.6 * promise["asked"]
    needlemap("run", *flags, "-o", "r")
    records = needlemap.records()
    assert len(records) == 36
    cached, asked = (
        sum(record[name] for record in records) for name in ("cached_tokens", "prompt_tokens")
    )
    assert cached / asked >= share * promise["cached"] / promise["asked"]
