"""Tables of runs: a row per cell or per trial as CSV or Parquet, OpenCompass's summary, maps
as Markdown.

In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV
injection), and text with a line break of any kind is quoted, so that it stays one field of one
row in every reader.

OpenCompass's summary, CSV and TXT, is as its DefaultSummarizer writes them and its needle
plots read the CSV: two decimals, "-" for missing, nothing quoted, one column per model. A
model's name becomes part of a file's name there, so it holds no slash. It holds no n and no
interval.

Markdown is for what shows no picture of ours, as a job's summary in CI does: maps as tables,
of two runs what changed, the figure as an SVG beside it, and no verdict: that is what reports
have.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.extras import install_line
from needlemap.files import is_regular, read_regular, write_report
from needlemap.grid import Cell, percent
from needlemap.records.loaded import Loaded
from needlemap.records.run_file import RunSettings
from needlemap.reports.figures.panels import change_caption
from needlemap.reports.labels import (
    depth_labels,
    length_labels,
    loss_label,
    overall_label,
    score_label,
    unique_names,
)
from needlemap.stats.means import Map
from needlemap.stats.table_schema import CELLS, RUN, TRIALS, DataColumn, Value
from needlemap.text import FORMULA_STARTS, LINE_BREAKS, printable, whole_characters
from needlemap.version import __version__

if TYPE_CHECKING:
    from needlemap.reports.figures.drawing import Drawing
    from needlemap.reports.figures.figure import Figure
    from needlemap.stats import Cell as Place


_DEPTHS = ("depth_percent", "realised_depth_percent")
SUFFIXES, MARKDOWN = (".csv", ".parquet"), ".md"
OPENCOMPASS = "opencompass"
# The section of the TXT whose table is the CSV's.
SECTION = "csv format"
# What viewers make links of, escaped or not: addresses, people, issues as #1, !1 and GH-1.
_LINKED = re.compile(r"(?<=www)(?=\.)|(?<=\S)(?=@)|(?<=[@#!])(?=\w)|(?<=\bGH)(?=-)", re.IGNORECASE)
_TICKS = re.compile("`+")
# Shows nothing.
_WORD_JOINER = "\u2060"
# What a spreadsheet passes over before a formula: spaces, controls and what shows nothing.
_BLANK = (
    r"\s\x00-\x20\x7f-\xa0\xad\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
)
# Where ';' or a tab parts lists, or a line ends: a formula begins there, if not a plain number.
_INNER_FORMULA = re.compile(
    rf"([;\t{LINE_BREAKS}][{_BLANK}\"]*+)"
    rf"(?![+-]?[\d.]+[{_BLANK}]*+(?:[;\t]|\Z))(?=[=+\-@＝＋－＠])"
)
_FORMULA = re.compile(rf"[{_BLANK}\"]*+[=+\-@＝＋－＠]|[\t{LINE_BREAKS}]")
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>()#+-!|&~:$"})
# Unfit in a name: nothing is quoted, and a figure's file has this name.
_UNFIT = set(',"\r\n/\\:*?<>|')
_DIVIDER = f"\n{'-' * 128} THIS IS A DIVIDER {'-' * 128}\n"


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows of values in the order of the columns."""

    columns: tuple[DataColumn, ...]
    rows: tuple[tuple[Value, ...], ...]


def cells_table(runs: Sequence[Loaded]) -> DataTable:
    """Return a row per cell of each run's map."""
    rows = [
        _row_values(run, run.map.model, run.map.task, CELLS, cell)
        for run in runs
        for cell in run.map.cells
    ]
    return DataTable(CELLS, tuple(rows))


def trials_table(runs: Sequence[Loaded]) -> DataTable:
    """Return a row per trial, answers included, by length, depth and repeat."""
    rows = [
        _row_values(run, run.about.named.label or record.model, record.task, TRIALS, record)
        for run in runs
        for record in sorted(run.records, key=attrgetter("length_tokens", "depth", "repeat"))
    ]
    return DataTable(TRIALS, tuple(rows))


def _row_values(
    run: Loaded, model: str, task: str, columns: Sequence[DataColumn], row: Any
) -> tuple[Value, ...]:
    """Return a row's values. If the task asks about the whole text, its depths are None."""
    placeless = _DEPTHS if run.map.depthless else ()
    values = (
        None if column.name in placeless else column.table_value(row)
        for column in columns[len(RUN) :]
    )
    return tuple(map(_make_encodable, (run.path, model, task, *values)))


def _make_encodable(value: Value) -> Value:
    """Return a value that a file can hold.

    The names of folders and a stranger's words may have half characters.
    """
    return value if not isinstance(value, str) or value.isascii() else whole_characters(value)


def csv_text(table: DataTable) -> str:
    """Return the table as CSV, in which unknown values are empty fields."""
    text = io.StringIO()
    plain_writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    quoting_writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    plain_writer.writerow(column.name for column in table.columns)
    for row in table.rows:
        fields = [escape_formula(value) for value in row]
        has_line_break = any(
            isinstance(field, str) and not set(field).isdisjoint(LINE_BREAKS) for field in fields
        )
        (quoting_writer if has_line_break else plain_writer).writerow(fields)
    return text.getvalue()


def escape_formula(value: Value) -> Value:
    """Return a value that no spreadsheet runs as a formula. Numbers stay as they are.

    >>> escape_formula("=1+1"), escape_formula("-5"), escape_formula("plain")
    ("'=1+1", '-5', 'plain')
    >>> escape_formula("42;=cmd")  # to a spreadsheet whose lists are parted by ';'
    "42;'=cmd"
    >>> escape_formula("1;-5")
    '1;-5'
    >>> escape_formula("\\xa0=1")
    "'\\xa0=1"
    """
    if not isinstance(value, str) or _is_number(value):
        return value
    escaped = _INNER_FORMULA.sub(r"\1'", value)
    return f"'{escaped}" if _FORMULA.match(escaped) else escaped


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


def parquet_bytes(table: DataTable) -> bytes:
    """Return the file's content.

    The table's values are unchanged, unknown ones null, and each column has its meaning. Raises
    NeedlemapError without pyarrow, and for a seed beyond the 64 bits of Parquet's whole numbers.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NeedlemapError(
            f"A .parquet file needs pyarrow. Run: {install_line('parquet')}"
        ) from None
    kinds = {"text": pyarrow.string(), "whole number": pyarrow.int64(), "number": pyarrow.float64()}
    fields = [
        pyarrow.field(column.name, kinds[column.kind], metadata={"description": column.meaning})
        for column in table.columns
    ]
    schema = pyarrow.schema(fields, metadata={"needlemap": __version__})
    rows = [dict(zip(schema.names, row, strict=True)) for row in table.rows]
    try:
        arrow_table = pyarrow.Table.from_pylist(rows, schema=schema)
    except OverflowError:
        raise NeedlemapError(
            "A number is too large for Parquet. Give a name that ends in .csv."
        ) from None
    stream = io.BytesIO()
    pyarrow.parquet.write_table(arrow_table, stream, compression="zstd")
    return stream.getvalue()


MAKERS = {"cells": cells_table, "trials": trials_table}


def is_table(path: str | Path) -> bool:
    """Return True if a file of that name is a table."""
    return Path(path).suffix.lower() in SUFFIXES


def write_table(runs: Sequence[Loaded], path: str | Path, format: str = "cells") -> Path:
    """Write a table by its suffix; folders are made.

    An OpenCompass summary is two files: a .txt of the same name stands next to the .csv. Raises
    SettingsError for an unknown format.
    """
    target = Path(path)
    content = table_bytes(runs, target.suffix.lower(), format)
    if format == OPENCOMPASS:
        _write_txt(runs, target.with_suffix(".txt"))
    return write_report(target, content)


def _write_txt(runs: Sequence[Loaded], path: Path) -> None:
    if path.exists() and not (is_regular(path) and SECTION.encode() in read_regular(path)):
        raise SettingsError(
            f"'{path}' would be written too, and is no summary. Give another name with -o."
        )
    write_report(path, summary_txt(_columns(runs), datetime.now()).encode())


def _columns(runs: Sequence[Loaded]) -> dict[str, Map]:
    names = column_names([run.about.named for run in runs], [run.path for run in runs])
    return dict(zip(names, (run.map for run in runs), strict=True))


def table_bytes(runs: Sequence[Loaded], suffix: str, format: str) -> bytes:
    """Return the file's content.

    suffix: .csv or .parquet. format: cells, trials or opencompass.
    """
    if format == OPENCOMPASS and suffix == ".csv":
        return summary_csv(_columns(runs)).encode()
    if format == OPENCOMPASS:
        raise SettingsError("OpenCompass's summary is a CSV. Give a name that ends in .csv.")
    if format not in MAKERS:
        raise SettingsError(
            f"Unknown format '{format}'. {did_you_mean(format, (*MAKERS, OPENCOMPASS))}"
        )
    table = MAKERS[format](runs)
    return parquet_bytes(table) if suffix == ".parquet" else csv_text(table).encode()


def column_names(settings_of_runs: Sequence[RunSettings], paths: Sequence[str | Path]) -> list[str]:
    """Return a column's name for each run.

    It is the run's label, or its model's name without back end and folders.

    >>> shared = {"task": "single", "mode": "exact"}
    >>> mine = RunSettings(model="openai/org/my-model", **shared)
    >>> other = RunSettings(model="hf/./tiny", label="t/1", **shared)
    >>> column_names([mine, other], ["a", "b"])
    ['my-model', 't_1']
    """
    short_names = [
        _plain_name(settings.label or Path(settings.model).name) for settings in settings_of_runs
    ]
    names: list[str] = []
    for name in map(_plain_name, unique_names(short_names, [Path(path) for path in paths])):
        repeats = sum(
            earlier_name == name or earlier_name.startswith(f"{name}-") for earlier_name in names
        )
        names.append(f"{name}-{repeats + 1}" if name in names else name)
    return names


def summary_csv(columns: Mapping[str, Map], *, version: str | None = None) -> str:
    """Return the CSV of one or more maps of the same test, a column each in the mapping's order.

    version: six hex digits; by default made from task, scorer and mode. Raises SettingsError if the
    maps differ in these, or if there is no map.
    """
    return "".join(",".join(row) + "\n" for row in _rows(columns, version))


def summary_txt(columns: Mapping[str, Map], made: datetime, *, version: str | None = None) -> str:
    """Return the TXT that OpenCompass writes next to it.

    It holds the same table twice, and the scores in full.
    """
    rows = _rows(columns, version)
    parts = {
        "tabulate format": tabulate(rows),
        SECTION: [",".join(row) for row in rows],
        "raw format": _raw_lines(columns, [row[0] for row in rows[1:]]),
    }
    sections = [
        "\n".join([name, "^" * 128, *lines, "$" * 128, ""]) for name, lines in parts.items()
    ]
    return f"{made:%Y%m%d_%H%M%S}\n" + _DIVIDER.join(
        [sections[0], *(f"\n{section}" for section in sections[1:])]
    )


def tabulate(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as the `tabulate` package prints them.

    Texts are set to the left, numbers by their decimal point.
    """
    columns = [_align([row[column] for row in rows]) for column in range(len(rows[0]))]
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _align(cells: Sequence[str]) -> list[str]:
    head, *values = cells
    are_numbers = all(value.replace(".", "", 1).isdigit() for value in values)
    if are_numbers:
        values = [f"{float(value):g}" for value in values]
        decimals = max(
            (len(value.partition(".")[2]) + ("." in value) for value in values), default=0
        )
        values = [
            value + " " * (decimals - len("".join(value.partition(".")[1:]))) for value in values
        ]
    width = max(len(head) + 2, *map(len, values))
    lines = [head, "-" * width, *values]
    return [line.rjust(width) if are_numbers else line.ljust(width) for line in lines]


def _raw_lines(columns: Mapping[str, Map], datasets: Sequence[str]) -> list[str]:
    lines = []
    for name, score_map in columns.items():
        lines += ["-" * 31, f"Model: {name}"]
        scores = _scores(score_map)
        for dataset, cell in zip(datasets, _cells(columns), strict=True):
            score = scores.get(cell)
            entry = {} if score is None else {"score": percent(score)}
            lines.append(f"{dataset}: {entry}")
    return lines


def _rows(columns: Mapping[str, Map], version: str | None) -> list[list[str]]:
    shown_version = version or summary_version(columns)
    scores, cells = [_scores(score_map) for score_map in columns.values()], _cells(columns)
    depths = _depth_names([cell.depth for cell in cells])
    rows = [["dataset", "version", "metric", "mode", *(_plain_name(name) for name in columns)]]
    for cell in cells:
        dataset = f"CDME_Length{cell.length_tokens}Depth{depths[cell.depth]}"
        rows.append(
            [
                dataset,
                shown_version,
                "score",
                "gen",
                *(_score(column.get(cell)) for column in scores),
            ]
        )
    return rows


def _scores(score_map: Map) -> dict[Cell, float | None]:
    return {Cell(cell.length_tokens, cell.depth): cell.score for cell in score_map.cells}


def _cells(columns: Mapping[str, Map]) -> list[Cell]:
    return sorted({cell for score_map in columns.values() for cell in _scores(score_map)})


def summary_version(columns: Mapping[str, Map]) -> str:
    """Return the first six hex digits of the SHA-256 of what identifies the test (sorted JSON).

    If the maps are not of one test, SettingsError is raised.
    """
    tests = {
        json.dumps({"mode": score_map.mode, "scorer": score_map.scorer, "task": score_map.task})
        for score_map in columns.values()
    }
    if len(tests) != 1:
        raise SettingsError(
            f"One OpenCompass table holds one test, got {len(tests)}: "
            f"{'; '.join(sorted(tests)) or 'no map'}. Write a table for each."
        )
    return hashlib.sha256(tests.pop().encode()).hexdigest()[:6]


def _depth_names(depths: list[float]) -> dict[float, str]:
    """Return the names of depths: whole percents, cut as OpenCompass cuts them.

    If the cut gives two depths one name, all have all their digits. The plots read both, because
    they take the number after 'Depth' as a float.
    """
    names = {depth: str(int(percent(depth))) for depth in depths}
    if len(set(names.values())) == len(names):
        return names
    return {depth: f"{percent(depth):.10g}" for depth in depths}


def _score(score: float | None) -> str:
    return "-" if score is None else f"{percent(score):.2f}"


def _plain_name(name: str) -> str:
    """Return a name that needs no quoting and is no formula in a spreadsheet.

    It may be part of a file's name.
    """
    replaced = "".join(
        "_" if letter in _UNFIT or not letter.isprintable() else letter for letter in name
    )
    return f"_{replaced[1:]}" if replaced.startswith(FORMULA_STARTS) else replaced


def write_markdown(figure: Figure, drawing: Drawing, out: Path) -> Path:
    """Write the file, and its picture under the same name."""
    picture = drawing.save(out.with_suffix(".svg"))
    return write_report(out, markdown(figure, picture.name).encode())


def markdown(figure: Figure, picture: str) -> str:
    """Return a figure's Markdown: its picture, and a table for each map and comparison.

    picture: the name of the picture's file.
    """
    parts = [f"![{escape_markdown(figure.title or 'The map')}]({quote(os.fsencode(picture))})"]
    if figure.comparison is not None:
        changes = {
            (cell.length_tokens, cell.depth): loss_label(cell.loss)
            for cell in figure.comparison.cells
        }
        first, second = (escape_markdown(run.map.model) for run in figure.runs)
        loss = escape_markdown(", ".join(change_caption(figure.comparison)))
        parts += [f"**Loss of {second} compared with {first}**: {loss}", _table(changes)]
    for run in figure.runs:
        scores = {
            (cell.length_tokens, cell.depth): score_label(cell.score) for cell in run.map.cells
        }
        name, task, summary = map(
            escape_markdown, (run.map.model, run.map.task, overall_label(run.map))
        )
        parts += [f"**{name}**, {task}: {summary}", _table(scores)]
    return "\n\n".join(parts) + "\n"


def _table(cells: Mapping[Place, str]) -> str:
    """Return a table with lengths across and depths down. A place without a cell is empty."""
    lengths, depths = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
    heads = length_labels([int(length) for length in lengths])
    depth_heads = depth_labels(depths)
    rows = [
        [depth_heads[depth], *(cells.get((int(length), depth), "") for length in lengths)]
        for depth in depths
    ]
    return markdown_table(["", *heads.values()], rows, "---:")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], rule: str = "---") -> str:
    """Return rows of Markdown under a head.

    rule: what stands between, and which way a column is set.
    """
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, [rule] * len(head), *rows))


def code_block(lines: Iterable[str]) -> str:
    """Return lines, which may be a stranger's, as a block of code.

    In it nothing links or mentions. The fence is longer than any run of its sign inside.

    >>> print(code_block(["plain ```"]))
    ````text
    plain ```
    ````
    """
    printable_lines = [printable(line, line=True) for line in lines]
    longest_run = max(
        (len(run) for line in printable_lines for run in _TICKS.findall(line)), default=0
    )
    fence = "`" * max(3, longest_run + 1)
    return "\n".join([f"{fence}text", *printable_lines, fence])


def escape_markdown(text: str) -> str:
    """Return a text, which may be a stranger's, as one line of Markdown that means nothing else.

    It has no link, no picture, no HTML, and mentions nobody.
    """
    printable_text = printable(" ".join(text.split()), line=True)
    return _LINKED.sub(_WORD_JOINER, printable_text).translate(_MARKS)
