"""A check's findings as the rows of a table, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from needlemap.check.finding import CheckFile, Finding
from needlemap.check.probe import short_size
from needlemap.files import write_report
from needlemap.reports.table import markdown_table, plain_markdown

HEAD = ("probe", "verdict", "to", "excludes", "found")


def finding_rows(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """A row for each probe that applies, under HEAD. to: the longest size up to which it passes."""
    return [
        (
            each.probe,
            each.state,
            short_size(each.passes_to) if each.passes_to and each.state != "fail" else "-",
            each.excludes or "-",
            each.said,
        )
        for each in findings
        if each.state != "not applicable"
    ]


def check_markdown(check: CheckFile) -> str:
    """What was found by length, the exit code, what was not asked, and the table of probes."""
    code = "not ended yet" if check.code is None else f"exit code {check.code}"
    parts = [
        f"**{plain_markdown(check.line or 'check')}**",
        f"{code}, {plain_markdown(check.model)}",
    ]
    if check.not_asked:
        parts.append(plain_markdown(f"not asked: {', '.join(check.not_asked)}"))
    rows = [[plain_markdown(cell) for cell in row] for row in finding_rows(check.findings)]
    return "\n\n".join([*parts, markdown_table(list(HEAD), rows)]) + "\n"


def write_check_markdown(check: CheckFile, out: Path) -> Path:
    """Write it; the path."""
    return write_report(out, check_markdown(check).encode())
