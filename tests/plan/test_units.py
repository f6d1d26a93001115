"""A walk cut into work units."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import units
from needlemap.plan.lanes import make_lanes
from needlemap.plan.units import PER_LANE, Unit, make_units, next_unit


def test_units_are_cut_between_chains_where_nothing_is_computed_again():
    chain = [10, 12, 14]
    cut = make_units(chain * 16, [0, 10, 12] * 16, 1)
    assert [unit.start for unit in cut] == list(range(0, 48, 6))
    assert {unit.tokens for unit in cut} == {28}


def test_lanes_are_those_of_the_plan_each_of_several_units():
    sizes, shared = [1000] * 400, [0] + [900] * 399
    cut = make_units(sizes, shared, 8)
    lanes = make_lanes(sizes, shared, 8).bounds
    assert {unit.lane for unit in cut} == set(range(8))
    for lane, (start, stop) in enumerate(lanes):
        mine = [unit for unit in cut if unit.lane == lane]
        assert (mine[0].start, mine[-1].stop) == (start, stop)
        assert 4 <= len(mine) <= PER_LANE


def test_nothing_is_no_unit():
    assert make_units([], [], 4) == ()


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=9))
    shared = [0] + [draw(st.integers(0, min(pair))) for pair in pairwise(sizes)]
    return sizes, shared, draw(st.integers(max(sizes), 60))


@given(walks())
def test_no_other_cut_computes_less_again(walk):
    sizes, shared, most = walk
    starts = units._starts(sizes, shared, most)
    assert cost(sizes, shared, starts, most) == min(
        found
        for count in range(len(sizes))
        for cuts in combinations(range(1, len(sizes)), count)
        if (found := cost(sizes, shared, [0, *cuts], most)) is not None
    )


def cost(sizes: list[int], shared: list[int], starts: list[int], most: int) -> tuple[int, int] | None:
    """Tokens computed again, and units; None where a unit is too large."""
    for start, stop in zip(starts, [*starts[1:], len(sizes)], strict=True):
        if sizes[start] + sum(sizes[i] - shared[i] for i in range(start + 1, stop)) > most:
            return None
    return sum(shared[start] for start in starts), len(starts)


@given(walks(), st.integers(1, 4))
def test_units_hold_every_prompt_once_and_say_what_they_compute(walk, workers):
    sizes, shared, _ = walk
    cut = make_units(sizes, shared, workers)
    assert [place for unit in cut for place in range(unit.start, unit.stop)] == list(range(len(sizes)))
    lost = sum(shared[unit.start] for unit in cut)
    assert sum(unit.tokens for unit in cut) == sum(sizes) - sum(shared) + lost


TWO_LANES = [Unit(place, place + 1, 1, place // 4) for place in range(8)]


def test_a_worker_begins_a_lane_and_goes_through_it():
    assert next_unit(TWO_LANES, set(range(8)), set(), None) == 0
    assert next_unit(TWO_LANES, set(range(1, 8)), {0}, None) == 4
    assert next_unit(TWO_LANES, {2, 3, 5, 6, 7}, {4}, 1) == 2


def test_one_that_is_done_takes_the_later_half_of_what_is_before_another():
    assert next_unit(TWO_LANES, {5, 6, 7}, {4}, 3) == 6


def test_what_its_worker_will_reach_as_soon_is_left_to_it():
    assert next_unit(TWO_LANES, {6, 7}, {5}, 3) is None


def test_what_a_lost_worker_left_is_taken_from_its_beginning():
    assert next_unit(TWO_LANES, {6, 7}, set(), 3) == 6
    assert next_unit(TWO_LANES, {7}, set(), 3) == 7


def test_workers_that_begin_at_once_do_not_all_want_the_same():
    assert {next_unit(TWO_LANES, set(range(8)), set(), None, luck) for luck in range(4)} == {0, 4}


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_as_long_as_something_is_free_and_nobody_works_somebody_takes_it(free, held):
    taken = next_unit(TWO_LANES, free, held - free, None)
    assert taken in free if taken is not None else held - free or not free
