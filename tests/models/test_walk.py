"""The walk over a prefix tree, on a toy engine whose every logit depends on all tokens before
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.errors import Failure, Unmeasured
from needlemap.models.walk import Engine, Ids, Logits, Walk, Walked, greedy
from needlemap.plan import ordered
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

WORDS = 50
STOP = 7


class Chain(Engine):
    """A "model" that is a chain of hashes: crop it wrongly, and every later token is another one.

    room: tokens at which its memory ends, as long as it holds `held` or more. broken: the crop does
    nothing. croppable False: it keeps nothing.
    """

    def __init__(self, *, room: int = 10**9, broken: bool = False, croppable: bool = True) -> None:
        self.states: list[int] = [1]
        self.computed = 0
        self._room, self._broken, self._croppable = room, broken, croppable

    def extend(self, ids: Ids) -> Logits:
        if len(self.states) + len(ids) > self._room:
            raise Unmeasured(Failure.MEMORY, "no memory")
        for token in ids.tolist():
            self.states.append(hash((self.states[-1], token)))
        self.computed += len(ids)
        return self._logits(self.states[-1])

    def crop(self, length_tokens: int) -> int:
        assert length_tokens < len(self.states)
        kept = length_tokens if self._croppable else 0
        if not self._broken or not kept:
            del self.states[kept + 1 :]
        return kept

    @staticmethod
    def _logits(state: int) -> Logits:
        return np.random.default_rng(abs(state)).random(WORDS, np.float32)


def ids(*tokens: int) -> Ids:
    return np.array(tokens, np.int32)


def alone(prompt: Ids, most: int = 5, *stops: int) -> tuple[int, ...]:
    return Walk(Chain(), stops).ask(prompt, most).answer


def in_order(lengths: str, depths: str, mode: str, repeats: int = 1, **options: Any) -> list[Trial]:
    grid = {"lengths": lengths, "depths": depths, "repeats": repeats, "mode": mode}
    made = prepare(
        configure(None, {**grid, "max_answer_tokens": 20, "tokenizer": "cl100k_base", **options})
    )
    return ordered(made.trials, mode)


def nodes(prompts: list[Ids]) -> int:
    """Distinct prefixes, by brute force."""
    return len(
        {prompt[:stop].tobytes() for prompt in prompts for stop in range(1, len(prompt) + 1)}
    )


def test_what_two_prompts_share_is_computed_once():
    walk = Walk(Chain(), [])
    assert walk.ask(ids(1, 2, 3, 4), 2) == Walked(alone(ids(1, 2, 3, 4), 2), 4, 0, "length")
    second = walk.ask(ids(1, 2, 9), 2)
    assert (second.computed, second.cached) == (1, 2)
    assert second.answer == alone(ids(1, 2, 9), 2)


def test_the_same_prompt_again_computes_nothing():
    engine = Chain()
    walk = Walk(engine, [])
    first = walk.ask(ids(1, 2, 3), 1)
    again = walk.ask(ids(1, 2, 3), 1)
    assert again.answer == first.answer
    assert (again.computed, again.cached) == (0, 3)
    assert engine.computed == 3


def test_the_beginning_of_the_prompt_before_computes_one_token_for_its_logits():
    walk = Walk(Chain(), [])
    walk.ask(ids(1, 2, 3, 4), 3)
    shorter = walk.ask(ids(1, 2), 3)
    assert (shorter.computed, shorter.cached) == (1, 1)
    assert shorter.answer == alone(ids(1, 2), 3)


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it():
    first = alone(ids(4, 4), 1)[0]
    walked = Walk(Chain(), [first]).ask(ids(4, 4), 5)
    assert (walked.answer, walked.finish) == ((), "stop")


def test_a_cache_that_cannot_be_cropped_starts_from_nothing_each_time():
    engine = Chain(croppable=False)
    walk = Walk(engine, [])
    assert [walk.ask(ids(1, 2, 3), 2).cached for _ in range(2)] == [0, 0]
    assert engine.states == [1]


def test_a_crop_that_does_nothing_is_caught():
    walk = Walk(Chain(broken=True), [])
    walk.ask(ids(1, 2, 3), 3)
    assert walk.ask(ids(1, 2, 4), 3).answer != alone(ids(1, 2, 4), 3)


def test_out_of_memory_empties_the_cache_and_the_walk_goes_on():
    walk = Walk(Chain(room=6), [])
    walk.ask(ids(1, 2), 2)
    with pytest.raises(Unmeasured) as caught:
        walk.ask(ids(1, 2, 3, 4, 5, 6, 7), 2)
    assert caught.value.failure is Failure.MEMORY
    next_one = walk.ask(ids(1, 2, 8), 2)
    assert (next_one.cached, next_one.answer) == (0, alone(ids(1, 2, 8), 2))


class Cluttered(Chain):
    """Runs out of memory once: what it held before is in the way."""

    def extend(self, ids: Ids) -> Logits:
        if len(self.states) > 2 and len(ids) > 2:
            raise Unmeasured(Failure.MEMORY, "no memory")
        return super().extend(ids)


def test_memory_that_other_prompts_held_is_freed_and_the_prompt_asked_again():
    walk = Walk(Cluttered(), [])
    walk.ask(ids(1, 2), 1)
    again = walk.ask(ids(1, 2, 3, 4, 5), 2)
    assert (again.cached, again.answer) == (0, alone(ids(1, 2, 3, 4, 5), 2))


class Interrupting:
    """Stops in the middle of an answer."""

    def __init__(self) -> None:
        self.left = 2

    def __call__(self, logits: Logits) -> int:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return greedy(logits)


def test_an_interrupted_answer_leaves_no_half_made_cache():
    walk = Walk(Chain(), [])
    with pytest.raises(KeyboardInterrupt):
        walk.ask(ids(1, 2, 3), 5, Interrupting())
    assert walk.ask(ids(1, 2, 3), 5).answer == alone(ids(1, 2, 3), 5)


def test_a_given_answer_is_weighed_and_leaves_the_cache_as_it_was():
    walk = Walk(Chain(), [])
    said = walk.ask(ids(1, 2, 3), 4).answer
    weighed = walk.weigh(ids(1, 2, 3), ids(*said))
    assert weighed.greedy
    assert (weighed.computed, weighed.cached) == (0, 3)
    assert len(weighed.logprobs) == 4
    assert all(-np.log(WORDS) - 1 < value < 0 for value in weighed.logprobs)
    assert not walk.weigh(ids(1, 2, 3), ids(*said[:-1], (said[-1] + 1) % WORDS)).greedy
    assert walk.ask(ids(1, 2, 3), 4).answer == said


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=12))
def test_any_prompts_in_any_order_get_the_answers_they_get_alone(prompts: list[list[int]]) -> None:
    walk = Walk(Chain(), [STOP])
    for prompt in prompts:
        assert walk.ask(ids(*prompt), 4).answer == alone(ids(*prompt), 4, STOP)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=20))
def test_in_sorted_order_each_node_is_computed_once(prompts: list[list[int]]) -> None:
    walk = Walk(Chain(), [])
    asked = [ids(*prompt) for prompt in sorted(prompts)]
    assert sum(walk.ask(prompt, 1).computed for prompt in asked) == nodes(asked)


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(180, 900), min_size=1, max_size=5, unique=True),
    depths=st.lists(st.integers(0, 100), min_size=1, max_size=6, unique=True),
    mode=st.sampled_from(["exact", "bins"]),
    repeats=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_in_the_plans_order_each_node_of_a_run_is_computed_once(
    lengths: list[int], depths: list[int], mode: str, repeats: int, seed: int
) -> None:
    grid = (",".join(map(str, sorted(values))) for values in (lengths, depths))
    trials = in_order(*grid, mode, repeats, seed=seed)
    walk = Walk(Chain(), [])
    prompts = [trial.prompt.ids for trial in trials]
    assert sum(walk.ask(prompt, 1).computed for prompt in prompts) == nodes(prompts)
