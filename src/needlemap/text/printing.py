"""Print text so that nothing in it moves the terminal's cursor or hides what follows."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from io import TextIOWrapper
from typing import IO

# Unicode categories: controls, formats (with those that turn the direction), halves and separators.
_HARMFUL = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_KEPT = "\n\t"
# What any reader takes for the end of a line.
LINE_BREAKS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# A spreadsheet runs a cell that starts with one of these.
FORMULA_STARTS = tuple(f"=+-@\t＝＋－＠{LINE_BREAKS}")
# No characters, which `printable` does not drop. A file of XML that holds one cannot be read.
_NOT_XML = {0xFFFE: None, 0xFFFF: None}
_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")


def printable(text: str, *, line: bool = False) -> str:
    """Return a text without control sequences.

    Nothing in it moves the cursor, sets a title or hides what follows. line: return one line.

    >>> printable("\\x1b]0;owned\\x07 51328\\u202e"), printable("a\\nb", line=True)
    (']0;owned 51328', 'a b')
    """
    if line:
        text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter for letter in text if not is_unseen(letter))


def xml_text(text: str, *, line: bool = False) -> str:
    """Return a text without control sequences, as XML 1.0 may hold it. line: return one line."""
    return printable(text, line=line).translate(_NOT_XML)


def is_unseen(letter: str) -> bool:
    """Return True if a letter is a control, a format or a half, and not a line break or tab."""
    return letter not in _KEPT and unicodedata.category(letter) in _HARMFUL


def whole_characters(text: str) -> str:
    """Return a text in which half characters are U+FFFD.

    JSON's escapes allow them, and UTF-8 has no bytes for them.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "trial"), counted(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def short(tokens: int) -> str:
    """Return a number of tokens in about three digits.

    >>> short(4_512_345), short(78_988_000), short(950)
    ('4.51M', '79.0M', '950')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if tokens >= size:
            decimals = 2 if tokens < 10 * size else 1
            return f"{tokens / size:.{decimals}f}{unit}"
    return str(tokens)


def dollars(usd: float | None) -> str:
    """Return an amount to the cent, or a question mark if no price is known."""
    return "?" if usd is None else f"{usd:,.2f}"


def show(*texts: object, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print texts without control sequences, by default to standard output."""
    print(*(printable(str(text)) for text in texts), file=file, end=end, flush=flush)


def tell(*texts: object) -> None:
    """Print messages, which are not the result, to standard error and at once.

    They are printed without control sequences.
    """
    show(*texts, file=sys.stderr, flush=True)


def show_data(text: str) -> None:
    """Write data (JSON, lines) to standard output: printable for a terminal, else as it is."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(text))
    else:
        sys.stdout.write(_encodable(text))


def show_json(document: object) -> None:
    """Write one JSON document to standard output, as data."""
    show_data(f"{json.dumps(document, indent=1, ensure_ascii=False)}\n")


def end_output() -> None:
    """Write what is left for standard output, or drop it if nobody reads on.

    Raises OSError if it cannot be written, as on a full disk.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is left must not be tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def sound_streams() -> None:
    """Let a command continue if a stream is closed or cannot hold a character.

    What it measures is kept in files.
    """
    # Descriptors 0 to 2 that are closed are opened, so that no file of ours gets their numbers.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _encodable(text: str) -> str:
    """Return JSON as standard output can hold it: with escapes, which mean the same.

    Other data is returned as it is.
    """
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        if text[:1] in ("{", "["):
            return _BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return text


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]
