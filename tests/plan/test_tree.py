"""The prefix tree: what prompts share, and the walk that computes each of its nodes once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import ordered, parting, reused, shared_tokens, walk_order
from needlemap.prompts import Message, Prompt
from needlemap.text.tokens import Span, TokenText


def text(*ids: int) -> TokenText:
    return TokenText(
        b"x" * len(ids), np.array(ids, np.int32), np.arange(len(ids) + 1, dtype=np.int64)
    )


# The second and third hold the same tokens as the first, so that prompts agree beyond what their
# spans show.
TEXTS = (text(0, 1, 0, 0, 1, 1, 0, 1), text(0, 1, 0, 0), text(1, 1, 0, 1), text(1), text(2, 0))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    source = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(source)))
    return source.span(start, draw(st.integers(start, len(source))))


MESSAGES = st.lists(spans(), min_size=1, max_size=5).map(
    lambda found: Message("user", tuple(found))
)
PROMPTS = st.lists(MESSAGES, min_size=1, max_size=2).map(lambda found: Prompt(tuple(found)))


@given(PROMPTS, PROMPTS)
def test_prompts_part_where_their_ids_do(left, right):
    ours, theirs = left.ids.tolist(), right.ids.tolist()
    alike = [one == other for one, other in zip(ours, theirs, strict=False)]
    shared = alike.index(False) if False in alike else len(alike)
    assert parting(left, right) == (shared, (ours > theirs) - (ours < theirs))
    assert shared_tokens(left, right) == shared_tokens(right, left) == shared


@given(st.lists(PROMPTS, max_size=12))
def test_a_walk_computes_each_node_once_and_keeps_equal_prompts_in_order(nodes, prompts):
    order = walk_order(prompts)
    assert sorted(order) == list(range(len(prompts)))
    walk = [prompts[place] for place in order]
    sizes = [len(prompt.ids) for prompt in walk]
    assert sum(sizes) - sum(reused(walk)) == nodes(prompt.ids.tolist() for prompt in prompts)
    for (first, second), (one, other) in zip(pairwise(order), pairwise(walk), strict=True):
        assert first < second or one.ids.tolist() != other.ids.tolist()


def test_the_first_prompt_reuses_nothing():
    assert reused([]) == []
    assert reused([Prompt((Message("user", (TEXTS[0].span(),)),))] * 2) == [0, 8]


MULTI = {
    "task": "multi",
    "needles": ["The red key opens the shed.", "The shed holds the map."],
    "question": "What does the red key lead to?",
    "answer": "The map.",
}
RUNS = {
    "plain": {},
    "repeats": {"repeats": 3},
    "repeats of one order of documents": {"repeats": 2, "order": "listed"},
    "several needles": MULTI,
    "question first": {"question_position": "start"},
    "Chinese": {"language": "chinese"},
    "Chinese, question first, repeats": {
        "language": "chinese",
        "question_position": "start",
        "repeats": 2,
    },
}


@pytest.mark.parametrize(("mode", "fed"), [("exact", "text"), ("bins", "text"), ("exact", "ids")])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_computes_each_node_once_and_asks_every_cell_once(
    prepared, fed_ids, nodes, mode, name, fed
):
    size = {"lengths": "400:900:4"} if fed == "text" else {"lengths": "900:1500:4"}
    experiment = prepared(
        mode=mode, depths="0:100:5", **size, **RUNS[name], **(fed_ids if fed == "ids" else {})
    )
    walk = ordered(experiment.trials, mode)
    prompts = [trial.prompt for trial in walk]
    computed = sum(len(prompt.ids) for prompt in prompts) - sum(reused(prompts))
    assert computed == nodes(prompt.ids.tolist() for prompt in prompts)
    asked = sorted((trial.cell, trial.repeat) for trial in walk)
    assert len(set(asked)) == len(asked)
    repeats = range(experiment.settings.repeats)
    assert asked == sorted((cell, repeat) for cell in experiment.grid.cells for repeat in repeats)


def test_repeats_with_other_documents_share_no_haystack(prepared):
    walk = ordered(prepared(lengths="400:900:4", depths="0:100:5", repeats=3).trials, "exact")
    across = [
        shared_tokens(one.prompt, other.prompt)
        for one, other in pairwise(walk)
        if one.repeat != other.repeat
    ]
    head = (
        len(walk[0].prompt.messages[0].spans[0]) + 10
    )  # the template's, and a needle's first words
    assert across
    assert max(across) <= head


@pytest.mark.parametrize("mode", ["single", "cold"])
def test_modes_that_share_nothing_keep_the_order_of_the_grid(prepared, mode):
    experiment = prepared(lengths="400:900:3", depths="0:100:3", mode=mode)
    assert tuple(ordered(experiment.trials, mode)) == experiment.trials


def test_cold_prompts_part_before_their_haystack(prepared):
    trials = prepared(lengths="400:900:3", depths="0:100:3", mode="cold").trials
    heads = {trial.prompt.messages[0].content.splitlines()[0] for trial in trials}
    assert len(heads) == len(trials)
