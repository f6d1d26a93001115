"""The page's summary: everything but the single trials, as JSON can hold it. Same runs, same summary.

A run's settings and where they differ from the defaults, versions, hashes; sums of trials, tokens, dollars,
and of what could not be measured, by kind of failure. Never a secret.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from needlemap import __version__
from needlemap.maps import Cube
from needlemap.maps.effective import RULES, effective_length, parse_rule
from needlemap.maps.means import Map
from needlemap.records import outdated
from needlemap.records.loaded import Loaded
from needlemap.records.record import Record, costs_of
from needlemap.reports import CHANGES, DARK_CHANGES, PALETTE, PALETTES, palette_colours
from needlemap.reports.closing import balance_lines, cache_lines, outcome_lines, placeless_lines
from needlemap.reports.figures import Drawing
from needlemap.reports.figures.figure import Figure, Shown, draw, figure_of
from needlemap.reports.labels import NOT_ASKED, Layout, length_labels, make_layout, row_labels
from needlemap.reports.page.curves import by_depth, by_length, difference, effective_row
from needlemap.reports.page.sheets import Cast, Subject, make_sheets, order_views
from needlemap.reports.page.trials import cell_columns, share
from needlemap.reports.seek import seek_text
from needlemap.reports.summary import summary_lines
from needlemap.secrets import hidden
from needlemap.settings import ITEM, Settings

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
    smooth: bool = False,
) -> dict[str, Any]:
    """All runs, the differences from the first of those that may be alike, sheets of several of them, and in
    which order they are shown. notes: of each family of each run, what the page leaves out. smooth: with
    smoothed layers.

    Raises SettingsError for an unknown palette.
    """
    palette_colours(palette)
    cast = Cast.of(runs)
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
                **_run(run, layout, rules),
                **_beside(run, palette, smooth),
            }
            for name, lines, run, layout in zip(names, said, families, layouts, strict=True)
        ],
        "differences": differences,
    }


def _run(run: Loaded, layout: Layout, rules: tuple[str, ...]) -> dict[str, Any]:
    cube = run.cube
    lines = summary_lines(cube, rules)
    one = run.cube.one_haystack
    ended = [*balance_lines(run.prompts, one=one), *outcome_lines(run.records, one=one)]
    return {
        **_identity(run),
        **_axes(run.map, layout),
        "cells": cell_columns(run.map, layout, run.prompts),
        "overall": _overall(run.map, lines),
        "lines": [*lines, *outdated(run.path, run.about), *placeless_lines(run.about, run.records), *ended],
        **_curves(run.map, cube, rules),
        "totals": totals(run),
        "failures": failures(run),
        "settings": setting_rows(run.about["settings"]),
        "facts": fact_rows(run.about),
    }


def _beside(run: Loaded, palette: str | None, smooth: bool) -> dict[str, Any]:
    """Pictures under the map, as addresses, with what is said of each: the smoothed layer beside the raw map,
    or why it is withheld; what a run sought, whose lines then stand for those of means."""
    found, text = list[dict[str, Any]](), seek_text(run)
    if text is not None:
        found.append({"line": "", "picture": _address(draw(figure_of([run], title="")))})
    if smooth:
        picture = None
        if run.smoothed.scores:
            picture = _address(draw(Figure((Shown(run.map, "raw", run.smoothed_map),), palette=palette)))
        found.append({"line": run.smoothed.line, "picture": picture})
    made = {"beside": found} if found else {}
    if text is None:
        return made
    lines = text.splitlines()
    name, _, value = (lines[1:] or ["effective length: not known yet"])[0].partition(": ")
    return {**made, "lines": lines, "effective": [], "sought": {"name": name.capitalize(), "value": value}}


def _address(drawn: Drawing) -> str:
    return f"data:image/svg+xml;base64,{b64encode(drawn.svg.encode()).decode()}"


def _identity(run: Loaded) -> dict[str, Any]:
    title = run.about.get("title")
    return {
        "path": run.path,
        "title": None if title is None else str(title),
        "model": run.map.model,
        "tokenizer": run.map.tokenizer,
        "task": run.map.task,
        "scorer": run.map.scorer,
        "mode": run.map.mode,
        "imported": "imported" in run.about,
    }


def _axes(map: Map, layout: Layout) -> dict[str, Any]:
    return {
        "lengths": [[length, label] for length, label in length_labels(map.lengths).items()],
        "depths": [[share(depth), label] for depth, label in row_labels(map, map.depths).items()],
        "ragged": map.ragged,
        "depthless": map.depthless,
        "counted": map.counted,
        "rows": layout.rows,
        "depth_ticks": [[share(at), label] for at, label in layout.depth_ticks.items()],
    }


def _overall(map: Map, lines: Sequence[str]) -> dict[str, Any]:
    mean = map.total
    return {
        "score": share(mean.score) if mean else None,
        "n": map.n,
        "low": share(mean.low) if mean else None,
        "high": share(mean.high) if mean else None,
        "clusters": mean.clusters if mean else 0,
        "missing": map.missing,
        "line": lines[0] if lines else "",
    }


def _curves(map: Map, cube: Cube, rules: tuple[str, ...]) -> dict[str, Any]:
    lengths = by_length(map)
    first = next((score for score in lengths["score"] if score is not None), None)
    found = [effective_length(cube, parse_rule(rule)) for rule in rules]
    return {
        "by_length": lengths,
        "by_depth": by_depth(cube),
        "effective": [effective_row(each, first) for each in found if each is not None],
    }


_PRIVATE = re.compile(r"(?i)api[-_]?key|secret|passw|authorization|credential|(^|[-_])token$")
_DIGITS = 12  # of a hash


def setting_rows(settings: Mapping[str, Any]) -> list[list[Any]]:
    """Name, value as text, and whether it differs from the default."""
    fields = Settings.model_fields
    return [
        [name, value_text(name, value), name not in fields or value != fields[name].default]
        for name, value in settings.items()
    ]


def value_text(name: str, value: Any) -> str:
    """A setting as text: passwords in addresses and whatever is named a key are hidden.

    >>> value_text("base_url", "http://me:pass@127.0.0.1/v1"), value_text("request", {"api_key": "abc"})
    ('http://[hidden]@127.0.0.1/v1', '{"api_key": "[hidden]"}')
    """
    if name in ITEM:
        return _text(value)
    return hidden(_text(_masked(value)))


def fact_rows(about: Mapping[str, Any]) -> list[list[str]]:
    """Versions and hashes: what it takes to say which run this was."""
    tokenizer, scorer = about["tokenizer"], about["scorer"]
    rows = [
        ["needlemap", str(about.get("needlemap", ""))],
        ["created", str(about.get("created", ""))],
        ["python", str(about.get("python", ""))],
        *([name, str(number)] for name, number in about.get("packages", {}).items()),
        ["tokenizer", f"{tokenizer['name']} {_short(tokenizer.get('fingerprint'))}".strip()],
        ["scorer", f"{scorer['name']} {value_text('scorer_options', scorer.get('options') or {})}"],
        *_named("haystack", about.get("haystacks", [])),
        *_named("file", about.get("imported", {}).get("files", [])),
    ]
    return [row for row in rows if row[1]]


def _named(what: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [f"{what} {number}", hidden(f"{row.get('name', '')} · sha256 {_short(row.get('sha256'))}")]
        for number, row in enumerate(rows)
    ]


def _short(digest: object) -> str:
    """The first letters of a hash, and what it is a hash of, if it says that."""
    kind, colon, digits = str(digest or "").rpartition(":")
    return f"{kind}{colon}{digits[:_DIGITS]}"


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _masked(value: Any) -> Any:
    """A value without whatever a mapping in it names as private."""
    if isinstance(value, Mapping):
        return {
            name: "[hidden]" if _PRIVATE.search(str(name)) and part else _masked(part)
            for name, part in value.items()
        }
    return [_masked(part) for part in value] if isinstance(value, list) else value


EXAMPLES = 3  # different messages shown for each kind of failure


def totals(run: Loaded) -> dict[str, Any]:
    """Counts of trials, and what they cost together; judge_usd is None without a judge that costs."""
    records, costs = run.records, costs_of(run.records)
    scored = sum(record.scored for record in records)
    return {
        "trials": scored + run.map.missing,
        "scored": scored,
        "missing": run.map.missing,
        "unasked": sum(not prompt.records for prompt in run.prompts),
        **costs,
        "judge_usd": costs["judge_usd"] or None,
        "cache_lines": cache_lines(records),
    }


def failures(run: Loaded) -> list[dict[str, Any]]:
    """Kinds by how often; examples: the first different messages. Trials not asked yet are a kind too."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in run.records:
        if record.failure and not record.scored:
            kinds[record.failure].append(record)
    rows = [
        {"kind": kind, "count": len(found), "examples": _examples(found)} for kind, found in kinds.items()
    ]
    unasked = run.map.missing - sum(map(len, kinds.values()))
    rows += [{"kind": NOT_ASKED, "count": unasked, "examples": []}] if unasked > 0 else []
    return sorted(rows, key=_often)


def _often(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["count"], row["kind"]


def _examples(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.error for record in records if record.error))[:EXAMPLES]
