"""OpenCompass's summary CSV, as its DefaultSummarizer writes it and its needle plots read it.

Two decimals, '-' for missing, nothing quoted, one column per model. It holds no n and no interval: for those
use table.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from needlemap.errors import SettingsError
from needlemap.grid import Cell, percent
from needlemap.maps.map import Map

HEADER = ("dataset", "version", "metric", "mode")


def summary_csv(
    columns: Mapping[str, Map], dataset_prefix: str = "CDME", *, version: str | None = None
) -> str:
    """The CSV of one or more maps of the same test, a column each in the mapping's order.

    version: six hex digits; by default made from task, scorer and mode. Raises SettingsError when the maps
    differ in these, or when there is no map.
    """
    shown = version or summary_version(columns)
    scores = [
        {Cell(cell.length_tokens, cell.depth): cell.score for cell in map.cells} for map in columns.values()
    ]
    cells = sorted({cell for column in scores for cell in column})
    depths = _depth_names([cell.depth for cell in cells])
    rows = [[*HEADER, *(_plain(name) for name in columns)]]
    for cell in cells:
        dataset = f"{_plain(dataset_prefix)}_Length{cell.length_tokens}Depth{depths[cell.depth]}"
        rows.append([dataset, shown, "score", "gen", *(_score(column.get(cell)) for column in scores)])
    return "".join(",".join(row) + "\n" for row in rows)


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
    """A name without commas, quotes or line ends, since this format has no quoting."""
    return "".join("_" if letter in ',"\r\n' else letter for letter in name)
