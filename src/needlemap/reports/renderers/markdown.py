"""A report as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

from pathlib import Path

from needlemap.files import write_report
from needlemap.reports.report import Report
from needlemap.reports.table import escape_markdown, markdown_table


def to_markdown(report: Report) -> str:
    """Return the verdict, what was asked, the tables, and the sentences as a list."""
    parts = [f"**{escape_markdown(report.last_line)}**"] if report.last_line else []
    parts.append(f"{report.kind}, {escape_markdown(report.title)}")
    for table in report.tables:
        columns = [column for column in table.heads if not column.wide]
        rows = [[escape_markdown(cell) for cell in row] for row in table.labels(columns)]
        parts.append(markdown_table([escape_markdown(column.head) for column in columns], rows))
    if sentences := list(report.sentences()):
        parts.append("\n".join(f"- {escape_markdown(line)}" for line in sentences))
    return "\n\n".join(parts) + "\n"


def write_markdown(report: Report, out: Path) -> Path:
    """Write the file, and return its path."""
    return write_report(out, to_markdown(report).encode())
