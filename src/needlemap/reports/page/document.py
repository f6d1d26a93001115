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
from needlemap.reports.page.written import written

# Of compression: higher ones take three times as long for two percent.
LEVEL = 6
# In the order in which they run.
SCRIPTS = ("text", "state", "map", "tabs", "trial", "pane", "main")
# What the script reads of a run and of a difference: all else is written already.
_READ = {
    "run": (
        "name", "group", "path", "imported", "lengths", "depths", "ragged", "depthless", "cells",
        "chart", "facts", "says", "words", "sharing", "replay",
    ),
    "difference": ("a", "b", "name", "cells", "chart", "facts", "says", "words"),
    "sheet": ("key", "name", "says", "sign"),
    "cells": ("length", "depth", "share"),
}  # fmt: skip
_PLACE = re.compile(r"\{\{(csp|title|style|script|data|written|footer)\}\}")


def page_html(summary: Mapping[str, Any], trials: Sequence[bytes]) -> str:
    """Return the whole page. trials: each run's columns, `packed`."""
    style = f"{_colours()}\n{_read('page.css')}"
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    blobs = [
        ("summary", packed(for_script(summary))),
        *((f"trials-{number}", data) for number, data in enumerate(trials)),
    ]
    parts = {
        "csp": policy(style, script),
        "title": escape(title_of(summary)),
        "style": style,
        "script": script,
        "data": "\n".join(_blob(name, data) for name, data in blobs),
        "written": written(summary),
        "footer": escape(footer_of(summary)),
    }
    return _PLACE.sub(lambda match: parts[match[1]], _read("page.html"))


def for_script(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what moving between views, cells and trials needs of a summary."""
    views = []
    for kind, number in summary["views"]:
        title, about = head_of(summary, kind, number)
        views.append({"of": [kind, number], "title": title, "about": about})
    return {
        **{name: summary[name] for name in ("palettes", "palette", "changes")},
        "views": views,
        "sheets": [_read_of("sheet", part) for part in summary["sheets"]],
        "runs": [_read_of("run", part) for part in summary["runs"]],
        "differences": [
            {} if part["refused"] else _read_of("difference", part)
            for part in summary["differences"]
        ],
    }


def _read_of(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    read = {name: fields[name] for name in _READ[kind]}
    if "cells" in read:
        read["cells"] = {name: fields["cells"][name] for name in _READ["cells"]}
    return read


def head_of(summary: Mapping[str, Any], kind: str, number: int) -> tuple[str, list[str]]:
    """Return the title of a view, and what was asked and how.

    Of several runs it is what they have in common, or all of it if that is little.
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
    """Return what made the page, and when."""
    origin = f"needlemap {summary['version']} · made {moment_label(summary['made'])}"
    return f"{origin} · nothing on this page came from or goes to a network"


def packed(value: Mapping[str, Any]) -> bytes:
    """Return compressed JSON; the same value gives the same bytes."""
    return gzip.compress(as_json(value), LEVEL, mtime=0)


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return JSON without blanks. NaN is an error."""
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
    """Return the title of the browser's tab: the one given, else that of the first view.

    A view with a verdict has its word first.
    """
    runs, sheets = summary["runs"], summary["sheets"]
    given = summary["title"] or (runs[0]["title"] if len(runs) == 1 else None)
    if given or not sheets:
        return str(given or runs[0]["name"])
    first = sheets[0]
    word = first["verdict"][0] if "verdict" in first else ""
    return ": ".join(filter(None, (word, first["title"])))


def _blob(name: str, data: bytes) -> str:
    return (
        f'<script type="application/octet-stream" id="{name}">{b64encode(data).decode()}</script>'
    )


def _colours() -> str:
    """Return the colours that style sheet and figures share, on light and on dark."""
    pairs = zip(("--hatch-ground", "--hatch"), NOT_MEASURED, DARK_NOT_MEASURED, strict=True)
    names = "; ".join(f"{name}: light-dark({light}, {dark})" for name, light, dark in pairs)
    drawn = (
        f'.drawn [{part}="{light}"] {{ {part}: light-dark({light}, {dark}); }}'
        for light, dark in ON_DARK.items()
        for part in ("fill", "stroke")
    )
    return "\n".join([f":root {{ {names}; }}", *drawn])


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (files("needlemap.reports.page") / name).read_text("utf-8")
