"""Read a file's text: plain text here, HTML and PDF in a process of its own.

A stranger's document is data: nothing in it is run or fetched. The process that reads it gets
little time and memory and none of the environment's secrets, and is ended if it takes more. This
file is that process's program. Of needlemap it imports only the errors and the clock.

The program reads {"kind", "bytes"} and so many bytes from its input. It writes {"bytes"} and the
text, or {"error"}, and repeats that until its input ends. Each document gets `SECONDS` of processor
time, and all documents together `MEMORY` bytes.
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

# Bytes of one file.
MOST_BYTES = 256 << 20
# Limits of the process that reads documents.
SECONDS = 30
MEMORY = 1 << 30
# Bytes of one text.
MOST_TEXT = 64 << 20
# Share of a text's characters. The image of a disk has more, and so has UTF-16 without a mark.
_FEW_NULS = 0.1
# For a reader on a busy machine.
WAIT_S = 4 * SECONDS
# Packages by the kind of file that they read.
READERS = {"html": "inscriptis", "pdf": "pypdf"}
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
    """A file is left out. The message has the reason in a few words."""


def read_bytes(file: Path) -> bytes:
    """Return a file's bytes. Raises Unreadable for one that is forbidden or too large."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Unreadable(f"larger than {MOST_BYTES >> 20} MB: split -C 200M makes smaller ones")
        return file.read_bytes()
    except PermissionError:
        raise Unreadable("no permission") from None
    except OSError as error:
        raise Unreadable(error.strerror or type(error).__name__) from None


def decoded(raw: bytes, file: Path, marks: Mapping[bytes, str] = _MARKS) -> str:
    """Decode a text of UTF-8, or of UTF-16 with a mark, as Python's text mode does.

    marks: encodings by the mark that a text starts with. Raises HaystackError for another encoding,
    and Unreadable for something that is hardly text.
    """
    mark = next((mark for mark in marks if raw.startswith(mark)), b"")
    encoding = marks.get(mark, "utf-8")
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        offset = error.start + len(mark)
        raise HaystackError(
            f"'{file}' is not {encoding[:6].upper()}: bad byte 0x{raw[offset]:02x} at offset "
            f"{offset}. Convert it, for instance: iconv -f latin1 -t utf-8"
        ) from None
    nuls = text.count("\0")
    if nuls > _FEW_NULS * len(text):
        raise Unreadable(f"{nuls:,} of its {len(text):,} characters are NUL: it is not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(file: Path, *, marks: bool = True) -> str:
    """Return the text of a text file.

    marks: whether a mark at its start tells how it is encoded; if not, it is a part of the text.
    Raises HaystackError with the reason.
    """
    try:
        return decoded(read_bytes(file), file, _MARKS if marks else {})
    except Unreadable as error:
        raise HaystackError(f"'{file}' cannot be read: {error}.") from None


def missing_readers(kinds: set[str]) -> list[str]:
    """Return the kinds of files whose reader is not installed."""
    return sorted(kind for kind in kinds if kind in READERS and find_spec(READERS[kind]) is None)


def converted(file: Path, kind: str) -> str:
    """Return the text of an HTML or PDF file.

    Raises Unreadable, and HaystackError for HTML in another encoding.
    """
    stat = file.stat()
    text, reason = _converted(file, kind, stat.st_size, stat.st_mtime_ns)
    if reason:
        raise Unreadable(reason)
    return text


# Each repeat, and each mode of a plan, reads the same files.
@lru_cache(512)
def _converted(file: Path, kind: str, _size: int, _changed: int) -> tuple[str, str]:
    """Return a file's text, and the reason why it has none, or ''."""
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
    """Return the one process of this program that reads documents. It ends with the program."""
    process = Process()
    atexit.register(process.close)
    return process


class Process:
    """A reader in a process of its own.

    It starts with the first document, and again after it has ended.
    """

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._lock = Lock()
        self._running: subprocess.Popen[bytes] | None = None

    def text(self, kind: str, data: bytes) -> bytes:
        """Return a document's text as UTF-8.

        Raises Unreadable if the document cannot be read within the limits.
        """
        with self._lock:
            process = self._running or self._start()
            timer = Timer(seconds_left(self._wait_s), process.kill)
            timer.start()
            try:
                reply = _ask(process, kind, data)
            except (OSError, ValueError):
                # The process has ended.
                self.close()
                # The command's own limit has an error of its own.
                seconds_left()
                limits = f"{SECONDS} s or {MEMORY >> 30} GB"
                raise Unreadable(f"takes more than {limits} to read") from None
            finally:
                timer.cancel()
        if isinstance(reply, str):
            raise Unreadable(f"no {kind.upper()} that can be read: {reply}")
        return reply

    def close(self) -> None:
        """End the process if it runs."""
        process = self._running
        self._running = None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        variables = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._running = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables,
        )
        return self._running


def _ask(process: subprocess.Popen[bytes], kind: str, data: bytes) -> bytes | str:
    """Return a document's text as UTF-8 bytes, or the reason why it has none as str.

    Raises OSError or ValueError if the process has ended.
    """
    source = process.stdout
    sink = process.stdin
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
    """Return the pages of a PDF, with a blank line between.

    Raises anything that pypdf raises, and ValueError with pypdf's first warning if no text is left.
    """
    from pypdf import PdfReader

    warnings = _warnings_of("pypdf")
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is encrypted")
    pages = []
    size = 0
    for page in reader.pages:
        pages.append(page.extract_text())
        size += len(pages[-1])
        if size > MOST_TEXT:
            raise MemoryError
    text = "\n\n".join(filter(None, (page.strip() for page in pages)))
    if warnings and not text:
        raise ValueError(warnings[0])
    return text


def _warnings_of(logger: str) -> list[str]:
    """Return a list that collects a library's warnings, which are not written to the terminal."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).handlers = [handler]
    return messages


def html_text(data: bytes) -> str:
    """Return the text that a page shows.

    Scripts and styles are left out, and so is text for browsers without scripts.
    """
    from inscriptis.css_profiles import CSS_PROFILES
    from inscriptis.html_engine import Inscriptis
    from inscriptis.html_properties import Display
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_element import HtmlElement
    from lxml.etree import ParserError
    from lxml.html import HTMLParser, document_fromstring

    hidden = {tag: HtmlElement(tag=tag, display=Display.none) for tag in ("noscript", "template")}
    # Without `huge_tree`, a deep or long page is cut without a warning.
    parser = HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        tree = document_fromstring(data, parser=parser)
    except ParserError:
        # There is nothing in it.
        return ""
    text: str = Inscriptis(tree, ParserConfig(css={**CSS_PROFILES["relaxed"], **hidden})).get_text()
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


KINDS: dict[str, Callable[[bytes], str]] = {"pdf": pdf_text, "html": html_text}


def limit_memory() -> None:
    """Limit memory to `MEMORY`, and allow no files and no dumps of memory.

    Does nothing if the system has no such limits.
    """
    with suppress(ImportError):
        import resource

        limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_AS: MEMORY}
        for kind, limit in limits.items():
            with suppress(ValueError, OSError):
                resource.setrlimit(kind, (limit, limit))


def limit_time() -> None:
    """Limit processor time to `SECONDS` from now on."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, hard))


def read(kind: str, data: bytes) -> bytes:
    """Return a document's text as UTF-8. Raises ValueError with the reason, or MemoryError."""
    try:
        text = KINDS[kind](data)
    except MemoryError:
        raise
    except Exception as error:
        # A stranger's file can bring a reader to raise anything.
        raise ValueError(" ".join(str(error).split())[:120] or type(error).__name__) from None
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MOST_TEXT:
        raise MemoryError
    return encoded


def main() -> None:
    """Answer until the input ends, or memory does."""
    limit_memory()
    source = sys.stdin.buffer
    sink = sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        data = source.read(request["bytes"])
        limit_time()
        try:
            text = read(request["kind"], data)
            sink.write(json.dumps({"bytes": len(text)}).encode() + b"\n" + text)
        except ValueError as error:
            sink.write(json.dumps({"error": str(error)}).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    main()
