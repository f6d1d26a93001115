"""Rows of a data file that a user brings: JSON Lines, JSON, CSV or Parquet. Nothing is ever downloaded."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """All rows, in the file's order. Raises SettingsError for a file that is missing, or is none of these."""
    readers: dict[str, Callable[[Path], Iterable[Any]]] = {
        ".jsonl": _json_lines,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    if path.suffix.lower() not in readers:
        raise SettingsError(f"'{path}' must end in {', '.join(readers)}.")
    if not path.is_file():
        raise SettingsError(f"No file at '{path}'.")
    try:
        rows = list(readers[path.suffix.lower()](path))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise SettingsError(f"'{path}', row {number}: not a mapping of names to values.")
    if not rows:
        raise SettingsError(f"'{path}' holds no rows.")
    return rows


def _json_lines(path: Path) -> list[Any]:
    found = []
    for number, line in enumerate(path.read_text("utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise SettingsError(f"'{path}', line {number}: not JSON ({error.msg}).") from None
    return found


def _json(path: Path) -> list[Any]:
    data = json.loads(path.read_text("utf-8-sig"))
    if not isinstance(data, list):
        raise SettingsError(f"'{path}' must be a list of rows.")
    return data


def _csv(path: Path) -> list[Any]:
    """A field may hold a whole prompt."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))
    except csv.Error as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise SettingsError("A .parquet file needs pyarrow. Run: pip install 'needlemap[parquet]'") from None
    try:
        rows: list[Any] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    return rows
