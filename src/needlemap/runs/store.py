"""A run's folder: run.json and one records file per process. Nothing that was scored is ever lost.

Every record is one line, written at once and fsynced. A torn line (power cut) is dropped on reading. No two
processes write one file, so the same layout serves a laptop and a network file system.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from needlemap.errors import NeedlemapError
from needlemap.runs.record import SCHEMA, Record

RUN_FILE = "run.json"


class RunFolder:
    """One run on disk. Opening a folder creates nothing; `Writer` does."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether a run is there."""
        return (self.path / RUN_FILE).is_file()

    def about(self) -> dict[str, Any]:
        """What run.json says. Raises NeedlemapError when there is none, or it cannot be read."""
        file = self.path / RUN_FILE
        if not file.is_file():
            raise NeedlemapError(f"No run at '{self.path}': it holds no {RUN_FILE}.")
        try:
            about = json.loads(file.read_bytes())
            schema = int(about["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise NeedlemapError(f"'{file}' cannot be read: {error}.") from error
        if schema > SCHEMA:
            raise NeedlemapError(
                f"Run '{self.path}' was written by a newer needlemap (schema {schema}, this one reads up to "
                f"{SCHEMA}). Run: pip install -U needlemap"
            )
        return dict(about)

    def records(self) -> Iterator[Record]:
        """All readable records, file by file in the order they were begun."""
        for file in sorted(
            self.path.glob("records-*.jsonl"), key=lambda file: (file.stat().st_mtime_ns, file.name)
        ):
            with file.open("rb") as lines:
                yield from filter(None, map(_record, lines))

    def done(self) -> set[str]:
        """Keys of the trials that were scored."""
        return {record.key for record in self.records() if record.scored}


class Writer:
    """Appends records to a file of its own in a run's folder, and keeps other runs out of that folder."""

    def __init__(self, folder: RunFolder, about: dict[str, Any]) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder.path)
        _replace(
            folder.path / RUN_FILE, json.dumps(about, indent=1, ensure_ascii=False, default=str).encode()
        )
        name = f"records-{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._file = folder.path / name
        self._descriptor: int | None = None

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on the disk."""
        if self._descriptor is None:
            self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644)
        data = memoryview(record.line())
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let others have the folder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._lock.close()


def _record(line: bytes) -> Record | None:
    """A line's record; None for a torn one."""
    try:
        return Record.model_validate_json(line)
    except ValidationError:
        return None


def _locked(path: Path) -> IO[bytes]:
    """An advisory lock on the folder, held while the file is open. Raises NeedlemapError if it is taken."""
    file = (path / ".lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise NeedlemapError(
            f"Another needlemap is writing to '{path}'. Wait for it, or use another -o."
        ) from None
    return file


def _replace(file: Path, data: bytes) -> None:
    """Write a whole file so that it is either the old one or the new one, whatever happens."""
    temporary = file.with_suffix(".tmp")
    with temporary.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
