"""The time that a command was given (`--limit-time`, `check --minutes`), which holds in all
that it does, and calls that may never return, which have an end."""

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
    """The time of one start of a command. began_s: by the monotonic clock. flag: what a user
    types to change seconds."""

    seconds: float = inf
    flag: str = FLAG
    began_s: float = field(default_factory=monotonic)

    @property
    def ran_s(self) -> float:
        """Seconds since it began."""
        return monotonic() - self.began_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within it nothing can be asked yet: that time does not count, and ends nothing."""
        token, from_s = _CLOCK.set(None), monotonic()
        try:
            yield
        finally:
            _CLOCK.reset(token)
            self.began_s += monotonic() - from_s


_CLOCK: ContextVar[Clock | None] = ContextVar("_CLOCK", default=None)


class LimitReached(NeedlemapError):
    """A limit ended a command before it had anything to show: exit code 3."""


class TimeUp(LimitReached):
    """The time that a command was given has ended."""


@contextmanager
def limited_to(limit_s: float | None, flag: str = FLAG) -> Iterator[None]:
    """Within it the command's time ends after so long; None: as it is. An earlier end around
    it stays."""
    both = [each for each in (_CLOCK.get(), Clock(limit_s, flag) if limit_s else None) if each]
    token = _CLOCK.set(min(both, key=lambda each: each.began_s + each.seconds, default=None))
    try:
        yield
    finally:
        _CLOCK.reset(token)


@contextmanager
def without_limit() -> Iterator[None]:
    """Within it nothing ends by the command's time, which goes on: that is for sending, and
    what was answered is judged whenever it ends. Also a decorator."""
    token = _CLOCK.set(None)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def clock() -> Clock:
    """The command's; one without an end that begins now where it has none."""
    return _CLOCK.get() or Clock()


def seconds_left(
    most_s: float = inf, what: str = "while prompts were built", do: str = ""
) -> float:
    """How long a call may take: so long, or less where the command's time ends before. Raises
    TimeUp where it has ended, and says while what, and what else may be done."""
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
    """Seconds after which whatever is awaited is given up; None where the time has no end."""
    limit = _CLOCK.get()
    return None if limit is None else max(0.0, limit.seconds - limit.ran_s)


def pause(seconds: float, what: str) -> None:
    """Sleep. Raises TimeUp as soon as the command's time ends."""
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
    """What a call returns or raises. Raises TimeoutError for one that takes longer: its thread
    is left behind, and ends with the process at the latest. Raises TimeUp as
    `seconds_left`."""
    from concurrent.futures import Future  # not for those who only build prompts

    left_s = seconds_left(seconds, what, do)
    done = Future[_Result]()
    Thread(target=_settle, args=(done, call), daemon=True).start()
    try:
        return done.result(None if left_s == inf else left_s)
    except TimeoutError:
        if not done.done() and left_s < seconds:  # a command's own limit has words of its own
            raise _time_up(what, do) from None
        raise


@contextmanager
def cut_off(what: str) -> Iterator[None]:
    """Within it the command's end cuts off what never waits, as a pattern that tries for hours.
    Raises TimeUp then, in the main thread of a system that has such a signal."""
    left_s = waits_s()
    able = hasattr(signal, "setitimer") and current_thread() is main_thread()
    if left_s is None or not able:
        yield
        return

    def end(*_: object) -> None:
        raise _time_up(what, "")

    before = signal.signal(signal.SIGALRM, end)
    # What waits ends by itself at the limit, and says more.
    timer = signal.setitimer(signal.ITIMER_REAL, left_s + _GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def _settle(done: Future[_Result], call: Callable[[], _Result]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # a library may panic, which is no Exception
        done.set_exception(error)
