"""Results of needlehaystack, versions 2 (`niah`) and 1, as rows.

Version 2: JSON Lines, a row a test, schema_version 2. Its lengths are tokens of cl100k_base
for every model, needle and question not counted; its depth as realised is in the row's recipe.
Seeds make repeats. Rows with status "error" were not measured.

Version 1: a JSON object a test, with model, context_length, depth_percent, version, needle,
model_response, score, test_duration_seconds, test_timestamp_utc. The first OpenAI set is a
list of {token_limit, depth_percent, score}. A table has the same names as its columns. None of
them says how answers were scored.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.interop.result_row import Fields, ResultRow, parse_json

TOOL_2, TOOL_1 = "needlehaystack 2", "needlehaystack 1"
TOKENIZER = "cl100k_base"
SCHEMA = 2
SCORERS = {"uuid_chain": "chain_match"}  # by task; all others: exact_match
_NEEDED = ("context_length", "target_depth_percent", "score")
LENGTHS = ("context_length", "token_limit")
_REPEATED = re.compile(r"_(\d+)\.json$")


def from_jsonl(data: bytes, name: str) -> list[ResultRow]:
    """Rows of a file. A torn last line (an interrupted run) is left out. Raises
    NeedlemapError."""
    lines = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{name}, line {number}"
            fields = _fields(line, place, last=number == len(lines))
            found += [fields] if fields else []
    seeds = sorted({str(fields.values.get("seed")) for fields in found}, key=_by_number)
    versions = {seed: number for number, seed in enumerate(seeds, 1)}
    return [_second_row(fields, versions[str(fields.values.get("seed"))]) for fields in found]


def _fields(line: bytes, place: str, *, last: bool) -> Fields | None:
    try:
        value = parse_json(line, place)
    except NeedlemapError:
        if last:
            return None
        raise
    if not isinstance(value, dict) or any(name not in value for name in _NEEDED):
        raise NeedlemapError(
            f"{place}: no needlehaystack 2 result. Expected fields: {', '.join(_NEEDED)}."
        )
    if value.get("schema_version", SCHEMA) != SCHEMA:
        raise NeedlemapError(
            f"{place}: schema_version {value['schema_version']!r}, only {SCHEMA} is known."
        )
    return Fields(value, place)


def _second_row(fields: Fields, version: int) -> ResultRow:
    said, task = fields.values, fields.text("task_type") or "single"
    score, usage = (_inner(said.get(name), fields.place, name) for name in ("score", "usage"))
    native = score.maybe("value") if score else None
    return ResultRow(
        fields.place,
        fields.whole("context_length", 1),
        fields.depth("target_depth_percent"),
        native,
        model=fields.text("model_id") or fields.text("model_request_name"),
        version=version,
        series=fields.text("run_name"),
        task=task,
        scorer=SCORERS.get(task, "exact_match"),
        scale=(0.0, 1.0),
        tokenizer=TOKENIZER,
        question=fields.text("prompt_question"),
        reference=fields.text("expected_answer"),
        answer=fields.text("response") if said.get("response") is not None else None,
        error="" if native is not None else fields.text("error") or "no score in the file",
        answered_by=fields.text("model_request_name") or None,
        prompt_tokens=usage.maybe_whole("input_tokens") if usage else None,
        completion_tokens=usage.maybe_whole("output_tokens") if usage else None,
        usd=fields.maybe("cost_usd"),
        latency_s=fields.maybe("duration_seconds"),
        finished_at=fields.text("timestamp_utc"),
        **_placed(said.get("recipe"), fields.place),
    )


def _placed(recipe: object, place: str) -> dict[str, Any]:
    """Needle and realised depth, from the first placement that the recipe tells."""
    placements = recipe.get("needle_placements") if isinstance(recipe, Mapping) else None
    if not isinstance(placements, list) or not placements:
        return {}
    texts = [_inner(each, place, "needle_placements") for each in placements]
    words = "\n".join(each.text("text") for each in texts if each)
    first = texts[0]
    known = first is not None and "actual_depth_percent" in first.values
    return {
        "needle": words,
        "realised": first.depth("actual_depth_percent") if first and known else None,
    }


def _inner(value: object, place: str, name: str) -> Fields | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise NeedlemapError(
            f"{place}: field '{name}' must hold fields of its own, got {value!r:.80}."
        )
    return Fields(value, place)


def _by_number(seed: str) -> tuple[bool, float, str]:
    """Seeds in their order; none at all first."""
    number = float(seed) if seed.lstrip("-").isdigit() else 0.0
    return (seed != "None", number, seed)


def is_result(value: object) -> bool:
    """Whether a JSON value is a result of this tool."""
    return (
        isinstance(value, dict)
        and "depth_percent" in value
        and any(name in value for name in LENGTHS)
    )


def from_json(data: bytes, name: str) -> list[ResultRow]:
    """Rows of one file: an object, or a list of them. Raises NeedlemapError for anything
    else."""
    value = parse_json(data, name)
    objects = value if isinstance(value, list) else [value]
    wrong = [number for number, each in enumerate(objects, 1) if not is_result(each)]
    if wrong or not objects:
        where = f"{name}, entry {wrong[0]}" if wrong and isinstance(value, list) else name
        raise NeedlemapError(
            f"{where}: no needlehaystack result. It needs {' or '.join(LENGTHS)}, depth_percent, "
            f"score."
        )
    listed = isinstance(value, list)
    places = [
        f"{name}, entry {number}" if listed else name for number in range(1, len(objects) + 1)
    ]
    return [
        _first_row(Fields(each, place), _version(name))
        for each, place in zip(objects, places, strict=True)
    ]


def from_csv(text: str, name: str) -> list[ResultRow]:
    """Rows of a table with columns context_length (or token_limit), depth_percent and
    score."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        return list(_table(reader, name))
    except csv.Error as error:
        raise NeedlemapError(
            f"{name}, line {reader.line_num}: not readable as CSV ({error})."
        ) from None


def _table(reader: csv.DictReader[str], name: str) -> Iterator[ResultRow]:
    columns = reader.fieldnames or ()
    if "score_mean" in columns and "score" not in columns:
        raise NeedlemapError(
            f"{name} holds means of cells, without the repeats. Give the table of single results "
            f"(column 'score')."
        )
    for number, values in enumerate(reader, 2):
        if None in values or None in values.values():
            raise NeedlemapError(
                f"{name}, row {number}: {len(columns)} columns expected, not so many here."
            )
        yield _first_row(Fields(values, f"{name}, row {number}"), 1)


def _first_row(fields: Fields, version: int) -> ResultRow:
    said: Mapping[str, Any] = fields.values
    native = fields.maybe("score") if "score" in said else fields.number("score")
    return ResultRow(
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
