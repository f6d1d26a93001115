"""A report for programs: facts and tables by their keys."""

from __future__ import annotations

from typing import Any

from needlemap.reports.report import Fact, Report, Table


def to_json(report: Report) -> dict[str, Any]:
    """Return what JSON can hold. `result` is the verdict, if one was asked for."""
    fields: dict[str, Any] = {}
    if report.verdict is not None:
        fields["result"] = report.verdict.plain(report.kind)
    for part in report.parts:
        if not part.key:
            continue
        if isinstance(part, Fact):
            fields[part.key] = part.value() if callable(part.value) else part.value
        elif isinstance(part, Table):
            fields[part.key] = part.plain()
        else:
            fields[part.key] = {
                name: to_json(part_report) for name, part_report in part.reports.items()
            }
    return fields
