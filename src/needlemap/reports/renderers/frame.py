"""A report's tables as pandas data frames."""

from __future__ import annotations

from typing import Any

from needlemap.reports.report import Report
from needlemap.stats.table_schema import plain_frame


def to_pandas(report: Report) -> Any:
    """Return the first table as programs have it.

    Raises NeedlemapError without pandas.
    """
    table = next(iter(report.all_tables), None)
    return plain_frame(table.plain() if table else [])
