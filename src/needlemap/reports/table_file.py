"""A table on disk: cells or trials of runs as CSV or Parquet, or OpenCompass's summary CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from needlemap.errors import SettingsError, did_you_mean
from needlemap.files import write_report
from needlemap.reports.labels import told_apart
from needlemap.reports.opencompass import summary_csv
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
    """Write a table by its suffix; folders are made. Raises SettingsError for an unknown format."""
    target = Path(path)
    content = table_bytes(runs, target.suffix.lower(), format)
    return write_report(target, content)


def table_bytes(runs: Sequence[Loaded], suffix: str, format: str) -> bytes:
    """The file's content. suffix: .csv or .parquet. format: cells, trials or opencompass."""
    if format == OPENCOMPASS and suffix == ".csv":
        names = told_apart([run.map.model for run in runs], [Path(run.path) for run in runs])
        return summary_csv(dict(zip(names, (run.map for run in runs), strict=True))).encode()
    if format == OPENCOMPASS:
        raise SettingsError("OpenCompass's summary is a CSV. Give a name that ends in .csv.")
    if format not in MAKERS:
        raise SettingsError(f"Unknown format '{format}'. {did_you_mean(format, (*MAKERS, OPENCOMPASS))}")
    table = MAKERS[format](runs)
    return parquet_bytes(table) if suffix == ".parquet" else csv_text(table).encode()
