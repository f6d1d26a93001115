"""What a worker says of itself: a file with who and where it is, touched while it lives, and how it ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from pydantic import TypeAdapter, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import read_regular
from needlemap.runs.runner import Outcome
from needlemap.runs.store import write_json

_BEAT_S = 5.0


class Leaving(StrEnum):
    """Why a worker ended by itself."""

    DONE = "nothing left to take"
    TOLD = "told to stop"
    LIMIT = "limit"  # the budget, or every request would fail
    ERROR = "error"  # the settings are wrong, here at least


@dataclass(frozen=True, slots=True)
class Worker:
    """Which worker: its name, the job that it runs in, how often that was started before, where it is.

    records: the name of its records file, which is there from its first record on.
    """

    name: str
    job: str
    restart: int = 0
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    records: str = ""
    left: Leaving | None = None
    why: str = ""
    outcome: Outcome | None = None


_SHAPE = TypeAdapter(Worker)


def worker_name(job: str, restart: int) -> str:
    """A name that no other start of a job has.

    >>> worker_name("12_0", 0), worker_name("12_0", 1)
    ('12_0', '12_0-again-1')
    """
    return f"{job}-again-{restart}" if restart else job


class Presence:
    """Writes a worker's file, and touches it from a thread of its own every few seconds."""

    def __init__(self, folder: Path, worker: Worker) -> None:
        self._file, self._worker = _file(folder, worker.name), worker
        self._over = Event()
        write_json(self._file, asdict(worker))
        Thread(target=self._beat, name="needlemap-presence", daemon=True).start()

    def writes(self, records: str) -> None:
        """Say which records file is its own."""
        self._worker = replace(self._worker, records=records)
        write_json(self._file, asdict(self._worker))

    def leave(self, left: Leaving, why: str = "", outcome: Outcome | None = None) -> None:
        """Say how it ended."""
        self._over.set()
        write_json(self._file, asdict(replace(self._worker, left=left, why=why, outcome=outcome)))

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            self._file.touch()


def workers(folder: Path) -> Iterator[tuple[Worker, int]]:
    """The workers of a launch that have shown themselves, with when each last did (file system's own ns)."""
    for file in sorted(folder.glob("worker-*.json")):
        try:
            worker = _SHAPE.validate_json(read_regular(file))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise NeedlemapError(f"'{file}' is no worker's of this needlemap: {problem['msg']}.") from None
        yield worker, file.stat().st_mtime_ns


def refuse_elsewhere(folder: Path) -> None:
    """Raises NeedlemapError where workers are processes of another machine, which this one cannot see."""
    here = socket.gethostname()
    there = sorted({worker.host for worker, _ in workers(folder) if worker.left is None} - {here})
    if there:
        run = folder.parent.parent
        raise NeedlemapError(
            f"The workers of '{run}' are processes of {', '.join(there)}, and this is {here}. Type there: "
            f"needlemap run --attach {run}"
        )


def began_s(folder: Path) -> float:
    """When the first worker of a launch began, by this machine's monotonic clock; now, where none did."""
    begun = [datetime.fromisoformat(worker.started) for worker, _ in workers(folder)]
    ran_s = (datetime.now(UTC) - min(begun)).total_seconds() if begun else 0.0
    return monotonic() - max(0.0, ran_s)


def _file(folder: Path, name: str) -> Path:
    return folder / f"worker-{name}.json"
