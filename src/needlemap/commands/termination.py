"""SIGTERM (kill, a cluster's or container's time limit) ends a run as Ctrl-C does: put away, nothing lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # 128 + the signal's number, as a shell has it
TERMINATED = 143


class Ending:
    """Which of the two signals asked for the end, as an exit code."""

    code = INTERRUPTED

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Do what Ctrl-C does here and now: whatever handles it, or KeyboardInterrupt where it is ignored."""
        self.code = TERMINATED
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(number, frame)


@contextmanager
def terminable() -> Iterator[Ending]:
    """Inside, SIGTERM raises KeyboardInterrupt as SIGINT does. In the main thread only."""
    ending = Ending()
    before = signal.signal(signal.SIGTERM, ending.terminate)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
