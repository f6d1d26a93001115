"""SIGTERM (kill, a cluster's or container's time limit) ends a run as Ctrl-C does: put away, nothing lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

INTERRUPTED = 130  # 128 + the signal's number, as a shell has it
TERMINATED = 143
T = TypeVar("T")


class Ending:
    """Which of the two signals asked for the end, as an exit code."""

    code = INTERRUPTED
    _task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run`, cancelled by either signal. Raises KeyboardInterrupt then."""
        try:
            return asyncio.run(self._noted(coroutine))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._task = None

    async def _noted(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await coroutine

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Do what Ctrl-C does here and now; where it is ignored, as behind an ampersand, what it would do."""
        self.code = TERMINATED
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(number, frame)
        elif self._task is not None:
            self._task.cancel()
            self._task.get_loop().call_soon_threadsafe(int)  # wakes a loop that waits
        else:
            signal.default_int_handler(number, frame)


@contextmanager
def terminable() -> Iterator[Ending]:
    """Inside, SIGTERM raises KeyboardInterrupt as SIGINT does. In the main thread only."""
    ending = Ending()
    before = signal.signal(signal.SIGTERM, ending.terminate)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
