"""What a reader sees where scripts do not run: a plain table for each run. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from needlemap.reports.labels import score_label

EACH = "Each cell: score in percent (n)."


def tables(summary: Mapping[str, Any]) -> str:
    """HTML of all runs: name, what they come to, and their map in numbers."""
    return "\n".join(_run(run) for run in summary["runs"])


def _run(run: Mapping[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in (*run["lines"], *run["notes"], EACH))
    rows = "\n".join(_list(run) if run["ragged"] else _grid(run))
    return f"<h2>{escape(run['name'])}</h2>\n{lines}<table>\n{rows}\n</table>"


def _grid(run: Mapping[str, Any]) -> list[str]:
    """Lengths across, depths down."""
    shown = {(length, depth): text for length, depth, text in _cells(run)}
    head = _row(["", *(label for _, label in run["lengths"])], "th")
    columns = range(len(run["lengths"]))
    return [
        head,
        *(_row([label, *(shown.get((at, depth), "") for at in columns)]) for depth, label in run["depths"]),
    ]


def _list(run: Mapping[str, Any]) -> list[str]:
    """A row for each cell, where every length has depths of its own."""
    depths, lengths = dict(run["depths"]), [label for _, label in run["lengths"]]
    rows = [_row([lengths[length], depths[depth], text]) for length, depth, text in _cells(run)]
    return [_row(["length", "depth", "score (n)"], "th"), *rows]


def _cells(run: Mapping[str, Any]) -> Iterable[tuple[int, float, str]]:
    cells = run["cells"]
    for length, depth, score, n in zip(
        cells["length"], cells["depth"], cells["score"], cells["n"], strict=True
    ):
        yield length, depth, f"{score_label(score)} ({n})"


def _row(values: Iterable[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values) + "</tr>"
