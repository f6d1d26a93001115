"""Handing out a walk: every item once, lanes in order, and a lane that is done halves the
longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from needlemap.plan import LaneQueue, Lanes


def lanes(*ends: int) -> Lanes:
    bounds = tuple(zip((0, *ends[:-1]), ends, strict=True))
    return Lanes(bounds, tuple(stop - start for start, stop in bounds), 0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
def test_each_item_is_handed_out_once_however_lanes_take_turns(sizes, data):
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    queue = LaneQueue((range(ends[-1]), lanes(*ends)))
    taken: list[int] = []
    for _ in range(ends[-1]):
        item = queue.next(data.draw(st.integers(0, len(sizes) - 1)))
        assert item is not None  # whoever asks gets something while anything is left
        taken.append(item)
    assert sorted(taken) == list(range(ends[-1]))
    assert [queue.next(lane) for lane in range(len(queue))] == [None] * len(sizes)


def test_a_lane_keeps_to_its_own_piece():
    queue = LaneQueue(("abcdef", lanes(3, 6)))
    assert [queue.next(lane) for lane in (0, 1, 0, 1, 0, 1)] == ["a", "d", "b", "e", "c", "f"]


def test_a_lane_that_is_done_takes_the_later_half_of_the_longest():
    queue = LaneQueue(("abcdefghij", lanes(1, 3, 10)))
    assert queue.next(0) == "a"
    assert queue.next(0) == "g"  # the last lane holds d to j: d e f stay, g h i j go
    assert [queue.next(2) for _ in range(3)] == ["d", "e", "f"]
    assert [queue.next(0) for _ in range(3)] == ["h", "i", "j"]
    assert [queue.next(1) for _ in range(3)] == ["b", "c", None]


def test_the_last_item_of_a_slow_lane_is_taken_over():
    queue = LaneQueue(("ab", lanes(1, 2)))
    assert [queue.next(0), queue.next(0), queue.next(1), queue.next(0)] == ["a", "b", None, None]


def test_a_walk_begins_when_the_one_before_is_all_out_and_no_lane_waits_for_it():
    queue = LaneQueue(("ab", lanes(1, 2)), ("cdef", lanes(1, 2, 4)))
    assert (
        len(queue) == 3
    )  # of the first walk the third lane has nothing: it goes on with the second
    assert [queue.next(lane) for lane in (2, 0, 1, 1, 2, 0, 0)] == [*"abdfec", None]
