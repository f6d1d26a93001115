"""Tidy tables as CSV: a row per cell, or a row per trial. Scores and depths in percent.

Text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from needlemap.grid import percent
from needlemap.maps.map import CellScore, Map
from needlemap.runs.record import Record

Value = str | int | float | None

CELL_COLUMNS = (
    "length_tokens", "depth_percent", "realised_depth_percent",
    "score", "n", "low", "high", "missing", "failures",
)  # fmt: skip
TRIAL_COLUMNS = (
    "task", "model", "length_tokens", "depth_percent", "realised_depth_percent", "repeat", "seed",
    "score", "scorer", "question", "reference", "keywords", "answer", "finish", "failure", "error",
    "prompt_tokens", "cached_tokens", "completion_tokens", "usd", "latency_s", "attempts",
    "answered_by", "finished_at", "key",
)  # fmt: skip
FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")


def cells_csv(map: Map) -> str:
    """One row per cell of the map; empty fields where nothing was measured."""
    return _csv(CELL_COLUMNS, (_cell_values(cell) for cell in map.cells))


def trials_csv(records: Iterable[Record]) -> str:
    """One row per record, answers included."""
    return _csv(TRIAL_COLUMNS, (_trial_values(record) for record in records))


def safe(value: Value) -> Value:
    """A value that no spreadsheet runs as a formula; numbers stay as they are.

    >>> safe("=1+1"), safe("-5"), safe("plain")
    ("'=1+1", '-5', 'plain')
    """
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS) or _is_number(value):
        return value
    return f"'{value}"


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([safe(value) for value in row] for row in rows)
    return text.getvalue()


def _cell_values(cell: CellScore) -> tuple[Value, ...]:
    return (
        cell.length_tokens,
        percent(cell.depth),
        percent(cell.realised),
        _share(cell.score),
        cell.n,
        _share(cell.low),
        _share(cell.high),
        cell.missing,
        "; ".join(f"{kind}: {count}" for kind, count in sorted(cell.failures.items())),
    )


def _trial_values(record: Record) -> tuple[Value, ...]:
    realised = record.needles[0].realised if record.needles else None
    return (
        record.task, record.model, record.length_tokens, percent(record.depth), _share(realised),
        record.repeat, record.seed, _share(record.score), record.scorer.name if record.scorer else None,
        record.question, record.reference, "; ".join(record.keywords), record.answer, record.finish,
        record.failure, record.error, record.prompt_tokens, record.cached_tokens, record.completion_tokens,
        record.usd, record.latency_s, record.attempts, record.answered_by, record.finished_at, record.key,
    )  # fmt: skip


def _share(value: float | None) -> float | None:
    return None if value is None else percent(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
