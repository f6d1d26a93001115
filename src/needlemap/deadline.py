"""Limit the time of a command (`--limit-time`, `check --minutes`), and of calls that may hang.

The limit applies to everything that the command does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from threading import Thread, current_thread, main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from needlemap.errors import NeedlemapError

if TYPE_CHECKING:
    from concurrent.futures import Future

_Result = TypeVar("_Result")
FLAG = "--limit-time"
_GRACE_S = 0.5


@dataclass(slots=True)
class Clock:
    """The time of one start of a command.

    Attributes:
        seconds: The limit.
        flag: What a user types to change it.
        began_s: The start, by the monotonic clock.
    """

    seconds: float = inf
    flag: str = FLAG
    began_s: float = field(default_factory=monotonic)

    @property
    def ran_s(self) -> float:
        """Return the seconds since the start."""
        return monotonic() - self.began_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock within: nothing can be asked yet, so the time does not count."""
        token = _CLOCK.set(None)
        from_s = monotonic()
        try:
            yield
        finally:
            _CLOCK.reset(token)
            self.began_s += monotonic() - from_s


_CLOCK: ContextVar[Clock | None] = ContextVar("_CLOCK", default=None)


class LimitReached(NeedlemapError):
    """A limit ended a command before it had anything to show: exit code 3."""


class TimeUp(LimitReached):
    """The time of a command has ended."""


@contextmanager
def limited_to(limit_s: float | None, flag: str = FLAG) -> Iterator[None]:
    """Limit the command's time within. An earlier end stays.

    limit_s: seconds; None for no further limit. flag: what a user types to change it.
    """
    clocks = []
    current = _CLOCK.get()
    if current:
        clocks.append(current)
    if limit_s:
        clocks.append(Clock(limit_s, flag))
    earliest = min(clocks, key=lambda clock: clock.began_s + clock.seconds, default=None)
    token = _CLOCK.set(earliest)
    try:
        yield
    finally:
        _CLOCK.reset(token)


@contextmanager
def without_limit() -> Iterator[None]:
    """Lift the command's limit inside a block or a decorated function, while its time continues.

    The limit is for sending: answers are judged however long that takes.
    """
    token = _CLOCK.set(None)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def clock() -> Clock:
    """Return the command's clock.

    If there is none, the result is a clock that starts now and has no limit.
    """
    return _CLOCK.get() or Clock()


def seconds_left(
    most_s: float = inf, what: str = "while prompts were built", do: str = ""
) -> float:
    """Return how many seconds a call may take: `most_s`, or fewer if the command's time ends.

    If the command's time has ended already, TimeUp is raised.

    what: the rest of "The time limit ended ...". do: what the user
    may do instead of a longer limit.
    """
    limit = _CLOCK.get()
    if limit is None:
        return most_s
    left_s = limit.seconds - limit.ran_s
    if left_s <= 0:
        raise _time_up(what, do)
    return min(most_s, left_s)


def _time_up(what: str, do: str) -> TimeUp:
    do = do or "fewer and shorter lengths"
    return TimeUp(f"The time limit ended {what}. Give a longer {clock().flag}, or {do}.")


def waits_s() -> float | None:
    """Return the seconds that are left for waiting, or None if the command has no time limit."""
    limit = _CLOCK.get()
    if limit is None:
        return None
    return max(0.0, limit.seconds - limit.ran_s)


def pause(seconds: float, what: str) -> None:
    """Sleep for some seconds, or raise TimeUp as soon as the command's time ends."""
    left_s = seconds_left(what=what)
    sleep(min(seconds, left_s))
    if left_s < seconds:
        seconds_left(what=what)


def call_within(
    seconds: float,
    call: Callable[[], _Result],
    what: str = "while prompts were built",
    do: str = "",
) -> _Result:
    """Return or raise what a call does.

    Raises TimeoutError if it takes longer than `seconds`: its thread is abandoned, and ends with
    the process at the latest. Raises TimeUp as `seconds_left` does.
    """
    # Late: not needed if only prompts are built.
    from concurrent.futures import Future

    left_s = seconds_left(seconds, what, do)
    done = Future[_Result]()
    Thread(target=_settle, args=(done, call), daemon=True).start()
    try:
        return done.result(None if left_s == inf else left_s)
    except TimeoutError:
        if not done.done() and left_s < seconds:
            # The command's own limit has an error of its own.
            raise _time_up(what, do) from None
        raise


@contextmanager
def cut_off(what: str) -> Iterator[None]:
    """Raise TimeUp in a block that never waits, as soon as the command's time has ended.

    For example, a pattern may try for hours. Only the main thread is interrupted, and only on a
    system that has such a signal.
    """
    left_s = waits_s()
    has_signal = hasattr(signal, "setitimer") and current_thread() is main_thread()
    if left_s is None or not has_signal:
        yield
        return

    def raise_time_up(*_: object) -> None:
        raise _time_up(what, "")

    previous_handler = signal.signal(signal.SIGALRM, raise_time_up)
    # A call that waits ends by itself at the limit, and its error says more.
    timer = signal.setitimer(signal.ITIMER_REAL, left_s + _GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, previous_handler)


def _settle(done: Future[_Result], call: Callable[[], _Result]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:
        # A library may panic, which is not an Exception.
        done.set_exception(error)
