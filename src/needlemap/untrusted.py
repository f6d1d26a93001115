"""Clean the values that others sent, in one place.

They come from replies of servers, answers of a user's own functions, and records, run folders and
logs that somebody passed on.

A value is cleaned where it enters: `Answer` cleans a model's answer, `Record` the contents of a
file, and the readers of other tools' results use the same functions. What comes out of them fits
into every file that needlemap writes, and no code after them cleans it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# JSON readers disagree about larger whole numbers, as most of them hold numbers as doubles.
MOST_WHOLE = 2**53
# Levels of JSON that are kept. No reply of a known server has more than 12; Python's own reader
# and writer give up at some 1,000.
DEEPEST = 100
# Values in a JSON text, and one more for so many of its bytes. Each takes 60 to 240 bytes in
# memory, so that a text of brackets would fill it. Streams of the shortest events have one for
# every 10 bytes, other replies one for every 20.
_FEW_PARTS = 1_000_000
_BYTES_A_PART = 16
# Characters of a model's name, of a finish reason and of a token.
LONGEST_NAME = 200
# Characters of a usage report as JSON. The longest one known, of a router, has 2,000.
LONGEST_USAGE = 20_000
# OpenAI and vLLM report this for a token that cannot come.
LOWEST_NATS = -9_999.0
# A sum of rounded logarithms may come out this much above 0.
_ROUNDED_UP = 0.01


class OutOfBounds(ValueError):
    """A JSON text is nested too deeply, or would take many times its own size in memory."""


def read_json(data: bytes | bytearray | str) -> Any:
    """Return the value of a JSON text. Raises ValueError, of which OutOfBounds is one."""
    check_size(data)
    try:
        return json.loads(data)
    except RecursionError:
        raise OutOfBounds("it is nested too deeply") from None


def check_size(data: bytes | bytearray | str) -> None:
    """Raise OutOfBounds for a JSON text that holds more values than a text of its size may."""
    # A text has fewer values than bytes, so that short ones need no counting.
    if len(data) > _FEW_PARTS:
        check_parts(parts_in(data), len(data))


def parts_in(data: bytes | bytearray | str) -> int:
    """Return the number of values that a JSON text holds at most, without reading it."""
    if isinstance(data, str):
        return data.count("[") + data.count("{") + data.count(",")
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def check_parts(count: int, size: int) -> None:
    """Raise OutOfBounds for a JSON text that holds more values than a text of its size may."""
    most = _FEW_PARTS + size // _BYTES_A_PART
    if count > most:
        raise OutOfBounds(f"it has more than {most:,} parts")


class CleanObject(dict[str, Any]):
    """A JSON object that was cleaned. Only `clean_object` makes one."""


def clean_object(value: object) -> CleanObject:
    """Return a JSON object whose every part can be written and read again; {} for other values.

    >>> clean_object({"a": float("nan"), "b": [1, 10**30, 0.5]})
    {'a': None, 'b': [1, None, 0.5]}
    """
    if isinstance(value, CleanObject):
        return value
    if not isinstance(value, Mapping):
        return CleanObject()
    return CleanObject(_clean_items(value, DEEPEST))


def clean_json(value: Any, levels: int = DEEPEST) -> Any:
    """Return a JSON value that every program reads.

    Numbers out of bounds, and values that are nested deeper than `levels`, become None. Values that
    JSON has no type for become their text.
    """
    # Most values are texts. Each record has dozens of them.
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        # False for NaN too.
        return value if -MOST_WHOLE <= value <= MOST_WHOLE else None
    if isinstance(value, list | tuple):
        return [clean_json(part, levels - 1) for part in value] if levels else None
    if isinstance(value, Mapping):
        return _clean_items(value, levels) if levels else None
    return clean_text(str(value))


def _clean_items(value: Mapping[Any, Any], levels: int) -> dict[str, Any]:
    return {clean_text(str(name)): clean_json(part, levels - 1) for name, part in value.items()}


def clean_usage(value: object) -> CleanObject:
    """Return a server's usage report; {} for one that is not an object or is too long."""
    if isinstance(value, CleanObject):
        return value
    usage = clean_object(value)
    return usage if len(json.dumps(usage)) <= LONGEST_USAGE else CleanObject()


def clean_text(text: str) -> str:
    """Return a text that any file can hold: half a character (a lone surrogate) becomes '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_name(value: object) -> str | None:
    """Return the first 200 characters of a text, or None for any other value."""
    return clean_text(value[:LONGEST_NAME]) if isinstance(value, str) else None


def clean_count(value: object) -> int | None:
    """Return a count: a whole number from 0 to 2^53, or None for any other value.

    >>> clean_count(7), clean_count(7.0), clean_count(-1), clean_count(10**400), clean_count("7")
    (7, 7, None, None, None)
    >>> clean_count(True), clean_count(0.5), clean_count(float("inf"))
    (None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if 0 <= value <= MOST_WHOLE else None


def clean_amount(value: object) -> float | None:
    """Return an amount of dollars or seconds, 0 or more, or None for any other value.

    >>> clean_amount(0.5), clean_amount(-1), clean_amount(float("nan")), clean_amount("1")
    (0.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_WHOLE else None


def clean_nats(value: object) -> float | None:
    """Return a log-probability, rounded to a millionth, or None for any other value.

    >>> clean_nats(-0.25), clean_nats(float("-inf")), clean_nats(float("nan")), clean_nats(3)
    (-0.25, -9999.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # False for NaN too.
    if not value <= _ROUNDED_UP:
        return None
    return round(min(0.0, max(LOWEST_NATS, value)), 6)
