"""A run's folder: run.json and one records file per process. Nothing that was scored is ever lost.

Every record is one line, written at once and fsynced. A torn line (power cut) is dropped on
reading. No two processes write one file, so the same layout serves a laptop and a network file
system. A folder may come from anywhere: what in it is no record of its run is left out, and counted
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
from needlemap.records.record import Record, outline, share_field_names
from needlemap.records.run_file import RUN, RuledScorer, RunFile
from needlemap.text import counted
from needlemap.untrusted import check_parts, parts_in, read_json
from needlemap.version import SCHEMA

RECORDS = "records-*.jsonl"
CLOSED_BOOK = "closed-book.jsonl"


@dataclass(slots=True)
class LeftOut:
    """Lines and files in a run's folder that are no record of it. unreadable: lines that are
    no record; foreign: records of another run; torn: lines that a kill or a full disk cut off;
    odd: names that belong to no plain file."""

    unreadable: int = 0
    foreign: int = 0
    torn: int = 0
    odd: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """What a user should know, a line each.

        >>> LeftOut(unreadable=22, foreign=1).notes()
        ['22 lines unreadable, left out', '1 record of another run, left out']
        """
        notes = [f"'{name}' is no file, left out" for name in self.odd]
        notes += (
            [f"{counted(self.unreadable, 'line')} unreadable, left out"] if self.unreadable else []
        )
        notes += (
            [f"{counted(self.foreign, 'record')} of another run, left out"] if self.foreign else []
        )
        cut = f"{counted(self.torn, 'line')} cut off by a kill or a full disk, left out"
        return notes + ([cut] if self.torn else [])


class Kept(Enum):
    """What a `RunFolder` keeps of the records that it has read, for the next time that they are
    wanted. OUTLINES: a quarter of the memory (`outline`)."""

    NOTHING = auto()
    OUTLINES = auto()
    RECORDS = auto()


@dataclass(slots=True)
class _ReadFile:
    """A records file as far as it was read. inode: which file that was. size: bytes of its whole
    lines. kept: their records, where these are kept.

    last: the record of a last line without its end, which may still be written; torn: it is none.
    """

    inode: int = 0
    size: int = 0
    kept: list[Record] = field(default_factory=list)
    unreadable: int = 0
    last: tuple[Record, ...] = ()
    torn: bool = False

    def read_on(self, file: Path) -> Iterator[Record]:
        """The records that came since the last time; all, of a file that another took the place
        of. Line by line: a file may be larger than memory."""
        with open_regular(file) as opened:
            now = os.fstat(opened.fileno())
            if now.st_ino != self.inode or now.st_size < self.size:
                self.inode, self.size, self.unreadable = now.st_ino, 0, 0
                self.kept.clear()
            self.last, self.torn = (), False
            opened.seek(self.size)
            for line in lines_of(opened):
                record, whole = parsed(line), line.endswith(b"\n")
                self.size += len(line) if whole else 0
                if len(line) > MOST_LINE:  # nothing behind it is read
                    self.size = now.st_size
                if record is None and line.strip():
                    self.unreadable += whole
                    self.torn = not whole
                elif record is not None and whole:
                    yield record
                elif record is not None:
                    self.last = (record,)


class RunFolder:
    """One run on disk. Opening a folder creates nothing; `Writer` does.

    given: the path as it was typed. keeps: what is kept of its records. Of those each line is read
    once, however often they are wanted: a file is read on from where it ended at the last look.
    left_out: what the last reading passed over.
    """

    def __init__(self, path: str | Path, keeps: Kept = Kept.NOTHING) -> None:
        self.given, self.path, self._keeps = str(path), Path(path), keeps
        self.left_out = LeftOut()
        self._files: dict[Path, _ReadFile] = {}
        self._shared: dict[Any, Any] = {}  # parts of outlines

    @property
    def exists(self) -> bool:
        """Whether a run is there."""
        return is_regular(self.path / RUN_FILE)

    def about(self) -> RunFile:
        """run.json. Raises NeedlemapError when there is none, or it cannot be read."""
        return RUN.read(self.path)

    @property
    def run_file(self) -> RunFile | None:
        """run.json; None where no run is there. Raises NeedlemapError when it cannot be read."""
        return self.about() if self.exists else None

    def records(self, *, texts: bool = True) -> Iterator[Record]:
        """The readable records, but those by scorers that it was scored with before `needlemap
        score`, by other rules of its scorer, and of what a limit cut off, which was not asked.
        texts: False where outlines do."""
        about, every = self.run_file, self.every_record(texts=texts)
        if about is None:
            yield from (record for record in every if not record.is_skipped)
            return
        now, earlier = about.scorer, about.earlier_scorers
        for record in every:
            scorer = scorer_of(record)
            if record.is_skipped:
                continue
            if scorer is None or not (scorer in earlier or scorer.is_by_another_rule(now)):
                yield record

    def every_record(self, *, texts: bool = True) -> Iterator[Record]:
        """All readable records of this run, file by file as they were begun: their names start with
        the time. texts: False where outlines do.

        Raises NeedlemapError for one of a newer needlemap.
        """
        self.left_out = LeftOut()
        about = self.run_file
        for file in records_files(self.path):
            yield from self.records_in(file, about, texts=texts)
        odd = [file.name for file in self.path.glob(RECORDS) if not is_regular(file)]
        self.left_out.odd = tuple(sorted(odd))

    def records_in(
        self, file: Path, about: RunFile | None, *, texts: bool = True
    ) -> Iterator[Record]:
        """A file's readable records, if they are of the run of that run.json; others are
        counted. texts: False where outlines do."""
        for record in self._every_in(file, texts):
            if is_of(record, about):
                yield record
            else:
                self.left_out.foreign += 1

    def _every_in(self, file: Path, texts: bool) -> Iterator[Record]:
        """A file's readable records, whatever run they are of; lines that are none are counted."""
        if self._keeps is Kept.NOTHING or (texts and self._keeps is Kept.OUTLINES):
            read = _ReadFile()
            yield from read.read_on(file)
        else:
            read = self._files.setdefault(file, _ReadFile())
            whole = self._keeps is Kept.RECORDS
            for record in read.read_on(file):
                read.kept.append(record if whole else outline(record, self._shared))
            yield from read.kept
        yield from read.last
        self.left_out.torn += read.torn
        self.left_out.unreadable += read.unreadable


def records_files(folder: Path) -> list[Path]:
    """The records files in a run's folder, as they were begun: neither pipes nor devices of such a
    name."""
    return sorted(filter(is_regular, folder.glob(RECORDS)), key=lambda file: file.name)


def is_of(record: Record, about: RunFile | None) -> bool:
    """Whether a record belongs to the run of that run.json: by the hash of its settings;
    imported ones by nothing."""
    return about is None or about.imported is not None or record.run == about.identity


class Writer:
    """Holds a run's folder against other runs, and appends records to a file of its own in it.

    A thread of its own writes, so that a slow disk holds nothing else up, one record after the
    other.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Raises NeedlemapError when another run holds the folder."""
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
        """Return when the record is on the disk. It gets there even if the caller is cancelled
        meanwhile."""
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._append, record)
        written.add_done_callback(_heard)
        await asyncio.shield(written)

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
        except OSError:  # a full disk: leave no half line for the next record to be glued to
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)


def _heard(written: asyncio.Future[None]) -> None:
    """Look at an error that no cancelled caller asks for, or it is printed: the first one ended the
    run."""
    if not written.cancelled():
        written.exception()


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync(folder: Path) -> None:
    """Make a new file's name last: without this, a power cut may leave its bytes without a name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parsed(line: bytes) -> Record | None:
    """A line's record; None for a torn one. Raises NeedlemapError for one of a newer needlemap."""
    try:
        check_parts(parts_in(line), len(line))
        record = share_field_names(Record.model_validate_json(line))
        schema = record.schema_version
    except ValueError:
        record, schema = None, _schema(line)
    if schema > SCHEMA:
        raise NeedlemapError(
            f"A record was written by a newer needlemap (schema {schema}, this one reads up to "
            f"{SCHEMA}). {NEWER}"
        )
    return record


def _schema(line: bytes) -> int:
    """The schema of a line that is no record of ours; 0 where it has none."""
    try:
        found = read_json(line)
    except ValueError:
        return 0
    schema = found.get("schema") if isinstance(found, dict) else None
    return schema if isinstance(schema, int) else 0


def scorer_of(record: Record) -> RuledScorer | None:
    """A record's scorer as run.json names it; None where nothing was scored."""
    scorer = record.scorer
    if scorer is None:
        return None
    return RuledScorer(name=scorer.name, options=scorer.options, rule=scorer.rule)
