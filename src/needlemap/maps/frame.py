"""Maps and records as pandas tables, for those who have pandas; this package needs it for nothing else.

Depths and scores are shares in [0, 1], lengths are tokens. What is not known is NaN (or None for texts).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError
from needlemap.runs.record import Record

if TYPE_CHECKING:
    from needlemap.maps.map import CellScore, Map

NUMBERS = ("score", "native", "low", "high", "realised", "usd", "latency_s")  # NaN where unknown
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "thinking_tokens")
SAME = (
    "task", "model", "depth", "repeat", "seed", "score", "question", "reference", "answer", "finish",
    "outcome", "failure", "error", *COUNTS, "usd", "latency_s", "attempts", "answered_by", "finished_at",
    "key",
)  # fmt: skip
CELL = ("length", "depth", "score", "n", "low", "high", "realised", "missing")
MARGIN = ("family", "length", "score", "n", "low", "high")
TRIAL = ("length", "realised", "native", "scorer", *SAME)


def cell_frame(cells: Iterable[CellScore]) -> Any:
    """One row a cell: length, depth, score, n, low, high, realised, missing. Raises NeedlemapError."""
    return _frame([_cell(cell) for cell in cells], CELL)


def margin_frame(maps: Mapping[str, Map]) -> Any:
    """One row a family and length of a suite: its margin. Raises NeedlemapError when pandas is missing."""
    rows = [
        {"family": family, "length": length, **{name: getattr(mean, name) for name in MARGIN[2:]}}
        for family, map in maps.items()
        for length, mean in map.margins.items()
    ]
    return _frame(rows, MARGIN)


def trial_frame(records: Iterable[Record]) -> Any:
    """One row a trial: what its record holds. Raises NeedlemapError when pandas is not installed."""
    return _frame([_trial(record) for record in records], TRIAL)


def _cell(cell: CellScore) -> dict[str, Any]:
    same = {name: getattr(cell, name) for name in CELL[1:]}
    return {"length": cell.length_tokens, **same}


def _trial(record: Record) -> dict[str, Any]:
    scorer = record.scorer
    return {
        "length": record.length_tokens,
        "realised": record.needles[0].realised if record.needles else None,
        "native": scorer.native if scorer else None,
        "scorer": scorer.name if scorer else None,
        **{name: getattr(record, name) for name in SAME},
    }


def plain_frame(rows: list[dict[str, Any]]) -> Any:
    """Rows as they are, a column a name. Raises NeedlemapError when pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise NeedlemapError("A table needs pandas. Run: pip install pandas") from None
    return pandas.DataFrame(rows)


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    kinds = dict.fromkeys(NUMBERS, "float64") | dict.fromkeys(COUNTS, "Int64")
    frame = plain_frame(rows).reindex(columns=list(columns))
    return frame.astype({name: kind for name, kind in kinds.items() if name in columns})
