"""OpenCompass's summaries as rows: CSV or TXT, a row a data set, a column a model, in percent.

A data set is a cell, with length and depth in its name. A score is the mean of however many
answers that cell had; the summary does not say how many, so each is marked as a mean, and a
comparison of such runs gives no verdict. "-" is a missing score.

    dataset,version,metric,mode,internlm-20b
    CDME_Length1000Depth50,1,score,gen,98.00

NeedleBench's own summary has a row a test, language and size:

    dataset,internlm-20b
    NeedleBench-Overall-Score-4K,39.60
    Single-Needle-Retrieval-EN-4K,48.00
    2-Needle-ZH-4K,20.00

Each of its rows is a mean over lengths and depths up to that size, so it has one length and no
depth. Rows of a test and a language become families of `suite:needlebench`; the file's means
of these are made anew from them, and a note says where they differ.
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
_UNKNOWN = [_NO_SCORE] * 2  # metric and mode of a row that was not measured
_CELL = re.compile(
    r"^(?P<before>.*?)_?Length(?P<length>\d+)_?Depth(?P<depth>\d+(?:\.\d+)?)(?P<after>.*)$",
    re.DOTALL,
)
_EXAMPLE = "CDME_Length1000Depth50"
# of a TXT: a table's title, and the rules above and below it
_SECTION, _OVER, _UNDER = "csv format", "^", "$"
_RULE = "---"  # begins a row that names a block
_LEAF = re.compile(r"(?:(Single|Multi)-Needle-Retrieval|([2-5])-Needle)-(EN|ZH)-([1-9][0-9]{0,4})K")
_TOTAL = re.compile(
    r"NeedleBench-(Overall)-Score-([0-9]{1,5})K|[A-Za-z-]+\((S-RT|M-RT|M-RS)\)-([0-9]{1,5})K"
)
_NAMES = {"Single": "single", "Multi": "parallel"}
_OVERALL = {"overall": (1 / 3, 1 / 3, 1 / 3), "overall-v1": (0.4, 0.3, 0.3)}
_NEAR = 0.0151  # points: the file's values are rounded to 0.01


Line = tuple[int, list[str]]  # its number, and its values


def from_txt(text: str, name: str) -> list[ResultRow]:
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
    return from_csv("".join(f"{line}\n" for line in lines[start + 2 : end]), name)


def _rules(lines: Sequence[str], at: int, sign: str) -> bool:
    """Whether a line is a rule, made of one sign."""
    line = lines[at].rstrip() if at < len(lines) else ""
    return bool(line) and not line.strip(sign)


def from_csv(text: str, name: str) -> list[ResultRow]:
    """Rows of a summary, one for each model and cell, or of NeedleBench for each model, test,
    language and size. Raises NeedlemapError."""
    header, lines = _table(text, name)
    if header[:1] == ["dataset"] and any(_LEAF.fullmatch(line[0]) for _, line in lines):
        named = _measured(header, lines, name)
        return [row for number, line in named for row in _of_test(line, header, name, number)]
    if tuple(header[:4]) != HEADER:
        raise NeedlemapError(
            f"{name}: the first row must be {','.join(HEADER)},MODEL..., got "
            f"{','.join(header):.80}."
        )
    _check_models(header, len(HEADER), name)
    tests = _tests(line for _, line in lines)
    rows = [row for number, line in lines for row in _of_cell(line, header, name, number, tests)]
    if not rows:
        raise NeedlemapError(
            f"{name}: no data set with length and depth in its name, as {_EXAMPLE}."
        )
    return rows


def _of_test(
    line: Sequence[str], header: Sequence[str], name: str, number: int
) -> Iterator[ResultRow]:
    """A row a model of a test of NeedleBench; none of a mean of several."""
    if leaf := _LEAF.fullmatch(line[0]):
        kind, needles, language, size = leaf.groups()
        family = f"{_NAMES[kind] if kind else f'reasoning-{needles}'}-{language.lower()}"
        place = f"{name}, row {number} ({line[0]})"
        for model, score in zip(header[1:], line[1:], strict=True):
            yield _row(place, 1000 * int(size), 50, model, score, task=family, suite=SUITE)


def _of_cell(
    line: Sequence[str],
    header: Sequence[str],
    name: str,
    number: int,
    tests: Mapping[str, list[str]],
) -> Iterator[ResultRow]:
    """A row a model of a cell; none of a data set without a place in a map."""
    place = f"{name}, row {number}"
    _check_columns(line, header, place)
    if found := _CELL.match(line[0]):
        named = Fields({"length": found["length"], "depth": found["depth"]}, f"{place} ({line[0]})")
        length, depth = named.whole("length", 1), named.depth("depth")
        for model, score in zip(header[len(HEADER) :], line[len(HEADER) :], strict=True):
            for series in _series(found, line, tests):
                task = series.split(" ")[0]
                yield _row(place, length, depth, model, score, task=task, series=series)


def _row(place: str, length: int, depth: float, model: str, score: str, **named: Any) -> ResultRow:
    missing = score.strip() == _NO_SCORE
    return ResultRow(
        place,
        length,
        depth,
        None if missing else Fields({model: score}, place).number(model),
        model=model,
        scorer=OPENCOMPASS,
        scale=(0.0, 100.0),
        error=f"'{_NO_SCORE}' in the summary" if missing else "",
        mean=True,
        **named,
    )


def _tests(lines: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """By data set the tests that were measured of it: metric and mode."""
    found: dict[str, list[str]] = {}
    for line in lines:
        cell = _CELL.match(line[0])
        if cell and len(line) >= len(HEADER) and list(line[2:4]) != _UNKNOWN:
            tests = found.setdefault(_dataset(cell), [])
            tests += [test for test in [" ".join(line[2:4])] if test not in tests]
    return found


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


def summary_notes(text: str, name: str) -> list[str]:
    """What a reader of the summary should know: which weights its overall score has, and
    whether its single needle's score is that of several needles. Raises NeedlemapError."""
    header, lines = _table(text, name)
    table = _measured(header, lines, name)
    notes = list[str]()
    for at, model in enumerate(header[1:], 1):
        values = {line[0]: float(line[at]) for _, line in table if _is_number(line[at])}
        totals: dict[str, dict[str, float]] = {}
        for row, value in values.items():
            if total := _TOTAL.fullmatch(row):
                overall, size, part, other = total.groups()
                totals.setdefault(size or other, {})[overall or part] = value
        for size, known in totals.items():
            notes += _notes(f"{name}, {model}, {size}K", known, values, size)
    return notes


def _notes(
    place: str, known: Mapping[str, float], values: Mapping[str, float], size: str
) -> Iterator[str]:
    parts = [known.get(each) for each in ("S-RT", "M-RT", "M-RS")]
    if "Overall" in known and None not in parts:
        made = {
            name: sum(weight * (part or 0.0) for weight, part in zip(weights, parts, strict=True))
            for name, weights in _OVERALL.items()
        }
        same = [score for score, value in made.items() if abs(value - known["Overall"]) < _NEAR]
        said = f"has the weights of '{same[0]}'" if same else "has neither version's weights"
        yield f"{place}: its overall score of {known['Overall']:.2f} {said}"
    pairs = [
        [values.get(f"{test}-Needle-Retrieval-{each}-{size}K") for test in _NAMES]
        for each in ("EN", "ZH")
    ]
    if all(one is not None and one == other for one, other in pairs):
        yield (
            f"{place}: single and parallel needles have equal scores. OpenCompass's summary takes "
            f"the first from the second since June 2025"
        )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text) is not None


def _table(text: str, name: str) -> tuple[list[str], list[Line]]:
    """The header, and the numbered rows below it. Raises NeedlemapError."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except csv.Error as error:
        raise NeedlemapError(f"{name}: not readable as CSV ({error}).") from None
    return (lines[0] if lines else []), list(enumerate(lines[1:], 2))


def _measured(header: Sequence[str], lines: Iterable[Line], name: str) -> list[Line]:
    """The rows of NeedleBench that hold values. Raises NeedlemapError."""
    _check_models(header, 1, name)
    found = [each for each in lines if each[1][0] != header[0] and not each[1][0].startswith(_RULE)]
    for number, line in found:
        _check_columns(line, header, f"{name}, row {number}")
    return found


def _check_models(header: Sequence[str], first: int, name: str) -> None:
    """Raises NeedlemapError unless there is a column for each model, behind the first so
    many."""
    if len(header) == first or len(set(header)) != len(header):
        raise NeedlemapError(
            f"{name}: a column a model is expected behind '{header[first - 1]}', got "
            f"{[*header[first:]]}."
        )


def _check_columns(line: Sequence[str], header: Sequence[str], place: str) -> None:
    if len(line) != len(header):
        raise NeedlemapError(f"{place}: {len(header)} columns expected, got {len(line)}.")
