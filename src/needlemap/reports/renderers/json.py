"""A report for programs: facts and tables by their keys."""

from __future__ import annotations

from typing import Any

from needlemap.reports.report import Fact, Report, Table


def to_json(report: Report) -> dict[str, Any]:
    """What JSON can hold. `result` is the verdict, if one was asked for."""
    found: dict[str, Any] = {}
    if report.verdict is not None:
        found["result"] = report.verdict.plain(report.kind)
    for part in report.parts:
        if not part.key:
            continue
        if isinstance(part, Fact):
            value = part.value() if callable(part.value) else part.value
            found[part.key] = part.unit.plain(value)
        elif isinstance(part, Table):
            found[part.key] = part.plain()
        else:
            found[part.key] = {name: to_json(each) for name, each in part.reports.items()}
    return found
