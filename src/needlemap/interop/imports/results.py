"""needlehaystack version 1: a JSON object a test, the lists of the first OpenAI set, and tables of these.

One object: model, context_length, depth_percent, version, needle, model_response, score,
test_duration_seconds, test_timestamp_utc. The first OpenAI set is a list of {token_limit, depth_percent,
score}. A table has the same names as its columns. None of them says how answers were scored.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.interop.imports.row import Fields, Row

TOOL = "needlehaystack 1"
LENGTHS = ("context_length", "token_limit")
_REPEATED = re.compile(r"_(\d+)\.json$")


def is_result(value: object) -> bool:
    """Whether a JSON value is a result of this tool."""
    return isinstance(value, dict) and "depth_percent" in value and any(name in value for name in LENGTHS)


def from_json(data: bytes, name: str) -> list[Row]:
    """Rows of one file: an object, or a list of them. Raises NeedlemapError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NeedlemapError(f"{name}: not readable as JSON ({error}).") from None
    objects = value if isinstance(value, list) else [value]
    wrong = [number for number, each in enumerate(objects, 1) if not is_result(each)]
    if wrong or not objects:
        where = f"{name}, entry {wrong[0]}" if wrong and isinstance(value, list) else name
        raise NeedlemapError(
            f"{where}: no needlehaystack result. It needs {' or '.join(LENGTHS)}, depth_percent, score."
        )
    listed = isinstance(value, list)
    places = [f"{name}, entry {number}" if listed else name for number in range(1, len(objects) + 1)]
    return [_row(Fields(each, place), _version(name)) for each, place in zip(objects, places, strict=True)]


def from_csv(text: str, name: str) -> list[Row]:
    """Rows of a table with columns context_length (or token_limit), depth_percent and score."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        return list(_table(reader, name))
    except csv.Error as error:
        raise NeedlemapError(f"{name}, line {reader.line_num}: not readable as CSV ({error}).") from None


def _table(reader: csv.DictReader[str], name: str) -> Iterator[Row]:
    columns = reader.fieldnames or ()
    if "score_mean" in columns and "score" not in columns:
        raise NeedlemapError(
            f"{name} holds means of cells, without the repeats. Give the table of single results "
            f"(column 'score')."
        )
    for number, values in enumerate(reader, 2):
        if None in values or None in values.values():
            raise NeedlemapError(f"{name}, row {number}: {len(columns)} columns expected, not so many here.")
        yield _row(Fields(values, f"{name}, row {number}"), 1)


def _row(fields: Fields, version: int) -> Row:
    said: Mapping[str, Any] = fields.values
    native = fields.maybe("score") if "score" in said else fields.number("score")
    return Row(
        fields.place,
        fields.whole(next((name for name in LENGTHS if name in said), LENGTHS[0]), 1),
        fields.depth("depth_percent"),
        native,
        model=fields.text("model"),
        version=version if said.get("version") in (None, "") else fields.whole("version", 1),
        needle=fields.text("needle").strip(),
        answer=fields.text("model_response") if said.get("model_response") is not None else None,
        error="" if native is not None else "no score in the file",
        latency_s=fields.maybe("test_duration_seconds"),
        finished_at=fields.text("test_timestamp_utc"),
    )


def _version(name: str) -> int:
    """The repeat that a file's name tells: `..._results_2.json` is the second."""
    found = _REPEATED.search(name)
    return max(1, int(found[1])) if found and len(found[1]) < 4 else 1
