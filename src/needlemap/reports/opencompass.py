"""OpenCompass's summary, CSV and TXT, as its DefaultSummarizer writes them and its needle plots read the CSV.

Two decimals, '-' for missing, nothing quoted, one column per model. A model's name becomes part of a file's
name there, so it holds no slash. It holds no n and no interval: for those use table.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.reports.labels import told_apart
from needlemap.settings.grid import Cell, percent
from needlemap.text.printable import FORMULA_STARTS

HEADER = ("dataset", "version", "metric", "mode")
SECTION = "csv format"  # of the TXT, whose table is the CSV's
_UNFIT = set(',"\r\n/\\:*?<>|')  # in a name: nothing is quoted, and a figure's file is named so
_DIVIDER = f"\n{'-' * 128} THIS IS A DIVIDER {'-' * 128}\n"


def column_names(settings: Sequence[Mapping[str, Any]], paths: Sequence[str | Path]) -> list[str]:
    """A column's name for each run: its label, or its model's name without back end and folders.

    >>> column_names([{"model": "openai/org/my-model"}, {"model": "hf/./tiny", "label": "t/1"}], ["a", "b"])
    ['my-model', 't_1']
    """
    short = [_plain(str(each.get("label") or Path(str(each["model"])).name)) for each in settings]
    names: list[str] = []
    for name in map(_plain, told_apart(short, [Path(path) for path in paths])):
        again = sum(other == name or other.startswith(f"{name}-") for other in names)
        names.append(f"{name}-{again + 1}" if name in names else name)
    return names


def summary_csv(
    columns: Mapping[str, Map], dataset_prefix: str = "CDME", *, version: str | None = None
) -> str:
    """The CSV of one or more maps of the same test, a column each in the mapping's order.

    version: six hex digits; by default made from task, scorer and mode. Raises SettingsError when the maps
    differ in these, or when there is no map.
    """
    rows = _rows(columns, dataset_prefix, version)
    return "".join(",".join(row) + "\n" for row in rows)


def summary_txt(
    columns: Mapping[str, Map], made: datetime, dataset_prefix: str = "CDME", *, version: str | None = None
) -> str:
    """The TXT that OpenCompass writes beside it: the same table twice, and the scores in full."""
    rows = _rows(columns, dataset_prefix, version)
    parts = {
        "tabulate format": tabulated(rows),
        SECTION: [",".join(row) for row in rows],
        "raw format": _raw(columns, [row[0] for row in rows[1:]]),
    }
    sections = ["\n".join([name, "^" * 128, *lines, "$" * 128, ""]) for name, lines in parts.items()]
    return f"{made:%Y%m%d_%H%M%S}\n" + _DIVIDER.join(
        [sections[0], *(f"\n{section}" for section in sections[1:])]
    )


def tabulated(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as the `tabulate` package prints them: texts to the left, numbers by their decimal point."""
    columns = [_aligned([row[place] for row in rows]) for place in range(len(rows[0]))]
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _aligned(cells: Sequence[str]) -> list[str]:
    head, *values = cells
    numbers = all(value.replace(".", "", 1).isdigit() for value in values)
    if numbers:
        values = [f"{float(value):g}" for value in values]
        after = max((len(value.partition(".")[2]) + ("." in value) for value in values), default=0)
        values = [value + " " * (after - len("".join(value.partition(".")[1:]))) for value in values]
    width = max(len(head) + 2, *map(len, values))
    lines = [head, "-" * width, *values]
    return [line.rjust(width) if numbers else line.ljust(width) for line in lines]


def _raw(columns: Mapping[str, Map], datasets: Sequence[str]) -> list[str]:
    lines = []
    cells = _cells(columns)
    for name, map in columns.items():
        scores = _scores(map)
        lines += ["-" * 31, f"Model: {name}"]
        for dataset, cell in zip(datasets, cells, strict=True):
            score = scores.get(cell)
            lines.append(f"{dataset}: { ({} if score is None else {'score': percent(score)}) }")
    return lines


def _rows(columns: Mapping[str, Map], dataset_prefix: str, version: str | None) -> list[list[str]]:
    shown = version or summary_version(columns)
    scores, cells = [_scores(map) for map in columns.values()], _cells(columns)
    depths = _depth_names([cell.depth for cell in cells])
    rows = [[*HEADER, *(_plain(name) for name in columns)]]
    for cell in cells:
        dataset = f"{_plain(dataset_prefix)}_Length{cell.length_tokens}Depth{depths[cell.depth]}"
        rows.append([dataset, shown, "score", "gen", *(_score(column.get(cell)) for column in scores)])
    return rows


def _scores(map: Map) -> dict[Cell, float | None]:
    return {Cell(cell.length_tokens, cell.depth): cell.score for cell in map.cells}


def _cells(columns: Mapping[str, Map]) -> list[Cell]:
    return sorted({cell for map in columns.values() for cell in _scores(map)})


def summary_version(columns: Mapping[str, Map]) -> str:
    """First six hex digits of the SHA-256 of what identifies the test (sorted JSON). Raises SettingsError."""
    tests = {json.dumps(_identity(map), sort_keys=True) for map in columns.values()}
    if len(tests) != 1:
        raise SettingsError(
            f"One OpenCompass table holds one test, got {len(tests)}: "
            f"{'; '.join(sorted(tests)) or 'no map'}. Write a table for each."
        )
    return hashlib.sha256(tests.pop().encode()).hexdigest()[:6]


def _identity(map: Map) -> dict[str, str]:
    return {"mode": map.mode, "scorer": map.scorer, "task": map.task}


def _depth_names(depths: list[float]) -> dict[float, str]:
    """Whole percents, cut as OpenCompass cuts them; all digits where a cut would give two depths one name.

    The plots read both: they take the number after 'Depth' as a float.
    """
    whole = {depth: str(int(percent(depth))) for depth in depths}
    if len(set(whole.values())) == len(whole):
        return whole
    return {depth: f"{percent(depth):.10g}" for depth in depths}


def _score(score: float | None) -> str:
    return "-" if score is None else f"{percent(score):.2f}"


def _plain(name: str) -> str:
    """A name that needs no quoting, may be part of a file's name, and is no formula in a spreadsheet."""
    letters = ["_" if letter in _UNFIT or not letter.isprintable() else letter for letter in name]
    plain = "".join(letters)
    return f"_{plain[1:]}" if plain.startswith(FORMULA_STARTS) else plain
