"""A test under way: cells are asked concurrently, scored, and kept one by one; a failure ends no other.

Files are results/*.json, one object a cell, and contexts/*.txt, with the originals' names and keys. A version
above 1 ends in `_results_2.json`, as in their published results, where their code would overwrite version 1.
Each file is written beside its place and then moved there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.scorers.python import call_beside
from needlemap.secrets import scrub

RESULTS, CONTEXTS = Path("results"), Path("contexts")
Row = dict[str, Any]
Cell = tuple[int, float]  # length in tokens, depth in percent
_KEYS = ("model", "context_length", "depth_percent", "needle", "score")
_UNSAFE = re.compile(r"[./\\:]")


def stem(model: str, length: int, depth: float) -> str:
    """A cell's file name without its ending; depth in percent, kept to its second decimal.

    >>> stem("org/gpt-3.5", 1000, 12.5)
    'org_gpt-3_5_len_1000_depth_1250'
    """
    return f"{_UNSAFE.sub('_', model)}_len_{length}_depth_{int(depth * 100)}"


def result_file(name: str, version: int) -> Path:
    """Where a cell's result goes."""
    return RESULTS / f"{name}_results{'' if version == 1 else f'_{version}'}.json"


def context_file(name: str) -> Path:
    """Where a cell's context goes."""
    return CONTEXTS / f"{name}_context.txt"


def earlier(model: str, version: int) -> dict[Cell, Row]:
    """A model's results of a version by (length, depth): the folder is read once.

    Files that cannot be read are left out with a warning; those that are no results are passed over.
    """
    rows = [row for file in sorted(RESULTS.glob("*.json")) if (row := _row(file))]
    return {
        (row["context_length"], row["depth_percent"]): row
        for row in rows
        if (row["model"], row.get("version", 1)) == (model, version)
    }


def shared_names(model: str, cells: Iterable[Cell]) -> list[str]:
    """File names that more than one cell would have, which would leave only the last one's answer."""
    counted = Counter(stem(model, *cell) for cell in cells)
    return [name for name, count in counted.items() if count > 1]


def write(file: Path, text: str) -> None:
    """The whole file or none of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8", errors="replace", newline="")
    beside.replace(file)


def _row(file: Path) -> Row | None:
    try:
        row = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        warnings.warn(f"{file} cannot be read and is left out: {error}", stacklevel=5)
        return None
    return row if isinstance(row, dict) and all(key in row for key in _KEYS) else None


RETRIES = 5


@dataclass(slots=True)
class Session:
    """measure: asks and scores one cell, and keeps what came of it. pause_s: after each answer, holding its
    place among the concurrent ones. failures: cells without a result, and why."""

    measure: Callable[[Cell], Awaitable[None]]
    pause_s: float = 0.0
    failures: dict[Cell, Unmeasured] = field(default_factory=dict)
    _hopeless: bool = False

    async def ask(self, cells: Sequence[Cell], concurrency: int) -> None:
        """Ask all cells, so many at a time. After a refused key no further cell is asked."""
        gate = asyncio.Semaphore(concurrency)
        await asyncio.gather(*(self._cell(cell, gate) for cell in cells))

    async def _cell(self, cell: Cell, gate: asyncio.Semaphore) -> None:
        async with gate:
            if self._hopeless:
                return
            try:
                await self.measure(cell)
            except Unmeasured as failure:
                self.failures[cell] = failure
                self._hopeless = failure.failure is Failure.UNAUTHORISED
            await asyncio.sleep(self.pause_s)


async def called(method: Callable[[Any], Any], argument: Any) -> Any:
    """What a derived class's own method returns. Raises Unmeasured for whatever it raises, as its cause."""
    try:
        return await call_beside(method, argument)
    except NeedlemapError:
        raise
    except Exception as error:
        what = scrub(f"{method.__name__} raised {type(error).__name__}: {error}")
        raise Unmeasured(Failure.MODEL, what) from error


def said(response: str, score: float, duration_s: float) -> Row:
    """What the model said, under the originals' names."""
    return {
        "model_response": response,
        "score": score,
        "test_duration_seconds": duration_s,
        "test_timestamp_utc": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S%z"),
    }


class Worker(threading.Thread):
    """Runs a coroutine in an event loop of its own and keeps what it raised."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        super().__init__(name="needlemap")
        self.raised: BaseException | None = None
        self._work = work
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._ready = threading.Event()

    def run(self) -> None:
        """Called by `start`."""
        try:
            asyncio.run(self._main())
        except BaseException as error:  # raised again in the thread that waits
            self.raised = error

    def stop(self) -> None:
        """Cancel the coroutine and wait for its end."""
        self._ready.wait()
        if self._running and self.is_alive():
            loop, task = self._running
            with suppress(RuntimeError):  # it ended by itself just now
                loop.call_soon_threadsafe(task.cancel)
        self.join()

    async def _main(self) -> None:
        task = asyncio.current_task()
        if task:
            self._running = (asyncio.get_running_loop(), task)
        self._ready.set()
        await self._work


def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine whether or not an event loop is running here (in Jupyter one is)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    worker = Worker(work)
    worker.start()
    try:
        worker.join()
    except BaseException:  # an interrupted notebook cell
        worker.stop()
        raise
    if worker.raised:
        raise worker.raised
