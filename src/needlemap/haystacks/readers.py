"""A file's text: plain text here, HTML and PDF by readers in a process of their own.

A stranger's document is data: nothing in it is run or fetched, and the process that reads it gets little
time and memory, none of the environment's secrets, and is ended where it takes more.
"""

from __future__ import annotations

import atexit
import codecs
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer

from needlemap.errors import HaystackError
from needlemap.haystacks import reader_process

MOST_BYTES = 256 << 20  # of one file
WAIT_S = 4 * reader_process.SECONDS  # for a reader on a busy machine
READERS = {"html": "inscriptis", "pdf": "pypdf"}  # and their packages
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "HOME", "TMPDIR")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Unreadable(Exception):
    """Why a file is left out, in a few words."""


def read_bytes(file: Path) -> bytes:
    """A file's bytes. Raises Unreadable for one without permission, or too large."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Unreadable(f"larger than {MOST_BYTES >> 20} MB: split -C 200M makes smaller ones")
        return file.read_bytes()
    except PermissionError:
        raise Unreadable("no permission") from None
    except OSError as error:
        raise Unreadable(error.strerror or type(error).__name__) from None


def decoded(raw: bytes, file: Path, marks: Mapping[bytes, str] = _MARKS) -> str:
    """A text of UTF-8, or of UTF-16 with a mark, as text mode reads it. Raises HaystackError for another."""
    mark = next((mark for mark in marks if raw.startswith(mark)), b"")
    encoding = marks.get(mark, "utf-8")
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        offset = error.start + len(mark)
        raise HaystackError(
            f"'{file}' is not {encoding[:6].upper()}: bad byte 0x{raw[offset]:02x} at offset {offset}. "
            f"Convert it, for instance: iconv -f latin1 -t utf-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(file: Path, *, marks: bool = True) -> str:
    """A text file's text. marks: whether a first mark says how it is written; else it is a part of the text.

    Raises HaystackError with what is wrong with it.
    """
    try:
        return decoded(read_bytes(file), file, _MARKS if marks else {})
    except Unreadable as error:
        raise HaystackError(f"'{file}' cannot be read: {error}.") from None


def missing_readers(kinds: set[str]) -> list[str]:
    """Those of some kinds of files whose reader is not installed."""
    return sorted(kind for kind in kinds if kind in READERS and find_spec(READERS[kind]) is None)


def converted(file: Path, kind: str) -> str:
    """The text of an HTML or PDF file. Raises Unreadable, HaystackError for HTML in another encoding."""
    stat = file.stat()
    text, why = _converted(file, kind, stat.st_size, stat.st_mtime_ns)
    if why:
        raise Unreadable(why)
    return text


@lru_cache(512)  # each repeat, and each mode of a plan, reads the same
def _converted(file: Path, kind: str, _size: int, _changed: int) -> tuple[str, str]:
    """A file's text, and why it has none."""
    try:
        data = read_bytes(file)
        if kind == "html":
            data = decoded(data, file).encode()
        text = _process().text(kind, data).decode("utf-8")
    except Unreadable as error:
        return "", str(error)
    return text, "" if text.strip() else "no text in it"


@cache
def _process() -> Process:
    """The one process of this program that reads documents, ended with it."""
    made = Process()
    atexit.register(made.close)
    return made


class Process:
    """A reader in a process of its own, which is started when it is asked, and again where it ended."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s, self._lock = wait_s, Lock()
        self._running: subprocess.Popen[bytes] | None = None

    def text(self, kind: str, data: bytes) -> bytes:
        """A document's text as UTF-8. Raises Unreadable."""
        with self._lock:
            process = self._running or self._start()
            timer = Timer(self._wait_s, process.kill)
            timer.start()
            try:
                reply = _ask(process, kind, data)
            except (OSError, ValueError):  # it is no more
                self.close()
                most = f"{reader_process.SECONDS} s or {reader_process.MEMORY >> 30} GB"
                raise Unreadable(f"takes more than {most} to read") from None
            finally:
                timer.cancel()
        if isinstance(reply, str):
            raise Unreadable(f"no {kind.upper()} that can be read: {reply}")
        return reply

    def close(self) -> None:
        """End it, if it runs."""
        process, self._running = self._running, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._running = subprocess.Popen(
            [sys.executable, "-P", reader_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
        )
        return self._running


def _ask(process: subprocess.Popen[bytes], kind: str, data: bytes) -> bytes | str:
    """The text, or what is wrong with the document. Raises OSError or ValueError where the process ended."""
    source, sink = process.stdout, process.stdin
    if source is None or sink is None:
        raise ValueError("no pipes")
    sink.write(json.dumps({"kind": kind, "bytes": len(data)}).encode() + b"\n" + data)
    sink.flush()
    reply = json.loads(source.readline())
    if "error" in reply:
        return str(reply["error"])
    text = source.read(reply["bytes"])
    if len(text) < reply["bytes"]:
        raise ValueError("cut off")
    return text
