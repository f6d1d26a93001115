"""Read and write a run's folder: run.json and one records file per process.

Nothing that was scored is ever lost.

Every record is one line, written at once and fsynced. A torn line (power cut) is dropped on
reading. No two processes write one file, so the same layout serves a laptop and a network file
system. A folder may come from anywhere: what is not a record of its run is left out, and counted
(`LeftOut`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.extras import NEWER
from needlemap.files import (
    MOST_LINE,
    RUN_FILE,
    is_regular,
    lines_of,
    make_folder,
    open_regular,
)
from needlemap.records.document import write_json
from needlemap.records.lock import lock_folder
from needlemap.records.record import Record, outline, without_field_names
from needlemap.records.run_file import RUN, RunFile
from needlemap.text import counted
from needlemap.untrusted import check_size, read_json
from needlemap.version import SCHEMA

RECORDS = "records-*.jsonl"
CLOSED_BOOK = "closed-book.jsonl"


@dataclass(slots=True)
class LeftOut:
    """What a run's folder holds besides its records.

    Attributes:
        unreadable: Lines that are not records.
        foreign: Records of another run.
        torn: Lines that a kill or a full disk cut off.
        odd: Names of records files that are not plain files.
    """

    unreadable: int = 0
    foreign: int = 0
    torn: int = 0
    odd: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return notes for the user, a line for each kind of what was left out.

        >>> LeftOut(unreadable=22, foreign=1).notes()
        ['22 lines unreadable, left out', '1 record of another run, left out']
        """
        notes = [f"'{name}' is no file, left out" for name in self.odd]
        if self.unreadable:
            notes.append(f"{counted(self.unreadable, 'line')} unreadable, left out")
        if self.foreign:
            notes.append(f"{counted(self.foreign, 'record')} of another run, left out")
        if self.torn:
            lines = counted(self.torn, "line")
            notes.append(f"{lines} cut off by a kill or a full disk, left out")
        return notes


class Kept(Enum):
    """What a `RunFolder` keeps in memory of the records that it has read.

    OUTLINES take a quarter of the memory of RECORDS (`outline`).
    """

    NOTHING = auto()
    OUTLINES = auto()
    RECORDS = auto()


@dataclass(slots=True)
class _ReadFile:
    """A records file as far as it was read.

    Attributes:
        inode: Which file that was.
        size: The bytes of its whole lines.
        kept: Their records, if the folder keeps them.
        unreadable: Whole lines that are not records.
        last: The record of a last line without its end, which may still be written.
        torn: Whether that line is not a record.
    """

    inode: int = 0
    size: int = 0
    kept: list[Record] = field(default_factory=list)
    unreadable: int = 0
    last: tuple[Record, ...] = ()
    torn: bool = False

    def read_on(self, file: Path) -> Iterator[Record]:
        """Yield the records that were added since the last time.

        They are all records if another file took this one's place.
        """
        with open_regular(file) as stream:
            status = os.fstat(stream.fileno())
            if status.st_ino != self.inode or status.st_size < self.size:
                self.inode = status.st_ino
                self.size = 0
                self.unreadable = 0
                self.kept.clear()
            self.last = ()
            self.torn = False
            stream.seek(self.size)
            # Line by line, as a file may be larger than memory.
            for line in lines_of(stream):
                record = parse_record(line)
                is_whole = line.endswith(b"\n")
                if is_whole:
                    self.size += len(line)
                # Nothing behind a line of this size is read.
                if len(line) > MOST_LINE:
                    self.size = status.st_size

                if record is None and line.strip():
                    self.unreadable += is_whole
                    self.torn = not is_whole
                elif record is not None and is_whole:
                    yield record
                elif record is not None:
                    self.last = (record,)


class RunFolder:
    """One run on disk. Opening a folder creates nothing; `Writer` does.

    If it keeps its records, each line is read once: a file is read on from where it ended.

    Attributes:
        given: The path as it was typed.
        path: The same as a Path.
        left_out: What the last reading passed over.
    """

    def __init__(self, path: str | Path, keeps: Kept = Kept.NOTHING) -> None:
        self.given = str(path)
        self.path = Path(path)
        self._keeps = keeps
        self.left_out = LeftOut()
        self._files: dict[Path, _ReadFile] = {}
        # Parts that the outlines have in common.
        self._shared: dict[Any, Any] = {}

    @property
    def exists(self) -> bool:
        """Return True if the folder holds a run."""
        return is_regular(self.path / RUN_FILE)

    def about(self) -> RunFile:
        """Return run.json. Raise NeedlemapError if there is none, or if it cannot be read."""
        return RUN.read(self.path)

    @property
    def run_file(self) -> RunFile | None:
        """Return run.json, or None if the folder has none.

        Raise NeedlemapError if it cannot be read.
        """
        return self.about() if self.exists else None

    def records(self, *, texts: bool = True) -> Iterator[Record]:
        """Yield the records that count.

        Left out are those that a limit cut off, those of scorers from before `needlemap score`,
        and those of another rule of the run's scorer. texts: False if outlines are enough.
        """
        about = self.run_file
        for record in self.every_record(texts=texts):
            if record.is_skipped:
                continue
            scorer = record.scorer
            if about is not None and scorer is not None:
                is_earlier = any(map(scorer.is_same, about.earlier_scorers))
                if is_earlier or scorer.is_by_another_rule(about.scorer):
                    continue
            yield record

    def every_record(self, *, texts: bool = True) -> Iterator[Record]:
        """Yield all readable records of this run, file by file in the order of their names.

        The names start with the time. texts: False if outlines are enough.

        Raises NeedlemapError for a record of a newer needlemap.
        """
        self.left_out = LeftOut()
        about = self.run_file
        for file in records_files(self.path):
            yield from self.records_in(file, about, texts=texts)
        odd_names = [file.name for file in self.path.glob(RECORDS) if not is_regular(file)]
        self.left_out.odd = tuple(sorted(odd_names))

    def records_in(
        self, file: Path, about: RunFile | None, *, texts: bool = True
    ) -> Iterator[Record]:
        """Yield a file's readable records of this run. Count others in `left_out`."""
        for record in self._every_in(file, texts):
            if belongs_to(record, about):
                yield record
            else:
                self.left_out.foreign += 1

    def _every_in(self, file: Path, texts: bool) -> Iterator[Record]:
        """Yield a file's readable records of any run, and count all other lines in `left_out`."""
        has_no_texts = self._keeps is Kept.OUTLINES
        if self._keeps is Kept.NOTHING or (texts and has_no_texts):
            reading = _ReadFile()
            yield from reading.read_on(file)
        else:
            reading = self._files.setdefault(file, _ReadFile())
            for record in reading.read_on(file):
                reading.kept.append(outline(record, self._shared) if has_no_texts else record)
            yield from reading.kept
        yield from reading.last
        self.left_out.torn += reading.torn
        self.left_out.unreadable += reading.unreadable


def records_files(folder: Path) -> list[Path]:
    """Return the records files in a run's folder, oldest first, without pipes and devices."""
    return sorted(filter(is_regular, folder.glob(RECORDS)), key=lambda file: file.name)


def belongs_to(record: Record, about: RunFile | None) -> bool:
    """Return True if a record belongs to the run of that run.json, by the hash of its settings."""
    # Imported records have no such hash.
    if about is None or about.imported is not None:
        return True
    return record.run == about.identity


class Writer:
    """Holds a run's folder against other runs, and appends records to a file of its own in it.

    A thread writes one record after the other, so that a slow disk delays nothing else.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Raise NeedlemapError if another run holds the folder."""
        self._folder = folder.path
        make_folder(folder.path)
        self._lock = lock_folder(folder.path)
        self._file = (
            folder.path / f"records-{time.time_ns()}-{socket.gethostname()}-{os.getpid()}.jsonl"
        )
        self._descriptor: int | None = None
        self._size = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="needlemap-records")

    def describe(self, about: RunFile) -> None:
        """Write run.json."""
        write_json(self._folder / RUN_FILE, about.document())

    async def append(self, record: Record) -> None:
        """Return once the record is on the disk.

        It gets there even if the caller is cancelled meanwhile.
        """
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._append, record)
        writing.add_done_callback(_retrieve_error)
        await asyncio.shield(writing)

    def close(self) -> None:
        """Write the rest, and release the folder."""
        self._thread.shutdown(wait=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
        if self._lock is not None:
            self._lock.close()

    def _append(self, record: Record) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(
                self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600
            )
            _sync(self._folder)
        line = record.line()
        try:
            _write(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError:
            # A full disk: the next record must not continue half a line.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)


def _retrieve_error(writing: asyncio.Future[None]) -> None:
    """Mark an error as seen.

    A cancelled caller does not retrieve it, and asyncio would print it although the first one has
    ended the run.
    """
    if not writing.cancelled():
        writing.exception()


def _write(descriptor: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _sync(folder: Path) -> None:
    """Write a new file's name to the disk.

    Otherwise a power cut may leave bytes without a name.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_record(line: bytes) -> Record | None:
    """Return a line's record, or None if the line is not a record.

    Raise NeedlemapError if a newer needlemap wrote the record.
    """
    try:
        check_size(line)
        record = without_field_names(Record.model_validate_json(line))
        schema = record.schema_version
    except ValueError:
        record = None
        schema = _schema(line)

    if schema > SCHEMA:
        raise NeedlemapError(
            f"A record was written by a newer needlemap (schema {schema}, this one reads up to "
            f"{SCHEMA}). {NEWER}"
        )
    return record


def _schema(line: bytes) -> int:
    """Return the schema of a line that is not a record of ours, or 0 if it names none."""
    try:
        value = read_json(line)
    except ValueError:
        return 0
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if isinstance(schema, int) else 0
