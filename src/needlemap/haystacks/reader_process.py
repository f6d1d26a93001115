"""The process that turns HTML and PDF into text: a program of its own, which imports nothing of needlemap.

`readers.py` runs it.
It reads {"kind", "bytes"} and so many bytes from its input, writes {"bytes"} and the text, or {"error"}, and
so on until its input ends. Each document gets `SECONDS` of processor time, all of them `MEMORY` bytes.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress

SECONDS, MEMORY = 30, 1 << 30
MOST_TEXT = 64 << 20  # bytes


def pdf_text(data: bytes) -> str:
    """The pages of a PDF, a blank line between. Raises whatever pypdf does, and ValueError with what that
    passed over where no text is left."""
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
    """What a page shows, without scripts, styles and what stands there for browsers without scripts."""
    from inscriptis.css_profiles import CSS_PROFILES
    from inscriptis.html_engine import Inscriptis
    from inscriptis.html_properties import Display
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_element import HtmlElement
    from lxml.etree import ParserError
    from lxml.html import HTMLParser, document_fromstring

    unseen = {tag: HtmlElement(tag=tag, display=Display.none) for tag in ("noscript", "template")}
    whole = HTMLParser(encoding="utf-8", huge_tree=True)  # else what is deep or long is cut without a word
    try:
        tree = document_fromstring(data, parser=whole)
    except ParserError:  # nothing in it
        return ""
    text: str = Inscriptis(tree, ParserConfig(css={**CSS_PROFILES["relaxed"], **unseen})).get_text()
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


KINDS: dict[str, Callable[[bytes], str]] = {"pdf": pdf_text, "html": html_text}


def limit_memory() -> None:
    """No more memory than `MEMORY`, no files and no dumps of memory, where the system can hold to it."""
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
    """A document's text as UTF-8. Raises ValueError with what is wrong with it, MemoryError."""
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
