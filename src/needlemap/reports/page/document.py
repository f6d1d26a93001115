"""The page as HTML: style, script, data, and plain tables where scripts do not run."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from needlemap.reports.labels import score_label

LEVEL = 6  # of compression: higher ones take three times as long for two percent
SCRIPTS = (
    "text",
    "state",
    "map",
    "margins",
    "sheet",
    "overview",
    "trial",
    "pane",
    "main",
)  # as they run
_PLACE = re.compile(r"\{\{(csp|title|style|script|data|noscript)\}\}")


def page_html(summary: Mapping[str, Any], trials: Sequence[bytes]) -> str:
    """The whole page. trials: each run's columns, `packed`."""
    style, script = _read("page.css"), "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    blobs = [
        ("summary", packed(summary)),
        *((f"trials-{at}", data) for at, data in enumerate(trials)),
    ]
    parts = {
        "csp": policy(style, script),
        "title": escape(title_of(summary)),
        "style": style,
        "script": script,
        "data": "\n".join(_blob(name, data) for name, data in blobs),
        "noscript": tables(summary),
    }
    return _PLACE.sub(lambda place: parts[place[1]], _read("page.html"))


def packed(value: Mapping[str, Any]) -> bytes:
    """Compressed JSON; the same value gives the same bytes."""
    return gzip.compress(as_json(value), LEVEL, mtime=0)


def as_json(value: Mapping[str, Any]) -> bytes:
    """JSON without blanks. NaN is an error."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def policy(style: str, script: str) -> str:
    """The Content-Security-Policy: this style, this script, pictures in the page, nothing from
    elsewhere."""
    rules = (
        "default-src 'none'",
        f"script-src '{_digest(script)}'",
        f"style-src '{_digest(style)}'",
        "img-src data:",
        "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def title_of(summary: Mapping[str, Any]) -> str:
    """What the browser's tab says: the title given, else what the page opens with is about."""
    runs, sheets = summary["runs"], summary["sheets"]
    stored = runs[0]["title"] if len(runs) == 1 else None
    return str(summary["title"] or stored or (sheets[0]["title"] if sheets else runs[0]["name"]))


def _blob(name: str, data: bytes) -> str:
    return (
        f'<script type="application/octet-stream" id="{name}">{b64encode(data).decode()}</script>'
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (files("needlemap.reports.page") / name).read_text("utf-8")


EACH = "Each cell: score in percent (n)."


def tables(summary: Mapping[str, Any]) -> str:
    """HTML of all sheets and runs: name, what they come to, and their table or their map in
    numbers."""
    return "\n".join([*map(_sheet, summary["sheets"]), *map(_run, summary["runs"])])


def _sheet(sheet: Mapping[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in sheet["lines"])
    tables = "".join(map(_sheet_table, [sheet["table"], *sheet.get("more", ())]))
    answer = ". ".join(filter(None, (sheet["answer"], sheet["state"])))
    return f"<h2>{escape(sheet['title'])}</h2>\n<p>{escape(answer)}</p>\n{tables}{lines}"


def _sheet_table(table: Mapping[str, Any]) -> str:
    rows = [
        [name, *(text for text, *_ in rest)]
        for name, *rest in (row["cells"] for row in table["rows"])
    ]
    shown = "\n".join([_row(table["head"], "th"), *map(_row, rows)])
    lines = "".join(f"<pre>{escape(line)}</pre>\n" for line in table.get("lines", ()))
    return f"<table>\n{shown}\n</table>\n{lines}"


def _run(run: Mapping[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in (*run["lines"], *run["notes"], EACH))
    lines += "".join(
        f"<p>{escape(each['line'])}</p>\n" for each in run.get("beside", ()) if each["line"]
    )
    rows = "\n".join(_list(run) if run["ragged"] else _grid(run))
    return f"<h2>{escape(run['name'])}</h2>\n{lines}<table>\n{rows}\n</table>"


def _grid(run: Mapping[str, Any]) -> list[str]:
    """Lengths across, depths down."""
    shown = {(length, depth): text for length, depth, text in _cells(run)}
    head = _row(["", *(label for _, label in run["lengths"])], "th")
    columns = range(len(run["lengths"]))
    return [
        head,
        *(
            _row([label, *(shown.get((at, depth), "") for at in columns)])
            for depth, label in run["depths"]
        ),
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
