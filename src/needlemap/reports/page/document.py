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

LEVEL = 6  # of compression: higher ones take three times as long for two percent
SCRIPTS = ("text", "state", "map", "tabs", "trial", "pane", "main")  # as they run
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
    """The whole page. trials: each run's columns, `packed`."""
    style, script = (
        f"{_colours()}\n{_read('page.css')}",
        "\n".join(_read(f"{name}.js") for name in SCRIPTS),
    )
    blobs = [
        ("summary", packed(for_script(summary))),
        *((f"trials-{at}", data) for at, data in enumerate(trials)),
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
    return _PLACE.sub(lambda place: parts[place[1]], _read("page.html"))


def for_script(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What moving between views, cells and trials needs of a summary."""
    views = [
        {"of": [kind, at], **dict(zip(("title", "about"), head_of(summary, kind, at), strict=True))}
        for kind, at in summary["views"]
    ]
    return {
        **{name: summary[name] for name in ("palettes", "palette", "changes")},
        "views": views,
        "sheets": [_read_of("sheet", each) for each in summary["sheets"]],
        "runs": [_read_of("run", each) for each in summary["runs"]],
        "differences": [
            {} if each["refused"] else _read_of("difference", each)
            for each in summary["differences"]
        ],
    }


def _read_of(kind: str, whole: Mapping[str, Any]) -> dict[str, Any]:
    part = {name: whole[name] for name in _READ[kind]}
    if "cells" in part:
        part["cells"] = {name: whole["cells"][name] for name in _READ["cells"]}
    return part


def head_of(summary: Mapping[str, Any], kind: str, at: int) -> tuple[str, list[str]]:
    """The title of a view, and what was asked and how: of several runs what they have in common,
    or all of it where that is little."""
    runs, given = summary["runs"], summary["title"]
    if kind == "sheet":
        own, about, whose = summary["sheets"][at]["title"], runs, []
    elif kind == "difference":
        found = summary["differences"][at]
        about = [runs[found["a"]], runs[found["b"]]]
        own = f"{about[1]['name']} against {about[0]['name']}"
        whose = [f"A {about[0]['name']}", f"B {about[1]['name']}", "paired trials"]
    else:
        about = [runs[at]]
        own, given = runs[at]["name"], given or runs[at]["title"]
        whose = [] if runs[at]["model"] == own and not given else [runs[at]["model"]]
    named = [own] if given and kind != "run" else []
    how = (_in_common(about, key) for key in ("task", "scorer", "tokenizer"))
    return given or own, [*named, *whose, *filter(None, how)]


def _in_common(runs: Sequence[Mapping[str, Any]], key: str) -> str:
    values = list(dict.fromkeys(str(run[key]) for run in runs))
    return "" if len(values) > 3 else f"{key} {', '.join(values)}"


def footer_of(summary: Mapping[str, Any]) -> str:
    """What made the page, and when."""
    made = f"needlemap {summary['version']} · made {moment_label(summary['made'])}"
    return f"{made} · nothing on this page came from or goes to a network"


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


def _colours() -> str:
    """The colours that style sheet and figures share, on light and on dark."""
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
