"""Read EvalScope's results: reviews, a line a sample, and reports, a number a metric.

Its needle test names each metric after the cell, `Context#1000 Depth#50`. A review's metadata hold
the cell too. Samples of its other benchmarks have length 0, as those of any log.
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


def is_review(line: Mapping[str, Any]) -> bool:
    """Return True if a line is a review of EvalScope."""
    return "sample_score" in line


def is_report(data: bytes) -> bool:
    """Return True if JSON is a report of EvalScope."""
    start = data[:65_536]
    return all(name in start for name in (b'"dataset_name"', b'"model_name"', b'"metrics"'))


def read_reviews(file: Path) -> Log:
    """Read the reviews of one subset of one benchmark.

    Raises NeedlemapError if a line is not a review.
    """
    last_versions: dict[tuple[int, float], int] = {}
    rows, notes = samples_in(file, lambda fields, place: _review_rows(fields, place, last_versions))
    task = file.stem
    series = ""
    if file.stem.startswith(_NEEDLE):
        task = _NEEDLE
        subset = file.stem.removeprefix(f"{_NEEDLE}_")
        series = "" if subset == file.stem else subset
    return Log(
        EVALSCOPE,
        model=file.absolute().parent.name,
        task=task,
        samples=[replace(row, series=series) for row in rows],
        notes=tuple(notes),
    )


def _review_rows(
    fields: Mapping[str, Any], place: str, last_versions: dict[tuple[int, float], int]
) -> Iterator[ResultRow]:
    """Yield the row of a review.

    last_versions: how many samples of a cell were read before. This one is counted.
    """
    sample = _mapping(fields.get("sample_score"), "sample_score", place=place)
    score = _mapping(sample.get("score"), "score", place=place)
    values = score.get("value")
    if not isinstance(values, dict):
        values = {SCORE: values}
    metadata = sample.get("sample_metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    cell = _cell_in(metadata, place) or next(filter(None, map(_cell_of, values)), None)
    numbers = {name: score_of(value) for name, value in values.items()}
    scores = {str(name): number for name, number in numbers.items() if number is not None}
    target = fields.get("target")

    if cell:
        length, depth = cell
        last_versions[cell] = last_versions.get(cell, 0) + 1
        version = last_versions[cell]
        repeat = None
        identity = [length, depth, version, target]
        # Metrics of other cells are not this sample's.
        cell_scores = [number for name, number in scores.items() if _cell_of(name) in (None, cell)]
        scores = {SCORE: cell_scores[0]} if cell_scores else {}
    else:
        length, depth = 0, 0.0
        version = 1
        index = fields.get("index", sample.get("sample_id"))
        repeat = number_of(index, place)
        identity = [length, depth, index, target]
    yield ResultRow(
        place,
        length,
        depth_percent=depth,
        native=None,
        scale=UNIT,
        version=version,
        repeat=repeat,
        asked=hash_of(identity),
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
    """Return the cell in a sample's metadata, or None if it has none.

    Raises NeedlemapError if a length or a depth is not valid.
    """
    if not {"context_length", "depth_percent"} <= metadata.keys():
        return None
    fields = Fields(metadata, place)
    return fields.whole_number("context_length", 1), fields.depth("depth_percent")


def _cell_of(metric: object) -> tuple[int, float] | None:
    """Return the cell that a metric is named after, or None if it is named after something else.

    >>> _cell_of("Context#1000 Depth#50"), _cell_of("acc")
    ((1000, 50.0), None)
    """
    if not isinstance(metric, str):
        return None
    match = _CELL.search(metric[:200])
    if match is None:
        return None
    length = int(match[1])
    depth = float(match[2])
    if not 0 < length <= MOST_TOKENS or depth > 100:
        return None
    return length, depth


def report_rows(data: bytes, name: str) -> list[ResultRow]:
    """Return a row for each cell and subset of a report on the needle test.

    Raises NeedlemapError if it is not such a report.
    """
    report = parse_json(data, name)
    metrics = report.get("metrics") if isinstance(report, dict) else None
    if not isinstance(metrics, list):
        raise NeedlemapError(f"{name}: no report of EvalScope: it lists no metrics.")
    rows = [
        row
        for number, metric in enumerate(metrics, 1)
        for row in _metric_rows(metric, f"{name}, metric {number}", report=report)
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
    length, depth = cell
    for subset in _subsets(fields):
        subset_fields = Fields(subset, place)
        count = subset_fields.whole_number("num", 0) if "num" in subset else 0
        yield ResultRow(
            place,
            length,
            depth_percent=depth,
            native=subset_fields.number("score") if count else None,
            model=shown(report.get("model_name")),
            series=shown(subset_fields.text("name")),
            task=shown(report.get("dataset_name")) or _NEEDLE,
            scorer=SCORE,
            scale=UNIT,
            mean=count > 1,
            error="" if count else "no samples",
        )


def _subsets(metric: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a metric that are not sums of others."""
    categories = metric.get("categories")
    if not isinstance(categories, list):
        return
    for category in categories:
        subsets = category.get("subsets") if isinstance(category, dict) else None
        if not isinstance(subsets, list):
            continue
        for subset in subsets:
            if isinstance(subset, dict) and not subset.get("is_aggregate"):
                yield subset
