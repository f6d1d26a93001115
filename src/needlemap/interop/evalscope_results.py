"""EvalScope's results as rows: reviews, a line a sample, and reports, a number a metric.

Its needle test names each metric after the cell, `Context#1000 Depth#50`; a review's metadata say
the same. Samples of its other benchmarks have length 0, as those of any log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.grid import MOST_TOKENS
from needlemap.interop.logs import Log, hash_of, number_of, samples_in, score_of, shown, text_of
from needlemap.interop.result_row import UNIT, Fields, ResultRow, parse_json

EVALSCOPE = "EvalScope"
_NEEDLE = "needle_haystack"
_CELL = re.compile(
    r"context\W{0,3}(\d{1,12})\W{1,3}depth\W{0,3}(\d{1,3}(?:\.\d{1,9})?)", re.IGNORECASE
)
SCORE = "score"


def is_review(said: Mapping[str, Any]) -> bool:
    """Whether a line is a review of EvalScope."""
    return "sample_score" in said


def is_report(data: bytes) -> bool:
    """Whether JSON is a report of EvalScope."""
    start = data[:65_536]
    return all(name in start for name in (b'"dataset_name"', b'"model_name"', b'"metrics"'))


def read_reviews(file: Path) -> Log:
    """The reviews of one subset of one benchmark. Raises NeedlemapError."""
    seen: dict[tuple[int, float], int] = {}
    rows, notes = samples_in(file, lambda said, place: _review(said, place, seen))
    subset = file.stem.removeprefix(f"{_NEEDLE}_") if file.stem.startswith(_NEEDLE) else ""
    task = _NEEDLE if file.stem.startswith(_NEEDLE) else file.stem
    series = "" if subset == file.stem else subset
    rows = [replace(row, series=series) for row in rows]
    return Log(EVALSCOPE, file.absolute().parent.name, task, rows, tuple(notes))


def _review(
    said: Mapping[str, Any], place: str, seen: dict[tuple[int, float], int]
) -> Iterator[ResultRow]:
    told = _mapping(said.get("sample_score"), "sample_score", place)
    score = _mapping(told.get("score"), "score", place)
    values = score.get("value")
    values = values if isinstance(values, dict) else {SCORE: values}
    metadata = told.get("sample_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    cell = _cell_in(metadata, place) or next(filter(None, map(_cell_of, values)), None)
    index = said.get("index", told.get("sample_id"))
    known = {name: score_of(value) for name, value in values.items()}
    scores = {str(name): value for name, value in known.items() if value is not None}
    if cell:
        seen[cell] = seen.get(cell, 0) + 1
        own = [value for name, value in scores.items() if _cell_of(name) in (None, cell)]
        scores = {SCORE: own[0]} if own else {}
    length, depth = cell or (0, 0.0)
    target = said.get("target")
    yield ResultRow(
        place,
        length,
        depth,
        None,
        scale=UNIT,
        version=seen[cell] if cell else 1,
        repeat=None if cell else number_of(index, place),
        asked=hash_of([length, depth, seen.get(cell) if cell else index, target]),
        reference=shown(target),
        answer=text_of(score.get("prediction")) or text_of(score.get("extracted_prediction")),
        scores=scores,
        error="" if scores else shown(score.get("explanation")) or "no score in the file",
    )


def _mapping(value: Any, name: str, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NeedlemapError(f"{place}: no review of EvalScope: '{name}' holds no fields.")
    return value


def _cell_in(metadata: Mapping[str, Any], place: str) -> tuple[int, float] | None:
    """The cell in a sample's metadata; None where there is none. Raises NeedlemapError."""
    if not {"context_length", "depth_percent"} <= metadata.keys():
        return None
    fields = Fields(metadata, place)
    return fields.whole("context_length", 1), fields.depth("depth_percent")


def _cell_of(metric: object) -> tuple[int, float] | None:
    """The cell that a metric is named after; None for any other.

    >>> _cell_of("Context#1000 Depth#50"), _cell_of("acc")
    ((1000, 50.0), None)
    """
    named = _CELL.search(metric[:200]) if isinstance(metric, str) else None
    if named is None:
        return None
    length, depth = int(named[1]), float(named[2])
    return (length, depth) if 0 < length <= MOST_TOKENS and depth <= 100 else None


def report_rows(data: bytes, name: str) -> list[ResultRow]:
    """A row a cell and subset of a report on the needle test. Raises NeedlemapError."""
    said = parse_json(data, name)
    metrics = said.get("metrics") if isinstance(said, dict) else None
    if not isinstance(metrics, list):
        raise NeedlemapError(f"{name}: no report of EvalScope: it lists no metrics.")
    rows = [
        row
        for number, metric in enumerate(metrics, 1)
        for row in _metric_rows(metric, f"{name}, metric {number}", said)
    ]
    if not rows:
        raise NeedlemapError(
            f"{name}: a report without the cells of a needle test. Name its reviews: "
            f"reviews/MODEL/*.jsonl"
        )
    return rows


def _metric_rows(metric: Any, place: str, report: Mapping[str, Any]) -> Iterator[ResultRow]:
    fields = metric if isinstance(metric, dict) else {}
    identity = fields.get("identity")
    identity = identity if isinstance(identity, dict) else {}
    names = (fields.get("name"), fields.get("legacy_name"), identity.get("name"))
    cell = next(filter(None, map(_cell_of, names)), None)
    if cell is None:
        return
    for subset in _subsets(fields):
        read = Fields(subset, place)
        count = read.whole("num", 0) if "num" in subset else 0
        yield ResultRow(
            place,
            *cell,
            read.number("score") if count else None,
            model=shown(report.get("model_name")),
            series=shown(read.text("name")),
            task=shown(report.get("dataset_name")) or _NEEDLE,
            scorer=SCORE,
            scale=UNIT,
            mean=count > 1,
            error="" if count else "no samples",
        )


def _subsets(metric: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a metric that are no sums of others."""
    categories = metric.get("categories")
    for category in categories if isinstance(categories, list) else []:
        subsets = category.get("subsets") if isinstance(category, dict) else None
        for subset in subsets if isinstance(subsets, list) else []:
            if isinstance(subset, dict) and not subset.get("is_aggregate"):
                yield subset
