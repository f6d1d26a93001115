"""OpenCompass's summary, CSV or TXT: a row a data set, a column a model, scores 0..100, '-' for missing.

A score is the mean of however many answers that cell had; the summary does not say how many, so each is
marked as a mean, and a comparison of such runs gives no verdict. NeedleBench's own summary holds totals only:
refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from needlemap.errors import NeedlemapError
from needlemap.interop.imports.row import Fields, Row

TOOL = "OpenCompass"
HEADER = ("dataset", "version", "metric", "mode")
NO_SCORE = "-"
_UNKNOWN = [NO_SCORE] * 2  # metric and mode of a row that was not measured
_CELL = re.compile(
    r"^(?P<before>.*?)_?Length(?P<length>\d+)_?Depth(?P<depth>\d+(?:\.\d+)?)(?P<after>.*)$", re.DOTALL
)
_SECTION, _OVER, _UNDER = "csv format", "^", "$"  # a table's title, and the rules above and below it


def from_txt(text: str, name: str) -> list[Row]:
    """Rows of the table under 'csv format'. Raises NeedlemapError when there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    named = (at for at, line in enumerate(lines) if line.rstrip() == _SECTION)
    titles = (at for at in named if _rules(lines, at + 1, _OVER))
    start = next(titles, None)
    ends = (at for at in range((start or 0) + 2, len(lines)) if _rules(lines, at, _UNDER))
    end = next(ends, None) if start is not None else None
    if start is None or end is None:
        raise NeedlemapError(
            f"{name}: no section 'csv format', as OpenCompass's summary has one. Give a summary .txt or .csv."
        )
    return from_csv("".join(f"{line}\n" for line in lines[start + 2 : end]), name)


def _rules(lines: Sequence[str], at: int, sign: str) -> bool:
    """Whether a line is a rule, made of one sign."""
    line = lines[at].rstrip() if at < len(lines) else ""
    return bool(line) and not line.strip(sign)


def from_csv(text: str, name: str) -> list[Row]:
    """Rows of a summary, one for each model and cell. Raises NeedlemapError."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise NeedlemapError(f"{name}: not readable as CSV ({error}).") from None
    header = lines[0] if lines else []
    if tuple(header[:4]) != HEADER:
        raise NeedlemapError(_refusal(name, header, lines))
    if len(header) == len(HEADER) or len(set(header)) != len(header):
        raise NeedlemapError(f"{name}: a column a model is expected behind '{HEADER[-1]}', got {header[4:]}.")
    tests = _tests(lines[1:])
    rows = [
        row
        for number, line in enumerate(lines[1:], 2)
        for row in _rows(line, header, f"{name}, row {number}", tests)
    ]
    if not rows:
        raise NeedlemapError(f"{name}: no data set with length and depth in its name, as {_EXAMPLE}.")
    return rows


_EXAMPLE = "CDME_Length1000Depth50"


def _refusal(name: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if header[:1] == ["dataset"] and any("Needle" in line[0] for line in lines):
        return (
            f"{name} is NeedleBench's summary: totals, without length and depth, no map can be made of it. "
            f"Give the summary of the default summarizer, whose rows are named as {_EXAMPLE}."
        )
    return f"{name}: the first row must be {','.join(HEADER)},MODEL..., got {','.join(header):.80}."


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
) -> list[Row]:
    if len(line) != len(header):
        raise NeedlemapError(f"{place}: {len(header)} columns expected, got {len(line)}.")
    found = _CELL.match(line[0])
    if found is None:
        return []
    named = Fields({"length": found["length"], "depth": found["depth"]}, f"{place} ({line[0]})")
    length, depth = named.whole("length", 1), named.depth("depth")
    scores = zip(header[len(HEADER) :], line[len(HEADER) :], strict=True)
    series = _series(found, line, tests)
    return [_row(place, length, depth, model, said, each) for model, said in scores for each in series]


def _series(found: re.Match[str], line: Sequence[str], tests: Mapping[str, list[str]]) -> list[str]:
    """Data set, metric and mode: what a map must not mix. A row that was not measured is a cell of each test
    that others of its data set belong to."""
    dataset = _dataset(found)
    known = tests.get(dataset, []) if list(line[2:4]) == _UNKNOWN else []
    return [f"{dataset} {test}" for test in known or [" ".join(line[2:4])]]


def _dataset(found: re.Match[str]) -> str:
    return (
        "-".join(part for part in (found["before"].strip("_"), found["after"].strip("_")) if part) or "needle"
    )


def _row(place: str, length: int, depth: float, model: str, said: str, series: str) -> Row:
    missing = said.strip() == NO_SCORE
    return Row(
        place,
        length,
        depth,
        None if missing else Fields({model: said}, place).number(model),
        model=model,
        series=series,
        task=series.split(" ")[0],
        scorer=TOOL,
        scale=(0.0, 100.0),
        error=f"'{NO_SCORE}' in the summary" if missing else "",
        mean=True,
    )
