"""Handing out a walk: every item once, lanes in order, and a lane that is done halves the
longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import Costs, LaneQueue, Lanes


def lanes(*ends: int) -> Lanes:
    bounds = tuple(zip((0, *ends[:-1]), ends, strict=True))
    return Lanes(bounds, tuple(stop - start for start, stop in bounds), 0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
def test_each_item_is_handed_out_once_however_lanes_take_turns(sizes, data):
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    queue = LaneQueue((range(ends[-1]), lanes(*ends)))
    taken: list[int] = []
    for _ in range(ends[-1]):
        item = queue.next_item(data.draw(st.integers(0, len(sizes) - 1)))
        assert item is not None  # whoever asks gets something while anything is left
        taken.append(item)
    assert sorted(taken) == list(range(ends[-1]))
    assert [queue.next_item(lane) for lane in range(len(queue))] == [None] * len(sizes)


def test_a_lane_keeps_to_its_own_piece():
    queue = LaneQueue(("abcdef", lanes(3, 6)))
    assert [queue.next_item(lane) for lane in (0, 1, 0, 1, 0, 1)] == ["a", "d", "b", "e", "c", "f"]


def test_a_lane_that_is_done_takes_the_later_half_of_the_longest():
    queue = LaneQueue(("abcdefghij", lanes(1, 3, 10)))
    assert queue.next_item(0) == "a"
    assert queue.next_item(0) == "g"  # the last lane holds d to j: d e f stay, g h i j go
    assert [queue.next_item(2) for _ in range(3)] == ["d", "e", "f"]
    assert [queue.next_item(0) for _ in range(3)] == ["h", "i", "j"]
    assert [queue.next_item(1) for _ in range(3)] == ["b", "c", None]


def test_the_last_item_of_a_slow_lane_is_taken_over():
    queue = LaneQueue(("ab", lanes(1, 2)))
    assert [queue.next_item(0), queue.next_item(0), queue.next_item(1), queue.next_item(0)] == [
        "a",
        "b",
        None,
        None,
    ]


def test_a_walk_begins_when_the_one_before_is_all_out_and_no_lane_waits_for_it():
    queue = LaneQueue(("ab", lanes(1, 2)), ("cdef", lanes(1, 2, 4)))
    assert (
        len(queue) == 3
    )  # of the first walk the third lane has nothing: it goes on with the second
    assert [queue.next_item(lane) for lane in (2, 0, 1, 1, 2, 0, 0)] == [*"abdfec", None]


def apart(again: list[int], own: list[int]) -> Costs:
    """What items take in their own lane, and what more in another one; all else saves a lot."""
    saves = [*again, 10**6]
    taken = [*own, 0]
    return Costs(taken, [one + more for one, more in zip(taken, saves, strict=True)])


def test_where_each_lane_has_its_own_cache_nothing_is_taken_that_is_dearer_elsewhere():
    """d takes 10 tokens behind c, and 900 in another lane: the lane that is done leaves it."""
    takeover = apart(again=[0, 0, 890, 890], own=[10, 900, 10, 10])
    queue = LaneQueue(("abcd", lanes(1, 4)), takeover=lambda _: takeover)
    assert [queue.next_item(lane) for lane in (0, 1, 0, 1, 1, 1)] == [
        "a",
        "b",
        None,
        "c",
        "d",
        None,
    ]


def test_where_each_lane_has_its_own_cache_the_cut_is_where_both_are_done_soonest():
    """b to f take 3,000 tokens in one lane, and 1,500 in each when another takes them from e on."""
    takeover = apart(again=[0, 0, 400, 400, 0, 0], own=[1, 500, 500, 500, 500, 1000])
    queue = LaneQueue(("abcdef", lanes(1, 6)), takeover=lambda _: takeover)
    assert [queue.next_item(lane) for lane in (0, 0, 1, 1, 1, 0)] == ["a", "e", "b", "c", "d", "f"]


def test_where_each_lane_has_its_own_cache_a_hundredth_of_what_is_saved_may_be_computed_again():
    own, again = [1] + [500] * 40, [0] + [200] * 40
    takeover = Costs(own, [one + more for one, more in zip(own, again, strict=True)])
    queue = LaneQueue((range(41), lanes(1, 41)), takeover=lambda _: takeover)
    assert [queue.next_item(0), queue.next_item(0)] == [
        0,
        None,
    ]  # 200 are more than a hundredth of 8,000
    assert [queue.next_item(1) for _ in range(41)] == [*range(1, 41), None]


def test_a_lane_with_its_own_cache_goes_on_with_the_next_walk():
    takeover = apart(again=[890] * 3, own=[10] * 3)
    queue = LaneQueue(("abc", lanes(1, 3)), ("xyz", lanes(2, 3)), takeover=lambda _: takeover)
    assert [queue.next_item(lane) for lane in (0, 0, 1, 1, 1, 0)] == [*"axbczy"]
