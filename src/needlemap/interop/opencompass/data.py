"""Read the user's files of NeedleBench: needles, derivations, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from needlemap.errors import HaystackError
from needlemap.files import read_regular
from needlemap.untrusted import read_json

# Bytes of a file.
_MOST = 1 << 28


def json_of(path: str | Path, name: str) -> Any:
    """Return the value of a JSON file.

    Raises HaystackError if the file cannot be read or is not JSON.
    """
    try:
        return read_json(text_of(path, name))
    except ValueError as error:
        raise HaystackError(f"'{Path(path) / name}' is not JSON ({error}).") from None


def text_of(path: str | Path, name: str) -> str:
    """Return a file's text without a byte order mark.

    Raises HaystackError if the file cannot be read.
    """
    try:
        return read_regular(Path(path) / name, _MOST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HaystackError(f"No file of needles at '{Path(path) / name}' ({error}).") from None
