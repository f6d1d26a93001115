"""Results of other tools as rows: needlehaystack, versions 2 (`niah`) and 1; OpenCompass's
summary.

needlehaystack 2: JSON Lines, a row a test, schema_version 2. Its lengths are tokens of
cl100k_base for every model, needle and question not counted; its depth as realised is in the
row's recipe. Seeds make repeats. Rows with status "error" were not measured.

needlehaystack 1: a JSON object a test, with model, context_length, depth_percent, version,
needle, model_response, score, test_duration_seconds, test_timestamp_utc. The first OpenAI set
is a list of {token_limit, depth_percent, score}. A table has the same names as its columns.
None of them says how answers were scored.

OpenCompass: CSV or TXT, a row a data set, a column a model, scores 0..100, "-" for missing. A
score is the mean of however many answers that cell had; the summary does not say how many, so
each is marked as a mean, and a comparison of such runs gives no verdict. NeedleBench's own
summary is read by `opencompass/summary.py`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import read_json
from needlemap.interop import Fields, ResultRow
from needlemap.interop.opencompass.summary import is_summary, read_summary

TOOL_2, TOOL_1 = "needlehaystack 2", "needlehaystack 1"
TOKENIZER = "cl100k_base"
SCHEMA = 2
SCORERS = {"uuid_chain": "chain_match"}  # by task; all others: exact_match
_NEEDED = ("context_length", "target_depth_percent", "score")
LENGTHS = ("context_length", "token_limit")
_REPEATED = re.compile(r"_(\d+)\.json$")
OPENCOMPASS = "OpenCompass"
HEADER = ("dataset", "version", "metric", "mode")
NO_SCORE = "-"
_UNKNOWN = [NO_SCORE] * 2  # metric and mode of a row that was not measured
_CELL = re.compile(
    r"^(?P<before>.*?)_?Length(?P<length>\d+)_?Depth(?P<depth>\d+(?:\.\d+)?)(?P<after>.*)$",
    re.DOTALL,
)
_SECTION, _OVER, _UNDER = (
    "csv format",
    "^",
    "$",
)  # a table's title, and the rules above and below it
_EXAMPLE = "CDME_Length1000Depth50"


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
        value = read_json(line)
    except (ValueError, RecursionError) as error:
        if last:
            return None
        raise NeedlemapError(f"{place}: not readable as JSON ({error}).") from None
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
    try:
        value = read_json(data)
    except (ValueError, RecursionError) as error:
        raise NeedlemapError(f"{name}: not readable as JSON ({error}).") from None
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


def summary_from_txt(text: str, name: str) -> list[ResultRow]:
    """Rows of the table under 'csv format'. Raises NeedlemapError when there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    named = (at for at, line in enumerate(lines) if line.rstrip() == _SECTION)
    titles = (at for at in named if _rules(lines, at + 1, _OVER))
    start = next(titles, None)
    ends = (at for at in range((start or 0) + 2, len(lines)) if _rules(lines, at, _UNDER))
    end = next(ends, None) if start is not None else None
    if start is None or end is None:
        raise NeedlemapError(
            f"{name}: no section 'csv format', as OpenCompass's summary has one. Give a summary "
            f".txt or .csv."
        )
    return summary_from_csv("".join(f"{line}\n" for line in lines[start + 2 : end]), name)


def _rules(lines: Sequence[str], at: int, sign: str) -> bool:
    """Whether a line is a rule, made of one sign."""
    line = lines[at].rstrip() if at < len(lines) else ""
    return bool(line) and not line.strip(sign)


def summary_from_csv(text: str, name: str) -> list[ResultRow]:
    """Rows of a summary, one for each model and cell. Raises NeedlemapError."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise NeedlemapError(f"{name}: not readable as CSV ({error}).") from None
    header = lines[0] if lines else []
    if is_summary(header, lines):
        return read_summary(text, name)
    if tuple(header[:4]) != HEADER:
        raise NeedlemapError(
            f"{name}: the first row must be {','.join(HEADER)},MODEL..., got "
            f"{','.join(header):.80}."
        )
    if len(header) == len(HEADER) or len(set(header)) != len(header):
        raise NeedlemapError(
            f"{name}: a column a model is expected behind '{HEADER[-1]}', got {header[4:]}."
        )
    tests = _tests(lines[1:])
    rows = [
        row
        for number, line in enumerate(lines[1:], 2)
        for row in _rows(line, header, f"{name}, row {number}", tests)
    ]
    if not rows:
        raise NeedlemapError(
            f"{name}: no data set with length and depth in its name, as {_EXAMPLE}."
        )
    return rows


def _tests(lines: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """By data set the tests that were measured of it: metric and mode."""
    found: dict[str, list[str]] = {}
    for line in lines:
        cell = _CELL.match(line[0])
        if cell and len(line) >= len(HEADER) and list(line[2:4]) != _UNKNOWN:
            tests = found.setdefault(_dataset(cell), [])
            tests += [test for test in [" ".join(line[2:4])] if test not in tests]
    return found


def _rows(
    line: Sequence[str], header: Sequence[str], place: str, tests: Mapping[str, list[str]]
) -> list[ResultRow]:
    if len(line) != len(header):
        raise NeedlemapError(f"{place}: {len(header)} columns expected, got {len(line)}.")
    found = _CELL.match(line[0])
    if found is None:
        return []
    named = Fields({"length": found["length"], "depth": found["depth"]}, f"{place} ({line[0]})")
    length, depth = named.whole("length", 1), named.depth("depth")
    scores = zip(header[len(HEADER) :], line[len(HEADER) :], strict=True)
    series = _series(found, line, tests)
    return [
        _row(place, length, depth, model, said, each) for model, said in scores for each in series
    ]


def _series(found: re.Match[str], line: Sequence[str], tests: Mapping[str, list[str]]) -> list[str]:
    """Data set, metric and mode: what a map must not mix. A row that was not measured is a
    cell of each test that others of its data set belong to."""
    dataset = _dataset(found)
    known = tests.get(dataset, []) if list(line[2:4]) == _UNKNOWN else []
    return [f"{dataset} {test}" for test in known or [" ".join(line[2:4])]]


def _dataset(found: re.Match[str]) -> str:
    return (
        "-".join(part for part in (found["before"].strip("_"), found["after"].strip("_")) if part)
        or "needle"
    )


def _row(place: str, length: int, depth: float, model: str, said: str, series: str) -> ResultRow:
    missing = said.strip() == NO_SCORE
    return ResultRow(
        place,
        length,
        depth,
        None if missing else Fields({model: said}, place).number(model),
        model=model,
        series=series,
        task=series.split(" ")[0],
        scorer=OPENCOMPASS,
        scale=(0.0, 100.0),
        error=f"'{NO_SCORE}' in the summary" if missing else "",
        mean=True,
    )
