"""Overlapping windows of one text, kept once."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from needlemap.reports.page.trials import View, Window, join_windows

ALPHABETS = ("ab ", "the quick brown fox. ", "库塔山水。", "a🙂é ")


def shown(passages: list[str], view: View) -> Window:
    """What a browser shows: slices are counted in UTF-16 units."""
    units = passages[view.passage].encode("utf-16-le")
    start, at, stop = view.at - view.before, view.at, view.at + view.after
    return units[2 * start : 2 * at].decode("utf-16-le"), units[2 * at : 2 * stop].decode(
        "utf-16-le"
    )


def windows(text: str, places: list[int], size: int) -> list[Window]:
    return [(text[max(0, at - size) : at], text[at : at + size]) for at in places]


@given(
    st.sampled_from(ALPHABETS).flatmap(
        lambda letters: st.text(st.sampled_from(letters), max_size=300)
    ),
    st.lists(st.integers(0, 300), max_size=30),
    st.integers(0, 60),
    st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5),
)
def test_every_window_is_found_again_letter_for_letter(text, places, size, others):
    asked = windows(text, [min(at, len(text)) for at in places], size) + others
    passages, views = join_windows(asked)
    for window in asked:
        assert (shown(passages, views[window]) if any(window) else ("", "")) == window


def test_a_text_seen_through_many_windows_is_kept_once():
    random = Random(0)
    text = "".join(random.choice("abcdefghij .") for _ in range(5000))
    places = sorted(random.sample(range(300, 4700), 200))
    asked = windows(text, places, 300)
    random.shuffle(asked)
    passages, _ = join_windows(asked)
    assert passages == [text[places[0] - 300 : places[-1] + 300]]


def test_texts_that_share_nothing_stay_apart():
    assert join_windows([("ab", "cd"), ("ef", "gh"), ("ab", "cd"), ("", "")])[0] == ["abcd", "efgh"]


def test_a_text_that_goes_round_ends_somewhere():
    text = "one two three four five six seven " * 3
    passages, views = join_windows(windows(text, list(range(34, 68)), 34))
    assert len(views) == 34
    assert sum(map(len, passages)) < 34 * 68
