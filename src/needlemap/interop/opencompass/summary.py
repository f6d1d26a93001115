"""Read OpenCompass's summaries (CSV or TXT): a row a data set, a column a model, in percent.

A data set is a cell, with length and depth in its name. A score is the mean of the answers of that
cell. The summary does not say how many there were, so each score is marked as a mean, and a
comparison of such runs gives no verdict. "-" is a missing score.

    dataset,version,metric,mode,internlm-20b
    CDME_Length1000Depth50,1,score,gen,98.00

NeedleBench's own summary has a row a test, language and size:

    dataset,internlm-20b
    NeedleBench-Overall-Score-4K,39.60
    Single-Needle-Retrieval-EN-4K,48.00
    2-Needle-ZH-4K,20.00

Each of its rows is a mean over lengths and depths up to that size, so it has one length and no
depth. Rows of a test and a language become families of `suite:needlebench`. The file's means of
such rows are computed anew from them, and notes report how they were weighted.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.interop.result_row import Fields, ResultRow

OPENCOMPASS = "OpenCompass"
HEADER = ("dataset", "version", "metric", "mode")
SUITE = "needlebench"
_NO_SCORE = "-"
# Metric and mode of a row that was not measured.
_UNKNOWN = [_NO_SCORE] * 2
_CELL = re.compile(
    r"^(?P<before>.*?)_?Length(?P<length>\d+)_?Depth(?P<depth>\d+(?:\.\d+)?)(?P<after>.*)$",
    re.DOTALL,
)
_EXAMPLE = "CDME_Length1000Depth50"
# In a TXT: a table's title, and the signs that the lines above and below it consist of.
_SECTION = "csv format"
_OVER = "^"
_UNDER = "$"
# A row that names a block starts with this.
_RULE = "---"
_LEAF = re.compile(r"(?:(Single|Multi)-Needle-Retrieval|([2-5])-Needle)-(EN|ZH)-([1-9][0-9]{0,4})K")
_TOTAL = re.compile(
    r"NeedleBench-(Overall)-Score-([0-9]{1,5})K|[A-Za-z-]+\((S-RT|M-RT|M-RS)\)-([0-9]{1,5})K"
)
_NAMES = {"Single": "single", "Multi": "parallel"}
_OVERALL = {"overall": (1 / 3, 1 / 3, 1 / 3), "overall-v1": (0.4, 0.3, 0.3)}
# Points. The file's values are rounded to 0.01.
_NEAR = 0.0151

# The number of a row, and its values.
Line = tuple[int, list[str]]


def from_txt(text: str, name: str) -> list[ResultRow]:
    """Return the rows of the table under 'csv format'. Raises NeedlemapError if there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    table = _csv_section(lines)
    if table is None:
        raise NeedlemapError(
            f"{name}: no section 'csv format', as OpenCompass's summary has one. Give a summary "
            f".txt or .csv."
        )
    return from_csv("".join(f"{line}\n" for line in table), name)


def _csv_section(lines: Sequence[str]) -> Sequence[str] | None:
    """Return the lines between the rules of the first table in CSV, or None."""
    titles = (
        index
        for index, line in enumerate(lines)
        if line.rstrip() == _SECTION and _is_rule(lines, index + 1, sign=_OVER)
    )
    title = next(titles, None)
    if title is None:
        return None
    start = title + 2
    ends = (index for index in range(start, len(lines)) if _is_rule(lines, index, sign=_UNDER))
    end = next(ends, None)
    if end is None:
        return None
    return lines[start:end]


def _is_rule(lines: Sequence[str], index: int, sign: str) -> bool:
    """Return True if a line exists and consists of one sign."""
    if index >= len(lines):
        return False
    line = lines[index].rstrip()
    return bool(line) and not line.strip(sign)


def from_csv(text: str, name: str) -> list[ResultRow]:
    """Return the rows of a summary.

    There is one for each model and cell, or in a summary of NeedleBench for each model, test,
    language and size. Raises NeedlemapError if it is not a summary of OpenCompass.
    """
    header, lines = _table(text, name)
    if header[:1] == ["dataset"] and any(_LEAF.fullmatch(line[0]) for _, line in lines):
        return [
            row
            for number, line in _measured(header, lines, name=name)
            for row in _test_rows(line, header, place=f"{name}, row {number} ({line[0]})")
        ]
    if tuple(header[:4]) != HEADER:
        raise NeedlemapError(
            f"{name}: the first row must be {','.join(HEADER)},MODEL..., got "
            f"{','.join(header):.80}."
        )
    _check_models(header, len(HEADER), name=name)
    tests = _tests(line for _, line in lines)
    rows = [
        row
        for number, line in lines
        for row in _cell_rows(line, header, place=f"{name}, row {number}", tests=tests)
    ]
    if not rows:
        raise NeedlemapError(
            f"{name}: no data set with length and depth in its name, as {_EXAMPLE}."
        )
    return rows


def _test_rows(line: Sequence[str], header: Sequence[str], place: str) -> Iterator[ResultRow]:
    """Yield a row for each model if a line is of one test of NeedleBench, not a mean of several."""
    match = _LEAF.fullmatch(line[0])
    if match is None:
        return
    kind, needles, language, size = match.groups()
    test = _NAMES[kind] if kind else f"reasoning-{needles}"
    for model, score in zip(header[1:], line[1:], strict=True):
        yield _row(
            place,
            length=1000 * int(size),
            depth=50,
            model=model,
            score=score,
            task=f"{test}-{language.lower()}",
            suite=SUITE,
        )


def _cell_rows(
    line: Sequence[str],
    header: Sequence[str],
    *,
    place: str,
    tests: Mapping[str, list[str]],
) -> Iterator[ResultRow]:
    """Yield a row for each model and test if a data set's name holds length and depth."""
    _check_columns(line, header, place=place)
    match = _CELL.match(line[0])
    if match is None:
        return
    cell = {"length": match["length"], "depth": match["depth"]}
    fields = Fields(cell, f"{place} ({line[0]})")
    length = fields.whole_number("length", 1)
    depth = fields.depth("depth")
    for model, score in zip(header[len(HEADER) :], line[len(HEADER) :], strict=True):
        for series in _series_names(match, line, tests=tests):
            yield _row(
                place,
                length=length,
                depth=depth,
                model=model,
                score=score,
                task=series.split(" ")[0],
                series=series,
            )


def _row(
    place: str, *, length: int, depth: float, model: str, score: str, **fields: Any
) -> ResultRow:
    is_missing = score.strip() == _NO_SCORE
    return ResultRow(
        place,
        length,
        depth_percent=depth,
        native=None if is_missing else Fields({model: score}, place).number(model),
        model=model,
        scorer=OPENCOMPASS,
        scale=(0.0, 100.0),
        error=f"'{_NO_SCORE}' in the summary" if is_missing else "",
        mean=True,
        **fields,
    )


def _tests(lines: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Return the tests (metric and mode) that were measured of each data set."""
    tests_by_dataset: dict[str, list[str]] = {}
    for line in lines:
        match = _CELL.match(line[0])
        if match is None or len(line) < len(HEADER) or list(line[2:4]) == _UNKNOWN:
            continue
        tests = tests_by_dataset.setdefault(_dataset_name(match), [])
        test = " ".join(line[2:4])
        if test not in tests:
            tests.append(test)
    return tests_by_dataset


def _series_names(
    match: re.Match[str], line: Sequence[str], tests: Mapping[str, list[str]]
) -> list[str]:
    """Return the series that a row belongs to, each as data set, metric and mode.

    One map shows one series. A row that was not measured names no metric and mode, so it belongs
    to the series of every test of its data set.
    """
    dataset = _dataset_name(match)
    row_tests = [" ".join(line[2:4])]
    if list(line[2:4]) == _UNKNOWN:
        row_tests = tests.get(dataset) or row_tests
    return [f"{dataset} {test}" for test in row_tests]


def _dataset_name(match: re.Match[str]) -> str:
    """Return a data set's name without length and depth."""
    parts = (match["before"].strip("_"), match["after"].strip("_"))
    return "-".join(part for part in parts if part) or "needle"


def summary_notes(text: str, name: str) -> list[str]:
    """Return notes on the scores of a summary of NeedleBench.

    They report which weights an overall score has, and whether the single needle's score is that of
    several needles. Raises NeedlemapError if it is not such a summary.
    """
    header, lines = _table(text, name)
    table = _measured(header, lines, name=name)
    notes: list[str] = []
    for column, model in enumerate(header[1:], 1):
        scores = {line[0]: float(line[column]) for _, line in table if _is_number(line[column])}
        totals_by_size: dict[str, dict[str, float]] = {}
        for row, score in scores.items():
            match = _TOTAL.fullmatch(row)
            if match:
                overall, overall_size, part, part_size = match.groups()
                totals = totals_by_size.setdefault(overall_size or part_size, {})
                totals[overall or part] = score
        for size, totals in totals_by_size.items():
            place = f"{name}, {model}, {size}K"
            notes += _size_notes(place, totals, scores=scores, size=size)
    return notes


def _size_notes(
    place: str, totals: Mapping[str, float], *, scores: Mapping[str, float], size: str
) -> Iterator[str]:
    """Yield the notes on one size. totals: the file's means. scores: all of a model's."""
    parts = [totals.get(part) for part in ("S-RT", "M-RT", "M-RS")]
    if "Overall" in totals and None not in parts:
        overall = totals["Overall"]
        computed = {
            name: sum(weight * (part or 0.0) for weight, part in zip(weights, parts, strict=True))
            for name, weights in _OVERALL.items()
        }
        same = [name for name, score in computed.items() if abs(score - overall) < _NEAR]
        finding = f"has the weights of '{same[0]}'" if same else "has neither version's weights"
        yield f"{place}: its overall score of {overall:.2f} {finding}"

    pairs = [
        [scores.get(f"{test}-Needle-Retrieval-{language}-{size}K") for test in _NAMES]
        for language in ("EN", "ZH")
    ]
    if all(single is not None and single == parallel for single, parallel in pairs):
        yield (
            f"{place}: single and parallel needles have equal scores. OpenCompass's summary takes "
            f"the first from the second since June 2025"
        )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text) is not None


def _table(text: str, name: str) -> tuple[list[str], list[Line]]:
    """Return the header, and the numbered rows below it.

    Raises NeedlemapError if it is not a table in CSV.
    """
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise NeedlemapError(f"{name}: not readable as CSV ({error}).") from None
    header = lines[0] if lines else []
    return header, list(enumerate(lines[1:], 2))


def _measured(header: Sequence[str], lines: Iterable[Line], name: str) -> list[Line]:
    """Return the rows of NeedleBench that hold values.

    Raises NeedlemapError if a row or the header is not valid.
    """
    _check_models(header, 1, name=name)
    rows = [
        (number, line)
        for number, line in lines
        if line[0] != header[0] and not line[0].startswith(_RULE)
    ]
    for number, line in rows:
        _check_columns(line, header, place=f"{name}, row {number}")
    return rows


def _check_models(header: Sequence[str], first: int, name: str) -> None:
    """Raise NeedlemapError unless each model has a column of its own, from index `first` on."""
    if len(header) == first or len(set(header)) != len(header):
        raise NeedlemapError(
            f"{name}: a column a model is expected behind '{header[first - 1]}', got "
            f"{[*header[first:]]}."
        )


def _check_columns(line: Sequence[str], header: Sequence[str], place: str) -> None:
    if len(line) != len(header):
        raise NeedlemapError(f"{place}: {len(header)} columns expected, got {len(line)}.")
