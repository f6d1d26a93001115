"""A report as a sheet of the page: what is known at a glance, tables whose rows lead to maps, and
the sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.reports.report import SENTENCE, Column, Report, Table
from needlemap.secrets import hidden


def to_sheet(report: Report, places: Mapping[str, int]) -> dict[str, Any]:
    """What a page's sheet holds of it. places: where each family is among the page's runs."""
    glance = [fact for fact in report.facts if fact.head]
    tables = [_table(table, places) for table in report.tables]
    verdict = report.verdict
    lines = [verdict.said] if verdict and verdict.said else []
    return {
        "says": hidden(verdict.brief) if verdict else "",
        "readings": [
            [fact.head, hidden(str(fact.value)), fact.note, "" if at else "main"]
            for at, fact in enumerate(glance)
        ],
        "table": tables[0] if tables else {"head": [], "rows": []},
        "more": tables[1:],
        "lines": [hidden(line) for line in (*lines, *report.sentences())],
    }


def _table(table: Table, places: Mapping[str, int]) -> dict[str, Any]:
    shown = table.heads
    rows = zip(table.shown, table.labels(shown), strict=True)
    return {
        "head": [column.head.capitalize() for column in shown],
        "rows": [_row(shown, cells, places.get(row.to)) for row, cells in rows],
    }


def _row(columns: Sequence[Column], cells: Sequence[str], at: int | None) -> dict[str, Any]:
    """A row that leads to a family's map, where that is on the page."""
    first, *rest = (hidden(cell) for cell in cells)
    shown = [
        [cell, None, "words"] if column.unit is SENTENCE else [cell, None]
        for column, cell in zip(columns[1:], rest, strict=True)
    ]
    return {"to": None if at is None else ["run", at], "line": None, "cells": [first, *shown]}
