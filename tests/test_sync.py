"""A coroutine from ordinary code: the same result inside and outside a loop, and nothing left
running."""

from __future__ import annotations

import asyncio
import threading

import pytest

from needlemap.sync import run_coroutine


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def failing() -> None:
    raise ValueError("no")


async def inside(make):
    """Calls it as a notebook's cell does."""
    return run_coroutine(make())


def test_results_come_back_with_and_without_a_loop():
    assert run_coroutine(double(4)) == 8
    assert asyncio.run(inside(lambda: double(4))) == 8


def test_errors_come_back_too():
    with pytest.raises(ValueError, match="no"):
        run_coroutine(failing())
    with pytest.raises(ValueError, match="no"):
        asyncio.run(inside(failing))


def test_an_interrupt_cancels_it_and_waits_for_its_end(monkeypatch):
    ended = []

    async def asking() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("put away")

    from concurrent.futures import Future

    whole = Future.result
    monkeypatch.setattr(Future, "result", Interrupted(whole))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(inside(asking))
    assert ended == ["put away"]
    assert "needlemap" not in [thread.name for thread in threading.enumerate()]


class Interrupted:
    """`Future.result` that is interrupted the first time, after a moment."""

    def __init__(self, whole) -> None:
        self.whole, self.first = whole, True

    def __get__(self, future, kind=None):
        return lambda timeout=None: self.call(future, timeout)

    def call(self, future, timeout):
        if self.first:
            self.first = False
            threading.Event().wait(0.05)
            raise KeyboardInterrupt
        return self.whole(future, timeout)
