"""Work on what strangers send, which has an end: calls that may never return, and the time that a
command was given (`--limit-time`), which holds in them too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread
from time import monotonic
from typing import TypeVar

from needlemap.errors import NeedlemapError

_Result = TypeVar("_Result")
_UNTIL_S: ContextVar[float | None] = ContextVar("_UNTIL_S", default=None)


class TimeUp(NeedlemapError):
    """The time that a command was given ended before there was anything to ask."""


@contextmanager
def limited_to(limit_s: float | None) -> Iterator[None]:
    """Within it no bounded call goes on for longer; None: as it is. A limit around it stays."""
    outer_s = _UNTIL_S.get()
    untils = [each for each in (outer_s, limit_s and monotonic() + limit_s) if each is not None]
    token = _UNTIL_S.set(min(untils, default=None))
    try:
        yield
    finally:
        _UNTIL_S.reset(token)


def seconds_left(most_s: float) -> float:
    """How long a call may take: so long, or less where a command's time ends before. Raises
    TimeUp where it has ended."""
    until_s = _UNTIL_S.get()
    if until_s is None:
        return most_s
    left_s = until_s - monotonic()
    if left_s <= 0:
        raise TimeUp(
            "The time limit ended while prompts were built: nothing was asked. Give a longer "
            "--limit-time, or a grid with fewer and shorter lengths."
        )
    return min(most_s, left_s)


def call_within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """What a call returns or raises. Raises TimeoutError for one that takes longer: its thread is
    left behind, and ends with the process at the latest."""
    done = Future[_Result]()
    Thread(target=_settle, args=(done, call), daemon=True).start()
    try:
        return done.result(seconds_left(seconds))
    except TimeoutError:
        if not done.done():
            seconds_left(seconds)  # a command's own limit has words of its own
        raise


def _settle(done: Future[_Result], call: Callable[[], _Result]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # a library may panic, which is no Exception
        done.set_exception(error)
