"""Text as a terminal may show it: nothing in it moves a cursor or hides what follows."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from io import TextIOWrapper
from typing import IO

_HARMFUL = (
    "Cc",
    "Cf",
    "Cs",
    "Co",
    "Zl",
    "Zp",
)  # controls, formats (also those that turn the direction), halves
_KEPT = "\n\t"
LINE_BREAKS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # what any reader takes for the end of a line
FORMULA_STARTS = tuple(f"=+-@\t＝＋－＠{LINE_BREAKS}")  # of what a spreadsheet runs


def printable(text: str, *, line: bool = False) -> str:
    """A text without control sequences: nothing in it moves the cursor, sets a title or hides
    what follows.

    line: as one line.

    >>> printable("\\x1b]0;owned\\x07 51328\\u202e"), printable("a\\nb", line=True)
    (']0;owned 51328', 'a b')
    """
    if line:
        text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter for letter in text if not is_unseen(letter))


def is_unseen(letter: str) -> bool:
    """Whether a letter is a control, a format or a half, but no line break or tab."""
    return letter not in _KEPT and unicodedata.category(letter) in _HARMFUL


def whole_characters(text: str) -> str:
    """A text in which half characters, which JSON's escapes allow and UTF-8 has no bytes for,
    are U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "trial"), counted(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def short(tokens: int) -> str:
    """A number of tokens in three or four digits.

    >>> short(4_512_345), short(78_988_000), short(950)
    ('4.51M', '79.0M', '950')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if tokens >= size:
            return f"{tokens / size:.{2 if tokens < 10 * size else 1}f}{unit}"
    return str(tokens)


def dollars(usd: float | None) -> str:
    """An amount to the cent; a question mark where no price is known."""
    return "?" if usd is None else f"{usd:,.2f}"


def show(*texts: object, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print texts, by default to standard output, without control sequences, whoever they are
    from."""
    print(*(printable(str(text)) for text in texts), file=file, end=end, flush=flush)


def tell(*texts: object) -> None:
    """Print texts beside the result, to standard error and at once, without control
    sequences."""
    show(*texts, file=sys.stderr, flush=True)


def show_data(text: str) -> None:
    """Write data (JSON, lines) to standard output: as it is for a program, printable for a
    terminal."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else _encodable(text))


def sound_streams() -> None:
    """Let output go on where a stream is closed or cannot hold a character: what is asked is
    kept in files."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _encodable(text: str) -> str:
    """JSON as standard output can hold it: with escapes, which mean the same. Other data as it
    is."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        if text[:1] in ("{", "["):
            return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text


_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, cells, wide)).rstrip() for cells in rows]
