"""A report as a sheet of the page: the answer in a sentence, what is known at a glance,
curves, tables whose rows lead to maps, and the sentences.

A sheet is texts and curves and knows nothing of how it is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from needlemap.reports.labels import SIGNS
from needlemap.reports.page.charts import draw_chart, draw_pictures
from needlemap.reports.renderers.html import word_class
from needlemap.reports.report import SCORE, SENTENCE, Column, Report, Row, Table
from needlemap.secrets import hidden
from needlemap.stats.effective import Effective, Mean
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
    """A report's sheet. views: what its names lead to on the page, as ["run", 3]. key, name:
    of the sheet. rule: of effective length. first: what comes first, the table or the
    curves."""
    glance = [fact for fact in report.facts if fact.head]
    verdict, folded = report.verdict, [each for each in report.all_tables if each.folded]
    headed = [table for table in report.tables if not table.folded]
    tables = [_table(each, views) for each in report.all_tables if _is_drawn(each)]
    lines = report.sentences(without=[*folded, *headed])
    advice = [
        detail for table in headed for row in table.shown for detail in _not_in_cells(table, row)
    ]
    return {
        "key": key,
        "name": name,
        "title": report.title,
        "says": f"{SIGNS[verdict.word]} {verdict.word}" if verdict else hidden(report.brief),
        "sign": f"word-of {word_class(verdict.word)}" if verdict else "",
        "answer": hidden(report.last or report.answer),
        **({"verdict": _verdict(verdict)} if verdict else {}),
        "first": first,
        "readings": [
            [fact.head, hidden(str(fact.value)), hidden(fact.note), "" if number else "main"]
            for number, fact in enumerate(glance)
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
    """Whether a table has rows to draw, or sentences to fold."""
    return bool(table.shown and (table.heads or table.folded))


def _verdict(verdict: Verdict) -> list[str]:
    """Its word, what it is said of, what that rests on, and what to do."""
    rests = "; ".join(filter(None, (verdict.evidence, verdict.scope)))
    return [verdict.word, *map(hidden, (verdict.claim, rests, verdict.next))]


def _table(table: Table, views: Views) -> dict[str, Any]:
    shown = table.heads
    rows = zip(table.shown, table.labels(shown), strict=True) if shown else ()
    details = [line for row in table.shown for line in row.details] if table.folded else []
    more = {"title": table.title, "folded": table.folded, "after": hidden(table.after)}
    return {
        "head": [_head(column.head) for column in shown],
        **{name: value for name, value in more.items() if value},
        **({"lines": list(map(hidden, details))} if details else {}),
        "rows": [
            {
                "to": views.get(row.to),
                "cells": _cells(shown, row, cells),
            }
            for row, cells in rows
        ],
    }


def _head(text: str) -> str:
    """With a capital letter; a sign, as n and p, stays as it is."""
    return text[0].upper() + text[1:] if len(text) > 1 else text


def _cells(columns: Sequence[Column], row: Row, cells: Sequence[str]) -> list[Any]:
    """A name, then texts: scores with the share that colours them, others than numbers as
    words."""
    name, *rest = map(hidden, cells)
    shown = list[Any]([name])
    for column, cell in zip(columns[1:], rest, strict=True):
        coloured = share(column.value(row)) if column.unit is SCORE else None
        shown.append([cell, coloured, *_kind(column)])
    return shown


def _kind(column: Column) -> list[str]:
    """How a cell is set: numbers to the right, words to the left, sentences with room."""
    if column.unit is SENTENCE:
        return ["sentence words"]
    return [] if column.unit.number else ["words"]


def mean_columns(means: Iterable[ClusterMean | Mean | None]) -> Columns:
    """A row a mean, null and n of 0 where there is none; means over families have no n."""
    found = list(means)
    rows = {
        name: [share(getattr(mean, name, None)) for mean in found]
        for name in ("score", "low", "high")
    }
    return {**rows, "n": [0 if mean is None else getattr(mean, "n", None) for mean in found]}


def share(value: float | None, digits: int = 6) -> float | None:
    """A share, or another small number, to so many decimals; None stays None."""
    return None if value is None else round(value, digits)


def tokens_of(effective: Effective) -> int | None:
    """An effective length, where it is a length that was tested."""
    value = effective.value
    known = effective.rule.kind != "auc" and value is not None and isfinite(value) and value > 0
    return round(value) if known and value is not None else None
