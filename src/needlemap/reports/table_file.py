"""A table on disk: cells or trials of runs as CSV or Parquet, or OpenCompass's summary, CSV and TXT."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from needlemap.errors import SettingsError, did_you_mean
from needlemap.files import is_regular, read_regular, write_report
from needlemap.maps.map import Map
from needlemap.reports.opencompass import SECTION, column_names, summary_csv, summary_txt
from needlemap.reports.parquet import parquet_bytes
from needlemap.reports.table import cells_table, csv_text, trials_table
from needlemap.runs.loaded import Loaded

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
