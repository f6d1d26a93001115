"""needlehaystack version 2 (`niah`): JSON Lines, a row a test, schema_version 2.

Its lengths are tokens of cl100k_base for every model, needle and question not counted; its depth as realised
is in the row's recipe. Seeds make repeats. Rows with status "error" were not measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.interop.imports.row import Fields, Row

TOOL = "needlehaystack 2"
TOKENIZER = "cl100k_base"
SCHEMA = 2
SCORERS = {"uuid_chain": "chain_match"}  # by task; all others: exact_match
_NEEDED = ("context_length", "target_depth_percent", "score")


def from_jsonl(data: bytes, name: str) -> list[Row]:
    """Rows of a file. A torn last line (an interrupted run) is left out. Raises NeedlemapError."""
    lines = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{name}, line {number}"
            fields = _fields(line, place, last=number == len(lines))
            found += [fields] if fields else []
    seeds = sorted({str(fields.values.get("seed")) for fields in found}, key=_by_number)
    versions = {seed: number for number, seed in enumerate(seeds, 1)}
    return [_row(fields, versions[str(fields.values.get("seed"))]) for fields in found]


def _fields(line: bytes, place: str, *, last: bool) -> Fields | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if last:
            return None
        raise NeedlemapError(f"{place}: not readable as JSON ({error}).") from None
    if not isinstance(value, dict) or any(name not in value for name in _NEEDED):
        raise NeedlemapError(f"{place}: no needlehaystack 2 result. Expected fields: {', '.join(_NEEDED)}.")
    if value.get("schema_version", SCHEMA) != SCHEMA:
        raise NeedlemapError(f"{place}: schema_version {value['schema_version']!r}, only {SCHEMA} is known.")
    return Fields(value, place)


def _row(fields: Fields, version: int) -> Row:
    said, task = fields.values, fields.text("task_type") or "single"
    score, usage = (_inner(said.get(name), fields.place, name) for name in ("score", "usage"))
    native = score.maybe("value") if score else None
    return Row(
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
    return {"needle": words, "realised": first.depth("actual_depth_percent") if first and known else None}


def _inner(value: object, place: str, name: str) -> Fields | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise NeedlemapError(f"{place}: field '{name}' must hold fields of its own, got {value!r:.80}.")
    return Fields(value, place)


def _by_number(seed: str) -> tuple[bool, float, str]:
    """Seeds in their order; none at all first."""
    number = float(seed) if seed.lstrip("-").isdigit() else 0.0
    return (seed != "None", number, seed)
