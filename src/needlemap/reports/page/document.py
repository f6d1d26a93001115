"""The page as one document: skeleton, style, scripts and data put together, so that nothing else is fetched.

What runs is fixed by hash in the page's own Content-Security-Policy: a text that got out of its place could
neither run nor ask the network. Data is compressed JSON in base64, which holds no letter that HTML minds.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from needlemap.reports.page.fallback import tables

LEVEL = 6  # of compression: higher ones take three times as long for two percent
LIVE = '<meta name="needlemap-live" content="data">'
_PLACE = re.compile(r"\{\{(csp|live|title|style|script|data|noscript)\}\}")


def page_html(summary: Mapping[str, Any], trials: Sequence[bytes], *, live: bool = False) -> str:
    """The whole page. trials: each run's columns, `packed`. live: the page asks its server what is new."""
    style, script = _read("page.css"), "\n".join(_read(name) for name in scripts())
    blobs = [("summary", packed(summary)), *((f"trials-{at}", data) for at, data in enumerate(trials))]
    parts = {
        "csp": policy(style, script, live=live),
        "live": LIVE if live else "",
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
    """JSON without blanks; what is no number (NaN) is an error."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def scripts() -> list[str]:
    """The script files, in the order of their names, in which they run."""
    return sorted(file.name for file in _folder().iterdir() if file.name.endswith(".js"))


def policy(style: str, script: str, *, live: bool = False) -> str:
    """The Content-Security-Policy: this style, this script, pictures in the page, nothing from elsewhere."""
    server = "'self'" if live else "'none'"
    rules = (
        "default-src 'none'",
        f"script-src '{_digest(script)}'",
        f"style-src '{_digest(style)}'",
        "img-src data:",
        f"connect-src {server}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def title_of(summary: Mapping[str, Any]) -> str:
    """What the browser's tab says: the title given, else the runs' names."""
    runs = summary["runs"]
    stored = runs[0]["title"] if len(runs) == 1 else None
    return str(summary["title"] or stored or " · ".join(run["name"] for run in runs))


def _blob(name: str, data: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{b64encode(data).decode()}</script>'


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (_folder() / name).read_text("utf-8")


def _folder() -> Traversable:
    return files("needlemap.reports.page")
