"""The page as HTML: style, script, data, and what is written for readers."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from needlemap.reports.colours import DARK_NOT_MEASURED, NOT_MEASURED, ON_DARK
from needlemap.reports.labels import moment_label
from needlemap.reports.page.written import views_html

# Higher levels of compression take three times as long and save two percent.
LEVEL = 6
# In the order in which they run.
SCRIPTS = ("text", "state", "map", "tabs", "trial", "pane", "main")
# The fields that the script reads: all others are in the HTML already.
_SCRIPT_FIELDS = {
    "run": (
        "name", "group", "path", "imported", "lengths", "depths", "ragged", "depthless", "cells",
        "chart", "facts", "says", "words", "sharing", "replay",
    ),
    "difference": ("a", "b", "name", "cells", "chart", "facts", "says", "words"),
    "sheet": ("key", "name", "says", "sign"),
    "cells": ("length", "depth", "share"),
}  # fmt: skip
_PLACEHOLDER = re.compile(r"\{\{(csp|title|style|script|data|written|footer)\}\}")


def page_html(summary: Mapping[str, Any], trials: Sequence[bytes]) -> str:
    """Return the whole page. trials: the columns of each run, from `compress_json`."""
    style = f"{_colours()}\n{_read_file('page.css')}"
    script = "\n".join(_read_file(f"{name}.js") for name in SCRIPTS)
    blobs = [
        ("summary", compress_json(for_script(summary))),
        *((f"trials-{number}", data) for number, data in enumerate(trials)),
    ]
    parts = {
        "csp": policy(style, script),
        "title": escape(title_of(summary)),
        "style": style,
        "script": script,
        "data": "\n".join(_blob(name, data) for name, data in blobs),
        "written": views_html(summary),
        "footer": escape(footer_of(summary)),
    }
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _read_file("page.html"))


def for_script(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a summary that the script needs to show views, cells and trials."""
    views = []
    for kind, number in summary["views"]:
        title, about = head_of(summary, kind, number)
        views.append({"of": [kind, number], "title": title, "about": about})
    return {
        **{name: summary[name] for name in ("palettes", "palette", "changes")},
        "views": views,
        "sheets": [_script_fields("sheet", part) for part in summary["sheets"]],
        "runs": [_script_fields("run", part) for part in summary["runs"]],
        "differences": [
            {} if part["refused"] else _script_fields("difference", part)
            for part in summary["differences"]
        ],
    }


def _script_fields(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    script_fields = {name: fields[name] for name in _SCRIPT_FIELDS[kind]}
    if "cells" in script_fields:
        script_fields["cells"] = {name: fields["cells"][name] for name in _SCRIPT_FIELDS["cells"]}
    return script_fields


def head_of(summary: Mapping[str, Any], kind: str, number: int) -> tuple[str, list[str]]:
    """Return a view's title, and a line each about its subject, models and settings.

    If several runs differ in a setting, up to three values are listed, and more are left out.
    """
    runs, title = summary["runs"], summary["title"]
    if kind == "sheet":
        runs_shown = runs
        subject = summary["sheets"][number]["title"]
        models = []
    elif kind == "difference":
        difference = summary["differences"][number]
        runs_shown = [runs[difference["a"]], runs[difference["b"]]]
        subject = f"{runs_shown[1]['name']} against {runs_shown[0]['name']}"
        models = [f"A {runs_shown[0]['name']}", f"B {runs_shown[1]['name']}", "paired trials"]
    else:
        run = runs[number]
        runs_shown = [run]
        subject = run["name"]
        title = title or run["title"]
        models = [] if run["model"] == subject and not title else [run["model"]]

    subjects = [subject] if title and kind != "run" else []
    settings = (_in_common(runs_shown, key) for key in ("task", "scorer", "tokenizer"))
    return title or subject, [*subjects, *models, *filter(None, settings)]


def _in_common(runs: Sequence[Mapping[str, Any]], key: str) -> str:
    values = list(dict.fromkeys(str(run[key]) for run in runs))
    return "" if len(values) > 3 else f"{key} {', '.join(values)}"


def footer_of(summary: Mapping[str, Any]) -> str:
    """Return a line on the version that made the page, and when it did."""
    origin = f"needlemap {summary['version']} · made {moment_label(summary['made'])}"
    return f"{origin} · nothing on this page came from or goes to a network"


def compress_json(value: Mapping[str, Any]) -> bytes:
    """Return a value as compressed JSON. The same value gives the same bytes."""
    return gzip.compress(as_json(value), LEVEL, mtime=0)


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return a value as JSON without blanks, or raise ValueError if it holds NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy.

    It allows this style, this script, pictures in the page, and nothing from elsewhere.
    """
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
    """Return the title of the browser's tab.

    It is the title that the user chose or, without one, the title of the first sheet, or the name
    of the run if there is no sheet. If the sheet has a verdict, its word comes first.
    """
    runs, sheets = summary["runs"], summary["sheets"]
    chosen_title = summary["title"] or (runs[0]["title"] if len(runs) == 1 else None)
    if chosen_title or not sheets:
        return str(chosen_title or runs[0]["name"])
    sheet = sheets[0]
    word = sheet["verdict"][0] if "verdict" in sheet else ""
    return ": ".join(filter(None, (word, sheet["title"])))


def _blob(name: str, data: bytes) -> str:
    return (
        f'<script type="application/octet-stream" id="{name}">{b64encode(data).decode()}</script>'
    )


def _colours() -> str:
    """Return the colours that style sheet and figures share, on light and on dark."""
    pairs = zip(("--hatch-ground", "--hatch"), NOT_MEASURED, DARK_NOT_MEASURED, strict=True)
    names = "; ".join(f"{name}: light-dark({light}, {dark})" for name, light, dark in pairs)
    rules = (
        f'.drawn [{part}="{light}"] {{ {part}: light-dark({light}, {dark}); }}'
        for light, dark in ON_DARK.items()
        for part in ("fill", "stroke")
    )
    return "\n".join([f":root {{ {names}; }}", *rules])


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _read_file(name: str) -> str:
    return (files("needlemap.reports.page") / name).read_text("utf-8")
