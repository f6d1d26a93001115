"""Lanes: a walk cut into contiguous pieces, the longest as short as it can be."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import Lanes, count_useful_lanes, laned, make_lanes, ordered, speed_up

Walk = tuple[list[int], list[int]]


@st.composite
def walks(draw: st.DrawFn, most: int = 7) -> Walk:
    """Sizes of prompts, and what each shares with the one before."""
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=most))
    shared = [0]
    for left, right in pairwise(sizes):
        shared.append(draw(st.integers(0, min(left, right))))
    return sizes, shared


def computed(walk: Walk, start: int, stop: int) -> int:
    sizes, shared = walk
    return sizes[start] + sum(sizes[place] - shared[place] for place in range(start + 1, stop))


@given(walks(40), st.integers(1, 12))
def test_lanes_hold_each_prompt_once_and_in_order(walk, count):
    sizes, shared = walk
    lanes = make_lanes(sizes, shared, count)
    assert [place for start, stop in lanes.bounds for place in range(start, stop)] == list(
        range(len(sizes))
    )
    assert 1 <= len(lanes.bounds) <= count
    assert all(start < stop for start, stop in lanes.bounds)
    assert lanes.tokens == tuple(computed(walk, start, stop) for start, stop in lanes.bounds)


@given(walks(40), st.integers(1, 12))
def test_lanes_are_never_faster_than_their_number(walk, count):
    lanes = make_lanes(*walk, count)
    assert 0 < speed_up(*walk, lanes) <= len(lanes.bounds)
    assert speed_up(*walk, make_lanes(*walk, 1)) == 1


def test_as_many_lanes_are_useful_as_share_their_prompts_without_loss():
    apart = ([10] * 12, [0] * 12)  # nothing is shared, so nothing is lost
    assert count_useful_lanes(*apart, 12, 0.9) == 12
    assert count_useful_lanes(*apart, 5, 0.8) == 5  # 3 prompts at most in a lane: 12 / 3 of 5
    nearly_one = ([100] * 10, [0] + [99] * 9)
    assert count_useful_lanes(*nearly_one, 10, 0.9) == 1


@given(walks(40), st.integers(1, 12))
def test_the_loss_is_what_lanes_compute_beyond_a_single_one(walk, count):
    lanes = make_lanes(*walk, count)
    assert lanes.loss == sum(lanes.tokens) - computed(walk, 0, len(walk[0]))
    (alone,) = make_lanes(*walk, 1).tokens
    assert alone == computed(walk, 0, len(walk[0]))


@given(walks(), st.integers(1, 5))
def test_the_longest_lane_is_as_short_as_any_cutting_makes_it(walk, count):
    places = range(1, len(walk[0]))
    best = min(
        max(
            computed(walk, start, stop)
            for start, stop in zip((0, *inner), (*inner, len(walk[0])), strict=True)
        )
        for cuts in range(min(count, len(walk[0])))
        for inner in combinations(places, cuts)
    )
    assert max(make_lanes(*walk, count).tokens) == best


def test_no_prompts_are_no_lanes():
    assert make_lanes([], [], 4) == Lanes((), (), 0)
    assert make_lanes([], [], 4).idle == 0


def test_idle_is_the_share_of_time_that_lanes_wait():
    assert Lanes(((0, 1), (1, 2)), (100, 50), 0).idle == pytest.approx(0.25)


@pytest.mark.parametrize("mode", ["exact", "bins", "single", "cold"])
def test_a_run_is_cut_into_balanced_lanes(prepared, mode):
    experiment = prepared(lengths="400:1500:6", depths="0:100:6", mode=mode)
    _, lanes = laned(ordered(experiment.trials, mode), mode, 4)
    assert len(lanes.bounds) == 4
    assert lanes.bounds[-1][1] == len(experiment.trials)
    assert lanes.idle < 0.3
    assert (lanes.loss == 0) == (mode == "cold")
