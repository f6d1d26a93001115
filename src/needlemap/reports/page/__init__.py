"""The page: one HTML file in which a reader explores runs, from map to single answers. It fetches
nothing.

What it shows is made in Python (`payload.py`, `trials.py`); how it looks and moves is in page.html,
page.css and the scripts. What runs is fixed by hash in the page's own Content-Security-Policy: a
text that got out of its place could neither run nor ask the network. Data is compressed JSON in
base64, which holds no letter that HTML minds. Where scripts do not run, a reader sees a plain table
for each run. The page is kept to a size that can still be mailed and opened.
"""

from __future__ import annotations

import gc
import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import write_report
from needlemap.maps.effective import RULES
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports import CHANGES, DARK_CHANGES, PALETTE, PALETTES, palette_colours
from needlemap.reports.figures import Drawing
from needlemap.reports.figures.figure import draw, figure_of
from needlemap.reports.labels import make_layout, score_label
from needlemap.reports.page.payload import difference, run_payload
from needlemap.reports.page.sheets import PageRuns, Subject, make_sheets, order_views
from needlemap.reports.page.trials import FULL, Detail, trial_columns
from needlemap.reports.seek_report import seek_report, seeks
from needlemap.reports.summary import read_families
from needlemap.version import __version__

LEVEL = 6  # of compression: higher ones take three times as long for two percent
LIVE = '<meta name="needlemap-live" content="data">'
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
_PLACE = re.compile(r"\{\{(csp|live|title|style|script|data|noscript)\}\}")


def page_html(summary: Mapping[str, Any], trials: Sequence[bytes], *, live: bool = False) -> str:
    """The whole page. trials: each run's columns, `packed`. live: the page asks its server what is
    new."""
    style, script = _read("page.css"), "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    blobs = [
        ("summary", packed(summary)),
        *((f"trials-{at}", data) for at, data in enumerate(trials)),
    ]
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


def policy(style: str, script: str, *, live: bool = False) -> str:
    """The Content-Security-Policy: this style, this script, pictures in the page, nothing from
    elsewhere."""
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
    return f"<h2>{escape(sheet['title'])}</h2>\n{tables}{lines}"


def _sheet_table(table: Mapping[str, Any]) -> str:
    rows = [
        [name, *(text for text, *_ in rest)]
        for name, *rest in (row["cells"] for row in table["rows"])
    ]
    shown = "\n".join([_row(table["head"], "th"), *map(_row, rows)])
    return f"<table>\n{shown}\n</table>\n"


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


LIMIT = 15_000_000  # bytes of all runs' compressed trials: 20 MB of page
# what is left out, one after the other, until the limit is kept; the last one stands as it is
LESS = (
    (FULL, ""),
    (Detail(around_right=False), "what stands around needles that were found"),
    (
        Detail(around_right=False, answer=2_000),
        "what stands around needles that were found, and answers beyond 2,000 characters",
    ),
    (
        Detail(around_right=False, around_wrong=False, answer=300),
        "what stands around needles, and answers beyond 300 characters",
    ),
)


def write_page(
    paths: Sequence[str | Path | Loaded],
    target: str | Path,
    *,
    title: str | None = None,
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
) -> Path:
    """Write the page of some runs, read already or not. Raises NeedlemapError when one cannot be
    read.

    rules: of effective length.
    """
    out, places = Path(target), [each if isinstance(each, Loaded) else Path(each) for each in paths]
    folders = [Path(each.path) if isinstance(each, Loaded) else each for each in places]
    again = next((path for path in folders if folders.count(path) > 1), None)
    if again is not None:
        raise SettingsError(f"Run '{again}' is given twice. Give each run once.")
    with uncollected():
        runs = [each if isinstance(each, Loaded) else _read_subject(each) for each in places]
        page = make_page(runs, made=datetime.now(UTC), title=title, palette=palette, rules=rules)
    write_report(out, page.encode("utf-8", "replace"))  # a name may hold bytes that are no letter
    return out


def _read_subject(path: Path) -> Subject:
    families = families_of(path)
    if not families.begun:
        raise NeedlemapError(
            f"Suite '{path}' has no run yet. Type: needlemap run suite:NAME -o {path}"
        )
    return Subject(families, read_families(families))


def make_page(
    runs: Sequence[Loaded | Subject],
    *,
    made: datetime,
    title: str | None = None,
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
    limit: int = LIMIT,
) -> str:
    """The page, in as much detail as the limit allows. Raises SettingsError for an unknown
    palette."""
    families = [run for each in runs for run in Subject.of(each).runs]
    trials, notes = fitted(families, limit)
    each = [notes] * len(families)
    found = summary(runs, made=made, title=title, palette=palette, notes=each, rules=rules)
    return page_html(found, trials)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from going through all records again and again: it takes a third
    longer.

    To freeze and unfreeze makes them old at once, so that it does not go through them in the end
    either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        if enabled:
            gc.enable()


def fitted(runs: Sequence[Loaded], limit: int = LIMIT) -> tuple[list[bytes], list[str]]:
    """Each run's trials, packed, in the most detail that keeps the limit; and what is said of the
    rest."""
    for detail, left_out in LESS:
        trials = [packed(trial_columns(run.map, run.prompts, detail)) for run in runs]
        notes = [f"To stay small, this page leaves out {left_out}: the run's records hold them."]
        if sum(map(len, trials)) <= limit:
            break
    return trials, notes if left_out else []


FORMAT = 2


def summary(
    runs: Sequence[Loaded | Subject],
    *,
    made: datetime,
    title: str | None = None,
    palette: str | None = None,
    notes: Sequence[Sequence[str]] = (),
    live: Mapping[str, Any] | None = None,
    rules: tuple[str, ...] = RULES,
) -> dict[str, Any]:
    """All runs, the differences from the first of those that may be alike, sheets of several of
    them, and in which order they are shown. notes: of each family of each run, what the page leaves
    out.

    Raises SettingsError for an unknown palette.
    """
    palette_colours(palette)
    cast = PageRuns.of(runs)
    families, names = cast.runs, cast.run_names()
    layouts = [make_layout(run.map) for run in families]
    said = notes or [()] * len(families)
    differences = [
        {"a": a, "b": b, "name": name, **difference(families[a], families[b], layouts[a])}
        for a, b, name in cast.pairs()
    ]
    sheets = make_sheets(cast, differences, rules)
    return {
        "page": FORMAT,
        "made": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": __version__,
        "title": title,
        "live": None if live is None else dict(live),
        "palettes": {name: list(colours) for name, colours in PALETTES.items()},
        "palette": palette or PALETTE,
        "changes": {"light": list(CHANGES), "dark": list(DARK_CHANGES)},
        "views": order_views(cast, sheets, differences),
        "sheets": sheets,
        "runs": [
            {
                "name": name,
                "notes": list(lines),
                **run_payload(run, layout, rules),
                **_beside(run),
            }
            for name, lines, run, layout in zip(names, said, families, layouts, strict=True)
        ],
        "differences": differences,
    }


def _beside(run: Loaded) -> dict[str, Any]:
    """What a run sought, as a picture under its map and at a glance; nothing of a run that did not
    seek."""
    if not seeks(run):
        return {}
    known = [(fact.head, fact.value) for fact in seek_report(run).facts if fact.head]
    name, value = known[0] if known else ("Effective length", "not known yet")
    return {
        "beside": [{"line": "", "picture": _address(draw(figure_of([run], title="")))}],
        "sought": {"name": name, "value": value},
    }


def _address(drawn: Drawing) -> str:
    return f"data:image/svg+xml;base64,{b64encode(drawn.svg.encode()).decode()}"
