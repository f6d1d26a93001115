"""A report as a sheet of the page: the answer in a sentence, what is known at a glance,
curves, tables whose rows lead to maps, and the sentences.

A sheet is texts and curves and knows nothing of how it is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from needlemap.reports.labels import SIGNS
from needlemap.reports.page.charts import draw_chart, draw_pictures
from needlemap.reports.renderers.html import word_class
from needlemap.reports.report import SCORE, SENTENCE, Column, Report, Row, Table
from needlemap.secrets import hidden
from needlemap.stats.effective import Mean
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.verdicts import Verdict

Columns = dict[str, list[Any]]
Views = Mapping[str, Sequence[Any]]


def to_sheet(
    report: Report,
    views: Views,
    *,
    key: str = "",
    name: str = "",
    rule: str = "",
    first: str = "table",
    comparison: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a report's sheet.

    views: by name the view that a row links to, e.g. ["run", 3]. key, name: of the sheet. rule: of
    effective length. first: "table" or "curves", whichever comes first.
    """
    headed_facts = [fact for fact in report.facts if fact.head]
    verdict, folded_tables = report.verdict, [table for table in report.all_tables if table.folded]
    headed_tables = [table for table in report.tables if not table.folded]
    tables = [_table(table, views) for table in report.all_tables if _is_drawn(table)]
    lines = report.sentences(without=[*folded_tables, *headed_tables])
    advice = [
        detail
        for table in headed_tables
        for row in table.shown
        for detail in _not_in_cells(table, row)
    ]
    return {
        "key": key,
        "name": name,
        "title": report.title,
        "says": f"{SIGNS[verdict.word]} {verdict.word}" if verdict else hidden(report.brief),
        "sign": f"word-of {word_class(verdict.word)}" if verdict else "",
        "answer": hidden(report.answer or report.last_line),
        **({"verdict": _verdict(verdict)} if verdict else {}),
        "first": first,
        "readings": [
            [fact.head, hidden(str(fact.value)), hidden(fact.note), "" if number else "main"]
            for number, fact in enumerate(headed_facts)
        ],
        "comparison": comparison,
        "chart": draw_chart(report, rule),
        "table": tables[0] if tables else {"head": [], "rows": []},
        **({"more": tables[1:]} if tables[1:] else {}),
        **({"pictures": list(draw_pictures(report))} if report.squares else {}),
        "advice": list(map(hidden, advice)),
        "lines": [hidden(line) for line in lines],
    }


def _not_in_cells(table: Table, row: Row) -> Iterator[str]:
    """Yield a row's details, without a sentence that one of its cells shows too."""
    sentences = {
        str(column.value(row)) for column in table.heads if column.wide and column.unit is SENTENCE
    }
    for detail in row.details:
        if detail.partition(": ")[2] not in sentences:
            yield detail


def _is_drawn(table: Table) -> bool:
    """Return True if a table has rows to draw, or sentences to fold."""
    return bool(table.shown and (table.heads or table.folded))


def _verdict(verdict: Verdict) -> list[str]:
    """Return a verdict's word, its claim, what that rests on, and what to do."""
    basis = "; ".join(filter(None, (verdict.evidence, verdict.scope)))
    return [verdict.word, *map(hidden, (verdict.claim, basis, verdict.next))]


def _table(table: Table, views: Views) -> dict[str, Any]:
    columns = table.heads
    rows = zip(table.shown, table.labels(columns), strict=True) if columns else ()
    details = [line for row in table.shown for line in row.details] if table.folded else []
    texts = {"title": table.title, "folded": table.folded, "after": hidden(table.after)}
    return {
        "head": [_head(column.head) for column in columns],
        **{name: value for name, value in texts.items() if value},
        **({"lines": list(map(hidden, details))} if details else {}),
        "rows": [
            {
                "to": views.get(row.to),
                "cells": _cells(columns, row, cells),
            }
            for row, cells in rows
        ],
    }


def _head(text: str) -> str:
    """Return a text with a capital letter; a sign, e.g. n and p, stays as it is."""
    return text[0].upper() + text[1:] if len(text) > 1 else text


def _cells(columns: Sequence[Column], row: Row, cells: Sequence[str]) -> list[Any]:
    """Return the name of a row, then for each cell its text, its colour's share, and its class."""
    name, *texts = map(hidden, cells)
    cell_values = list[Any]([name])
    for column, cell in zip(columns[1:], texts, strict=True):
        colour_share = share(column.value(row)) if column.unit is SCORE else None
        cell_values.append([cell, colour_share, *_kind(column)])
    return cell_values


def _kind(column: Column) -> list[str]:
    """Return the class of a column's cells: none for numbers, else words or sentences."""
    if column.unit is SENTENCE:
        return ["sentence words"]
    return [] if column.unit.number else ["words"]


def mean_columns(means: Iterable[ClusterMean | Mean | None]) -> Columns:
    """Return columns with a row for each mean. A missing mean is None with an n of 0.

    Means over families have no n.
    """
    columns: Columns = {"score": [], "low": [], "high": [], "n": []}
    for mean in means:
        for name in ("score", "low", "high"):
            columns[name].append(share(getattr(mean, name, None)))
        columns["n"].append(0 if mean is None else getattr(mean, "n", None))
    return columns


def share(value: float | None, digits: int = 6) -> float | None:
    """Return a share, or another small number, rounded to `digits` decimals. None stays None."""
    return None if value is None else round(value, digits)
