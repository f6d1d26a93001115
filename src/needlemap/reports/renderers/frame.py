"""A report's tables as pandas data frames."""

from __future__ import annotations

from typing import Any

from needlemap.reports.report import Report
from needlemap.stats.table_schema import plain_frame


def to_pandas(report: Report, key: str = "") -> Any:
    """A table, by default the first, as programs have it. Raises NeedlemapError without
    pandas."""
    tables = [table for table in report.all_tables if not key or table.key == key]
    return plain_frame(tables[0].plain() if tables else [])
