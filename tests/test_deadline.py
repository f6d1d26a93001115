"""Calls that may never return have an end, and a command's own time holds in them."""

from __future__ import annotations

from threading import Event

import pytest

from needlemap.deadline import (
    TimeUp,
    call_within,
    clock,
    limited_to,
    seconds_left,
    without_limit,
)


def test_a_call_returns_and_raises_as_it_does():
    assert call_within(60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_within(60, lambda: 1 // 0)
    with pytest.raises(TimeoutError, match="its own"):
        call_within(60, raise_timeout)


def raise_timeout() -> None:
    raise TimeoutError("its own")


def test_a_call_that_goes_on_is_left_behind():
    with pytest.raises(TimeoutError):
        call_within(0.05, Event().wait)


def test_a_commands_time_ends_calls_too_and_says_so():
    with limited_to(0.05), pytest.raises(TimeUp, match="--limit-time"):
        call_within(600, Event().wait)
    assert seconds_left(600) == 600


def test_the_words_name_what_was_waited_for_and_what_to_type():
    with limited_to(0.05, "--minutes"), pytest.raises(TimeUp) as raised:
        call_within(600, Event().wait, "before http://x answered", "another --base-url")
    words = "The time limit ended before http://x answered. Give a longer --minutes, or another"
    assert str(raised.value) == f"{words} --base-url."


def test_time_in_which_nothing_can_be_asked_does_not_count():
    with limited_to(600):
        clock().began_s -= 599.9
        with clock().stopped():
            Event().wait(0.2)
            assert seconds_left(7) == 7
        assert 0 < seconds_left(7) <= 0.1


def test_an_outer_limit_stays():
    with limited_to(0.0001), limited_to(600):
        Event().wait(0.01)
        with pytest.raises(TimeUp):
            seconds_left(600)


def test_what_is_judged_is_not_ended_by_the_time_for_sending_which_goes_on() -> None:
    with limited_to(10):
        clock().began_s -= 20
        with without_limit():
            assert seconds_left(5) == 5
        with pytest.raises(TimeUp):
            seconds_left()
