"""The order of a run: a single cache that is cropped and extended computes each distinct token
once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from needlemap.plan import laned, ordered, reused
from needlemap.plan import shared as shared_in
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

SHORT: dict[str, Any] = {"max_answer_tokens": 10, "repeats": 2}


def trials(**given: Any) -> tuple[Trial, ...]:
    return prepare(configure(None, SHORT | given)).trials


def computed(walk: Iterable[Trial]) -> int:
    """Tokens that one cache computes, asked in this order."""
    ids = [np.empty(0, np.int32), *(trial.prompt.ids for trial in walk)]
    return sum(len(prompt) - shared(before, prompt) for before, prompt in pairwise(ids))


def shared(left: np.ndarray, right: np.ndarray) -> int:
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size


def test_the_walk_saves_what_the_grids_order_wastes():
    found = trials(lengths="200:1200:6", depths="0:100:6", repeats=1)
    assert computed(ordered(found, "exact")) < 0.75 * computed(found)


def test_the_walk_does_not_depend_on_the_order_it_is_given():
    found = trials(lengths=[300, 500], depths=[0, 50, 100])
    assert ordered(found, "exact") == ordered(reversed(found), "exact")


def test_no_prompt_shares_more_than_it_has():
    """Of two equal prompts the spans' tokens add up to more than the joined text has: one lane
    became two."""
    grid = {"lengths": [130, 150, 170, 200, 260], "depths": "0:100:11", "repeats": 1, "seed": 2}
    walk = ordered(trials(**grid, ask_twice=99), "exact")
    sizes = [trial.prompt.tokens for trial in walk]
    apart = reused([trial.prompt for trial in walk])
    assert any(common > size for common, size in zip(apart, sizes, strict=True))
    assert all(common <= size for common, size in zip(shared_in(walk, "exact"), sizes, strict=True))
    assert len(laned(walk, "exact", 1)[1].bounds) == 1


def test_each_trial_knows_what_a_cache_should_hold_of_it():
    walk = ordered(trials(lengths=[300, 500], depths=[0, 50, 100]), "exact")
    asked, lanes = laned(walk, "exact", 2)
    told = [trial.shared_tokens for trial in asked]
    common = shared_in(walk, "exact")
    starts = {start for start, _ in lanes.bounds}
    assert len(starts) == 2
    assert told == [0 if place in starts else tokens for place, tokens in enumerate(common)]
    assert sum(told) == sum(trial.prompt.tokens for trial in walk) - sum(lanes.tokens)
    assert {trial.shared_tokens for trial in laned(walk, "cold", 2)[0]} == {None}


def test_asked_one_by_one_each_trial_still_shares_with_the_one_before():
    grid = trials(lengths=[300, 500], depths=[0, 50, 100], repeats=1)
    told = [trial.shared_tokens for trial in laned(grid, "single", 1)[0]]
    found = [shared(left.prompt.ids, right.prompt.ids) for left, right in pairwise(grid)]
    assert told == pytest.approx(
        [0, *found], abs=1
    )  # a seam may be cut otherwise in the joined text
    assert sum(found) > 300


def test_nothing_is_promised_across_a_length_that_a_model_turns_its_positions_at():
    walk = ordered(trials(lengths="600:1200:3", depths="0:100:3", tokenizer="cl100k_base"), "exact")
    sizes = [trial.prompt.asked_tokens for trial in walk]
    common, apart = (
        shared_in(walk, "exact"),
        shared_in(walk, "exact", lambda tokens: int(tokens > 900)),
    )
    assert sum(apart) < sum(common)
    for place, (before, size) in enumerate(pairwise(sizes), 1):
        assert apart[place] == (common[place] if (before > 900) == (size > 900) else 0)
    assert shared_in(walk, "exact", lambda _: None) == [0] * len(walk)


def test_prompts_that_serve_each_other_are_walked_together():
    asked = trials(lengths="600:1200:3", depths="0:100:3", tokenizer="cl100k_base")

    def side(tokens: int) -> int:
        return int(tokens > 900)

    walk = ordered(asked, "exact", side)
    assert sum(shared_in(walk, "exact", side)) > sum(
        shared_in(ordered(asked, "exact"), "exact", side)
    )
    assert {trial.key for trial in walk} == {trial.key for trial in asked}
