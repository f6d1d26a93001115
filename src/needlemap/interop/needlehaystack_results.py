"""Read results of needlehaystack, versions 2 (`niah`) and 1.

Version 2 writes JSON Lines, a row a test, with schema_version 2. Its lengths are tokens of
cl100k_base for every model, without needle and question. The realised depth is in the row's recipe.
Each seed is a repeat. Rows with status "error" were not measured.

Version 1 writes a JSON object a test, with model, context_length, depth_percent, version, needle,
model_response, score, test_duration_seconds, test_timestamp_utc. The first OpenAI set is a
list of {token_limit, depth_percent, score}. A table has columns of the same names. None of these
files shows how answers were scored.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.interop.result_row import Fields, ResultRow, parse_json

TOOL_2 = "needlehaystack 2"
TOOL_1 = "needlehaystack 1"
TOKENIZER = "cl100k_base"
SCHEMA = 2
# Scorers by task. All other tasks have exact_match.
SCORERS = {"uuid_chain": "chain_match"}
_NEEDED = ("context_length", "target_depth_percent", "score")
LENGTHS = ("context_length", "token_limit")
_REPEATED = re.compile(r"_(\d+)\.json$")


def from_jsonl(data: bytes, name: str) -> list[ResultRow]:
    """Return the rows of a file of version 2.

    A last line that was not written to its end, as after an interruption, is left out. Raises
    NeedlemapError if any other line is not a result.
    """
    lines = data.split(b"\n")
    results: list[Fields] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = _fields(line, f"{name}, line {number}", is_last=number == len(lines))
        if fields is not None:
            results.append(fields)
    seeds = sorted({_seed(fields) for fields in results}, key=_seed_sort_key)
    versions = {seed: number for number, seed in enumerate(seeds, 1)}
    return [_second_row(fields, versions[_seed(fields)]) for fields in results]


def _seed(fields: Fields) -> str:
    return str(fields.values.get("seed"))


def _fields(line: bytes, place: str, *, is_last: bool) -> Fields | None:
    """Return the fields of a line, or None for a last line that cannot be read."""
    try:
        value = parse_json(line, place)
    except NeedlemapError:
        if is_last:
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
    """Return a result of the tool's second version."""
    values = fields.values
    task = fields.text("task_type") or "single"
    score = _inner(values.get("score"), fields.place, name="score")
    usage = _inner(values.get("usage"), fields.place, name="usage")
    native = score.maybe("value") if score else None
    return ResultRow(
        fields.place,
        fields.whole_number("context_length", 1),
        depth_percent=fields.depth("target_depth_percent"),
        native=native,
        model=fields.text("model_id") or fields.text("model_request_name"),
        version=version,
        series=fields.text("run_name"),
        task=task,
        scorer=SCORERS.get(task, "exact_match"),
        scale=(0.0, 1.0),
        tokenizer=TOKENIZER,
        question=fields.text("prompt_question"),
        reference=fields.text("expected_answer"),
        answer=fields.text("response") if values.get("response") is not None else None,
        error="" if native is not None else fields.text("error") or "no score in the file",
        answered_by=fields.text("model_request_name") or None,
        prompt_tokens=usage.maybe_whole("input_tokens") if usage else None,
        completion_tokens=usage.maybe_whole("output_tokens") if usage else None,
        usd=fields.maybe("cost_usd"),
        latency_s=fields.maybe("duration_seconds"),
        finished_at=fields.text("timestamp_utc"),
        **_needle_fields(values.get("recipe"), fields.place),
    )


def _needle_fields(recipe: object, place: str) -> dict[str, Any]:
    """Return the needle and its realised depth as fields of a row, or {} if no needle was placed.

    If there are several needles, the depth is that of the first one.

    recipe: how the tool built the prompt.
    """
    placements = recipe.get("needle_placements") if isinstance(recipe, Mapping) else None
    if not isinstance(placements, list) or not placements:
        return {}
    needles = [_inner(placement, place, name="needle_placements") for placement in placements]
    first = needles[0]
    realised = None
    if first is not None and "actual_depth_percent" in first.values:
        realised = first.depth("actual_depth_percent")
    return {
        "needle": "\n".join(needle.text("text") for needle in needles if needle),
        "realised": realised,
    }


def _inner(value: object, place: str, name: str) -> Fields | None:
    """Return the fields inside a field, or None if it is empty.

    Raises NeedlemapError if it holds anything else.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise NeedlemapError(
            f"{place}: field '{name}' must hold fields of its own, got {value!r:.80}."
        )
    return Fields(value, place)


def _seed_sort_key(seed: str) -> tuple[bool, float, str]:
    """Return a seed's sort key: a missing seed comes first, then seeds by number, then by text."""
    number = float(seed) if seed.lstrip("-").isdigit() else 0.0
    return (seed != "None", number, seed)


def is_result(value: object) -> bool:
    """Return True if a JSON value is a result of needlehaystack."""
    if not isinstance(value, dict) or "depth_percent" not in value:
        return False
    return any(name in value for name in LENGTHS)


def from_json(data: bytes, name: str) -> list[ResultRow]:
    """Return the rows of one file: an object, or a list of them.

    Raises NeedlemapError for anything else.
    """
    value = parse_json(data, name)
    if isinstance(value, list):
        entries = {f"{name}, entry {number}": entry for number, entry in enumerate(value, 1)}
    else:
        entries = {name: value}
    wrong = [place for place, entry in entries.items() if not is_result(entry)]
    if wrong or not entries:
        place = wrong[0] if wrong else name
        raise NeedlemapError(
            f"{place}: no needlehaystack result. It needs {' or '.join(LENGTHS)}, depth_percent, "
            f"score."
        )
    return [_first_row(Fields(entry, place), _version(name)) for place, entry in entries.items()]


def from_csv(text: str, name: str) -> list[ResultRow]:
    """Return the rows of a table.

    It needs the columns context_length (or token_limit), depth_percent and score. Raises
    NeedlemapError if it is not such a table.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        return list(_table_rows(reader, name))
    except csv.Error as error:
        raise NeedlemapError(
            f"{name}, line {reader.line_num}: not readable as CSV ({error})."
        ) from None


def _table_rows(reader: csv.DictReader[str], name: str) -> Iterator[ResultRow]:
    columns = reader.fieldnames or ()
    if "score_mean" in columns and "score" not in columns:
        raise NeedlemapError(
            f"{name} holds means of cells, without the repeats. Give the table of single results "
            f"(column 'score')."
        )
    for number, values in enumerate(reader, 2):
        # csv has None as a key for cells too many, and as a value for cells too few.
        if None in values or None in values.values():
            raise NeedlemapError(
                f"{name}, row {number}: {len(columns)} columns expected, not so many here."
            )
        yield _first_row(Fields(values, f"{name}, row {number}"), 1)


def _first_row(fields: Fields, version: int) -> ResultRow:
    """Return a result of the tool's first version."""
    values: Mapping[str, Any] = fields.values
    # A row may have an empty score, but not none: number() raises then.
    native = fields.maybe("score") if "score" in values else fields.number("score")
    length_name = next((name for name in LENGTHS if name in values), LENGTHS[0])
    return ResultRow(
        fields.place,
        fields.whole_number(length_name, 1),
        depth_percent=fields.depth("depth_percent"),
        native=native,
        model=fields.text("model"),
        version=version
        if values.get("version") in (None, "")
        else fields.whole_number("version", 1),
        needle=fields.text("needle").strip(),
        answer=fields.text("model_response") if values.get("model_response") is not None else None,
        error="" if native is not None else "no score in the file",
        latency_s=fields.maybe("test_duration_seconds"),
        finished_at=fields.text("test_timestamp_utc"),
    )


def _version(name: str) -> int:
    """Return the repeat, from 1, that a file's name shows: `..._results_2.json` is the second."""
    match = _REPEATED.search(name)
    # A longer number is rather a date.
    if match is None or len(match[1]) > 3:
        return 1
    return max(1, int(match[1]))
