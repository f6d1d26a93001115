"""How a command's process ends: on SIGTERM as on Ctrl-C; `--debug` tells where plug-ins raised.

SIGTERM comes from kill, from a cluster's or a container's time limit; nothing is lost. A traceback is shown
once for each place, without keys.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from needlemap.secrets import hidden
from needlemap.text import printable, show

INTERRUPTED = 130  # 128 + the signal's number, as a shell has it
TERMINATED = 143
T = TypeVar("T")
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")  # of names in the environment


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


def show_tracebacks() -> None:
    """From now on print the tracebacks that `raised_by` logs to standard error."""
    log, handler = logging.getLogger("needlemap"), logging.StreamHandler()
    handler.setFormatter(_Scrubbed())
    handler.addFilter(_Once())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)


class _Scrubbed(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The traceback alone, as a terminal may show it."""
        text = self.formatException(record.exc_info) if record.exc_info else record.getMessage()
        for name, value in os.environ.items():
            if _SECRET.search(name.upper()) and len(value) >= 6:
                text = text.replace(value, "[hidden]")
        return printable(hidden(text))


class _Once(logging.Filter):
    """Lets one exception of each kind and place pass: a run of 1,000 trials raises it 1,000 times."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[object, ...]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        kind, _, trace = record.exc_info or (None, None, None)
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (kind, trace and trace.tb_frame.f_code, trace and trace.tb_lineno)
        new = place not in self._seen
        self._seen.add(place)
        return new


def say_interrupted(path: Path) -> None:
    """That a folder's asking was interrupted, and how it goes on."""
    show(f"\nneedlemap: interrupted. To go on: the same command with -o {path}", file=sys.stderr)


def say_stopped(why: str, path: Path) -> None:
    """Why not all was asked, and how it goes on; nothing where all was."""
    if why:
        rest = f"To go on: the same command with -o {path}"
        show(f"needlemap: not all was asked: {why.rstrip('.')}. {rest}", file=sys.stderr)
