"""A file's text: plain text here, HTML and PDF by this file as a program, in a process of its own.

A stranger's document is data: nothing in it is run or fetched, and the process that reads it gets
little time and memory, none of the environment's secrets, and is ended where it takes more. Of
needlemap that imports the errors and the clock alone. It reads {"kind", "bytes"} and so many bytes
from its input, writes {"bytes"} and the text, or {"error"}, and so on until its input ends. Each
document gets `SECONDS` of processor time, all of them `MEMORY` bytes.
"""

from __future__ import annotations

import atexit
import codecs
import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer

from needlemap.deadline import seconds_left
from needlemap.errors import HaystackError

MOST_BYTES = 256 << 20  # of one file
SECONDS, MEMORY = 30, 1 << 30
MOST_TEXT = 64 << 20  # bytes
_FEW_NULS = 0.1  # of a text's characters: a disk's image has more, and so has UTF-16 without a mark
WAIT_S = 4 * SECONDS  # for a reader on a busy machine
READERS = {"html": "inscriptis", "pdf": "pypdf"}  # and their packages
_ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "HOME",
    "TMPDIR",
)
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


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
    """A text of UTF-8, or of UTF-16 with a mark, as text mode reads it. Raises HaystackError
    for another, Unreadable for what is hardly text."""
    mark = next((mark for mark in marks if raw.startswith(mark)), b"")
    encoding = marks.get(mark, "utf-8")
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        offset = error.start + len(mark)
        raise HaystackError(
            f"'{file}' is not {encoding[:6].upper()}: bad byte 0x{raw[offset]:02x} at offset "
            f"{offset}. "
            f"Convert it, for instance: iconv -f latin1 -t utf-8"
        ) from None
    nuls = text.count("\0")
    if nuls > _FEW_NULS * len(text):
        raise Unreadable(f"{nuls:,} of its {len(text):,} characters are NUL: it is not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(file: Path, *, marks: bool = True) -> str:
    """A text file's text. marks: whether a first mark says how it is written; else it is a
    part of the text.

    Raises HaystackError with the reason.
    """
    try:
        return decoded(read_bytes(file), file, _MARKS if marks else {})
    except Unreadable as error:
        raise HaystackError(f"'{file}' cannot be read: {error}.") from None


def missing_readers(kinds: set[str]) -> list[str]:
    """Those of some kinds of files whose reader is not installed."""
    return sorted(kind for kind in kinds if kind in READERS and find_spec(READERS[kind]) is None)


def converted(file: Path, kind: str) -> str:
    """The text of an HTML or PDF file. Raises Unreadable, HaystackError for HTML in another
    encoding."""
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
    """A reader in a process of its own, which is started when it is asked, and again where it
    ended."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s, self._lock = wait_s, Lock()
        self._running: subprocess.Popen[bytes] | None = None

    def text(self, kind: str, data: bytes) -> bytes:
        """A document's text as UTF-8. Raises Unreadable."""
        with self._lock:
            process = self._running or self._start()
            timer = Timer(seconds_left(self._wait_s), process.kill)
            timer.start()
            try:
                reply = _ask(process, kind, data)
            except (OSError, ValueError):  # it is no more
                self.close()
                seconds_left()  # a command's own limit has words of its own
                most = f"{SECONDS} s or {MEMORY >> 30} GB"
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
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
        )
        return self._running


def _ask(process: subprocess.Popen[bytes], kind: str, data: bytes) -> bytes | str:
    """The text, or the reason why the document has none. Raises OSError or ValueError where
    the process ended."""
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


def pdf_text(data: bytes) -> str:
    """The pages of a PDF, a blank line between. Raises whatever pypdf does, and ValueError
    with what that passed over where no text is left."""
    from pypdf import PdfReader

    passed_over = _heard("pypdf")
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is encrypted")
    parts, size = [], 0
    for page in reader.pages:
        parts.append(page.extract_text())
        size += len(parts[-1])
        if size > MOST_TEXT:
            raise MemoryError
    text = "\n\n".join(filter(None, (part.strip() for part in parts)))
    if passed_over and not text:
        raise ValueError(passed_over[0])
    return text


def _heard(logger: str) -> list[str]:
    """What a library warns of from now on, which it else writes to the terminal."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).handlers = [handler]
    return said


def html_text(data: bytes) -> str:
    """What a page shows, without scripts, styles and what stands there for browsers without
    scripts."""
    from inscriptis.css_profiles import CSS_PROFILES
    from inscriptis.html_engine import Inscriptis
    from inscriptis.html_properties import Display
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_element import HtmlElement
    from lxml.etree import ParserError
    from lxml.html import HTMLParser, document_fromstring

    unseen = {tag: HtmlElement(tag=tag, display=Display.none) for tag in ("noscript", "template")}
    whole = HTMLParser(
        encoding="utf-8", huge_tree=True
    )  # else what is deep or long is cut without a word
    try:
        tree = document_fromstring(data, parser=whole)
    except ParserError:  # nothing in it
        return ""
    text: str = Inscriptis(tree, ParserConfig(css={**CSS_PROFILES["relaxed"], **unseen})).get_text()
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


KINDS: dict[str, Callable[[bytes], str]] = {"pdf": pdf_text, "html": html_text}


def limit_memory() -> None:
    """No more memory than `MEMORY`, no files and no dumps of memory, where the system can hold
    to it."""
    with suppress(ImportError):
        import resource

        kinds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_AS: MEMORY}
        for kind, most in kinds.items():
            with suppress(ValueError, OSError):
                resource.setrlimit(kind, (most, most))


def limit_time() -> None:
    """So many seconds of processor time from now on."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, hard))


def read(kind: str, data: bytes) -> bytes:
    """A document's text as UTF-8. Raises ValueError with the reason, and MemoryError."""
    try:
        text = KINDS[kind](data)
    except MemoryError:
        raise
    except Exception as error:  # of whatever a stranger's file brings a reader to
        raise ValueError(" ".join(str(error).split())[:120] or type(error).__name__) from None
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MOST_TEXT:
        raise MemoryError
    return encoded


def main() -> None:
    """Answer until the input ends, or memory does."""
    limit_memory()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        asked = json.loads(line)
        data = source.read(asked["bytes"])
        limit_time()
        try:
            text = read(asked["kind"], data)
            sink.write(json.dumps({"bytes": len(text)}).encode() + b"\n" + text)
        except ValueError as error:
            sink.write(json.dumps({"error": str(error)}).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    main()
