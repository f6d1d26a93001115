"""Tidy tables of runs, a row per cell or per trial, as CSV or Parquet; or OpenCompass's summary.

In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection), and
text with a line break of any kind is quoted, so that it stays one field of one row in every reader.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.files import is_regular, read_regular, write_report
from needlemap.maps.columns import CELLS, RUN, TRIALS, Column, Value
from needlemap.maps.map import Map
from needlemap.records.loaded import Loaded
from needlemap.records.record import Record
from needlemap.reports.opencompass import SECTION, column_names, summary_csv, summary_txt
from needlemap.text.printable import FORMULA_STARTS, LINE_BREAKS
from needlemap.version import __version__


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values in the order of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]


_DEPTHS = ("depth_percent", "realised_depth_percent")


def cells_table(runs: Sequence[Loaded]) -> Table:
    """A row per cell of each run's map."""
    rows = [(_told(run, run.map.model, run.map.task, CELLS, cell)) for run in runs for cell in run.map.cells]
    return Table(CELLS, tuple(rows))


def trials_table(runs: Sequence[Loaded]) -> Table:
    """A row per trial, answers included, by length, depth and repeat."""
    rows = [
        _told(run, run.about["settings"].get("label") or record.model, record.task, TRIALS, record)
        for run in runs
        for record in sorted(run.records, key=_place)
    ]
    return Table(TRIALS, tuple(rows))


def _told(run: Loaded, model: str, task: str, columns: Sequence[Column], row: Any) -> tuple[Value, ...]:
    """A row's values; of a task that asks about the whole text no depth."""
    placeless = _DEPTHS if run.map.depthless else ()
    values = (None if column.name in placeless else column.told(row) for column in columns[len(RUN) :])
    return run.path, model, task, *values


def csv_text(table: Table) -> str:
    """The table as CSV; unknown values are empty fields."""
    text = io.StringIO()
    plain, quoted = (
        csv.writer(text, lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC)
    )
    plain.writerow(column.name for column in table.columns)
    for row in table.rows:
        fields = [safe(value) for value in row]
        broken = any(isinstance(field, str) and not set(field).isdisjoint(LINE_BREAKS) for field in fields)
        (quoted if broken else plain).writerow(fields)
    return text.getvalue()


def safe(value: Value) -> Value:
    """A value that no spreadsheet runs as a formula; numbers stay as they are.

    >>> safe("=1+1"), safe("-5"), safe("plain")
    ("'=1+1", '-5', 'plain')
    """
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS) or _is_number(value):
        return value
    return f"'{value}"


def _place(record: Record) -> tuple[int, float, int]:
    return record.length_tokens, record.depth, record.repeat


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parquet_bytes(table: Table) -> bytes:
    """The file's content: the table's values unchanged, unknown ones null, each column with its meaning.

    Raises NeedlemapError without pyarrow, and for a seed beyond the 64 bits of Parquet's whole numbers.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NeedlemapError("A .parquet file needs pyarrow. Run: pip install 'needlemap[parquet]'") from None
    kinds = {"text": pyarrow.string(), "whole number": pyarrow.int64(), "number": pyarrow.float64()}
    fields = [
        pyarrow.field(column.name, kinds[column.kind], metadata={"description": column.meaning})
        for column in table.columns
    ]
    schema = pyarrow.schema(fields, metadata={"needlemap": __version__})
    rows = [dict(zip(schema.names, row, strict=True)) for row in table.rows]
    try:
        made = pyarrow.Table.from_pylist(rows, schema=schema)
    except OverflowError:
        raise NeedlemapError("A number is too large for Parquet. Give a name that ends in .csv.") from None
    out = io.BytesIO()
    pyarrow.parquet.write_table(made, out, compression="zstd")
    return out.getvalue()


SUFFIXES = (".csv", ".parquet")
MAKERS = {"cells": cells_table, "trials": trials_table}
OPENCOMPASS = "opencompass"


def is_table(path: str | Path) -> bool:
    """Whether a file of that name is a table."""
    return Path(path).suffix.lower() in SUFFIXES


def write_table(runs: Sequence[Loaded], path: str | Path, format: str = "cells") -> Path:
    """Write a table by its suffix; folders are made. Raises SettingsError for an unknown format.

    An OpenCompass summary is two files: a .txt of the same name stands beside the .csv.
    """
    target = Path(path)
    content = table_bytes(runs, target.suffix.lower(), format)
    if format == OPENCOMPASS:
        _write_txt(runs, target.with_suffix(".txt"))
    return write_report(target, content)


def _write_txt(runs: Sequence[Loaded], path: Path) -> None:
    if path.exists() and not (is_regular(path) and SECTION.encode() in read_regular(path)):
        raise SettingsError(f"'{path}' would be written too, and is no summary. Give another name with -o.")
    write_report(path, summary_txt(_columns(runs), datetime.now()).encode())


def _columns(runs: Sequence[Loaded]) -> dict[str, Map]:
    names = column_names([run.about["settings"] for run in runs], [run.path for run in runs])
    return dict(zip(names, (run.map for run in runs), strict=True))


def table_bytes(runs: Sequence[Loaded], suffix: str, format: str) -> bytes:
    """The file's content. suffix: .csv or .parquet. format: cells, trials or opencompass."""
    if format == OPENCOMPASS and suffix == ".csv":
        return summary_csv(_columns(runs)).encode()
    if format == OPENCOMPASS:
        raise SettingsError("OpenCompass's summary is a CSV. Give a name that ends in .csv.")
    if format not in MAKERS:
        raise SettingsError(f"Unknown format '{format}'. {did_you_mean(format, (*MAKERS, OPENCOMPASS))}")
    table = MAKERS[format](runs)
    return parquet_bytes(table) if suffix == ".parquet" else csv_text(table).encode()
