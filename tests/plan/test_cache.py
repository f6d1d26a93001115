"""The simulated prefix cache, beside one that keeps every prefix as the tokens that it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import Lanes, make_lanes, ordered, reused, walk_order
from needlemap.plan.summary import block_keys, cached_tokens, interleaved
from needlemap.prompts import Message, Prompt
from needlemap.text.tokens import TokenText


def brute_force(
    prompts: Sequence[Sequence[int]], order: Iterable[int], capacity_tokens: int, block: int
) -> int:
    """A cache of whole prefixes, each with the time of its last use; of one prompt the shorter are
    newer."""
    held: dict[tuple[int, ...], int] = {}
    hits = clock = 0
    for place in order:
        ids = tuple(prompts[place])
        prefixes = [ids[: block * count] for count in range(1, len(ids) // block + 1)]
        found = 0
        while found < len(prefixes) and prefixes[found] in held:
            found += 1
        hits += found * block
        for prefix in reversed(prefixes):
            clock += 1
            held[prefix] = clock
        while len(held) * block > capacity_tokens:
            del held[min(held, key=lambda prefix: held[prefix])]
    return hits


def as_prompt(ids: Sequence[int]) -> Prompt:
    array = np.array(ids, np.int32)
    text = TokenText(b"x" * len(ids), array, np.arange(len(ids) + 1, dtype=np.int64))
    return Prompt((Message("user", (text.span(),)),))


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=12),
    st.integers(0, 60),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_it_serves_what_a_brute_force_cache_serves(sequences, capacity, block, lanes):
    walk = [
        as_prompt(sequences[place]) for place in walk_order([as_prompt(ids) for ids in sequences])
    ]
    ids = [prompt.ids.tolist() for prompt in walk]
    sizes, shared = [len(prompt) for prompt in ids], reused(walk)
    order = list(interleaved(make_lanes(sizes, shared, lanes)))
    found = cached_tokens(block_keys(sizes, shared, block), order, capacity, block)
    assert found == brute_force(ids, order, capacity, block)


@pytest.mark.parametrize("capacity", [500, 1000, 2000, 4000, 10**6])
@pytest.mark.parametrize("lanes", [1, 3])
def test_it_serves_a_real_run_as_brute_force_does(prepared, capacity, lanes):
    trials = prepared(lengths="300:900:4", depths="0:100:5", mode="bins", repeats=2).trials
    walk = [trial.prompt for trial in ordered(trials, "bins")]
    ids = [prompt.ids.tolist() for prompt in walk]
    sizes, shared = [len(prompt) for prompt in ids], reused(walk)
    order = list(interleaved(make_lanes(sizes, shared, lanes)))
    found = cached_tokens(block_keys(sizes, shared, 16), order, capacity, 16)
    assert found == brute_force(ids, order, capacity, 16)


def test_a_cache_with_room_for_all_serves_all_that_a_walk_shares_in_whole_blocks():
    keys = block_keys([8, 9, 6], [0, 7, 5], 2)
    assert cached_tokens(keys, range(3), 10**6, 2) == 6 + 4


def test_a_prompt_longer_than_the_cache_leaves_its_beginning_in_it():
    """Its last blocks go first, as in vLLM: they are of no use without the first."""
    keys = block_keys([100, 100], [0, 100], 10)
    assert cached_tokens(keys, range(2), 40, 10) == 40


def test_a_cache_of_nothing_serves_nothing():
    assert cached_tokens(block_keys([100, 100], [0, 100], 10), range(2), 0, 10) == 0


def test_lanes_take_turns():
    lanes = Lanes(((0, 3), (3, 4), (4, 6)), (0, 0, 0), 0)
    assert list(interleaved(lanes)) == [0, 3, 4, 1, 5, 2]
    assert list(interleaved(Lanes((), (), 0))) == []
