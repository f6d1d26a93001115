"""The page's summary: everything but the single trials, as JSON can hold it. Same runs, same
summary.

A run's settings and where they differ from the defaults, versions, hashes; sums of trials,
tokens, dollars, and of what could not be measured, by kind of failure. Never a secret.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.records.loaded import Loaded
from needlemap.records.record import SKIPPED, Record, costs_of
from needlemap.records.run_file import ImportedFile, RunFile, RunHaystack
from needlemap.reports.comparison import comparison_report
from needlemap.reports.labels import (
    NOT_ASKED,
    Layout,
    depth_labels,
    depth_score_labels,
    effective_label,
    length_labels,
    row_labels,
)
from needlemap.reports.pairing import Names, compare_loaded
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.page import Columns, mean_columns, share, to_sheet, tokens_of
from needlemap.reports.run_notes import cache_lines
from needlemap.reports.run_report import run_report
from needlemap.reports.seek_report import seeks
from needlemap.reports.summary import held_by
from needlemap.secrets import hidden
from needlemap.settings import ITEM, Settings
from needlemap.stats import Cube
from needlemap.stats.cell_score import CellScore
from needlemap.stats.comparison import Comparison, FamilyComparison
from needlemap.stats.effective import Effective, Rule, effective_length
from needlemap.stats.means import Map, depth_scores


def run_payload(run: Loaded, layout: Layout, rules: tuple[str, ...]) -> dict[str, Any]:
    """A run's axes, cells and curves, what it comes to in words and sums, its settings and
    versions."""
    lines = list(run_report(run, rules).sentences())
    return {
        **_identity(run),
        **_axes(run.map, layout),
        "cells": cell_columns(run.map, layout),
        "overall": _overall(run.map, lines),
        "lines": lines,
        **_curves(run, rules),
        "totals": totals(run),
        "failures": failures(run),
        "settings": setting_rows(run.about.settings),
        "facts": fact_rows(run.about),
    }


def _identity(run: Loaded) -> dict[str, Any]:
    title = run.about.title
    return {
        "path": run.path,
        "title": title,
        "model": run.map.model,
        "tokenizer": run.map.tokenizer,
        "task": run.map.task,
        "scorer": run.map.scorer,
        "mode": run.map.mode,
        "imported": run.about.imported is not None,
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
    score, low, high = (share(getattr(mean, name, None)) for name in ("score", "low", "high"))
    return {
        "score": score,
        "n": map.n,
        "low": low,
        "high": high,
        "clusters": mean.clusters if mean else 0,
        "missing": map.missing,
        **({"withheld": map.withheld} if map.withheld else {}),
        "line": lines[0] if mean else "",
    }


def cell_columns(map: Map, layout: Layout) -> dict[str, list[Any]]:
    """Columns of equal length, in the order of the map's cells: by length, then depth."""
    rank = {length: at for at, length in enumerate(map.lengths)}
    return {
        "length": [rank[cell.length_tokens] for cell in map.cells],
        "depth": [share(cell.depth) for cell in map.cells],
        "top": [share(row["top"]) for row in layout.cells],
        "bottom": [share(row["bottom"]) for row in layout.cells],
        **{name: [share(getattr(cell, name)) for cell in map.cells] for name in _OF_CELLS},
        "unasked": [_unasked(cell) for cell in map.cells],
        "failures": [dict(sorted(cell.failures.items())) for cell in map.cells],
        **({"thought": thought} if any(thought := [cell.thought for cell in map.cells]) else {}),
        **{
            name: [_mean(getattr(record, of) for record in cell.records) for cell in map.cells]
            for name, of in _TOKENS.items()
        },
    }


_OF_CELLS = ("score", "n", "low", "high", "realised", "missing")
_TOKENS = {
    "tokens": "sent_tokens",
    "cached": "cached_tokens",
    "planned": "shared_tokens",
}  # a trial's, meant


def _unasked(cell: CellScore) -> int:
    """How many trials of a cell were not asked: not yet, or kept back by a limit."""
    return cell.missing - sum(count for kind, count in cell.failures.items() if kind != SKIPPED)


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values, to one decimal; None without any."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def _curves(run: Loaded, rules: tuple[str, ...]) -> dict[str, Any]:
    map, cube = run.map, run.cube
    lengths = mean_columns([map.margins.get(length) for length in map.lengths])
    first = next((score for score in lengths["score"] if score is not None), None)
    found = [] if seeks(run) else held_by(partial(effective_length, cube), rules)
    return {
        "by_length": lengths,
        "by_depth": _by_depth(cube),
        "effective": [_effective_row(each, first) for each in found],
    }


def _by_depth(cube: Cube) -> Columns:
    """A row for each depth, null where it has no score, or for each part of the haystack
    (`depth_scores`)."""
    rows = depth_scores(cube)
    if not cube.ragged:
        known, labels = {row.depth: row.mean for row in rows}, depth_labels(cube.depths)
        means = mean_columns([known.get(depth) for depth in cube.depths])
        return {
            "at": [share(depth) for depth in cube.depths],
            "label": list(labels.values()),
            **means,
        }
    return {
        "at": [share((row.depth + row.end) / 2) for row in rows],
        "label": depth_score_labels(rows, cube.depths),
        **mean_columns([row.mean for row in rows]),
    }


# What the script draws of a comparison: the rest stands in its sheet.
DRAWN = ("lengths", "overall", "counted", "warnings", "pairs", "lost", "gained")


def difference(first: Loaded, second: Loaded, layout: Layout) -> dict[str, Any]:
    """The paired comparison, or the words that refuse it. layout: of the first run's map."""
    try:
        comparison, names = compare_loaded(first, second)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    assert comparison.only is not None
    cells = _changes(comparison.only, first.map, layout)
    return {**told_comparison(comparison, names, answers=True), "cells": cells}


def told_comparison(
    comparison: Comparison, names: Names, *, answers: bool = False
) -> dict[str, Any]:
    """A comparison in words and for the page's script, with secrets in names hidden."""
    first, second, differ = map(hidden, (names.first, names.second, names.differ))
    said = replace(names, first=first, second=second, differ=differ, notes=())
    sheet = to_sheet(comparison_report(comparison, said, answers), {})
    known = to_json(comparison_report(comparison, said))
    drawn = {name: known[name] for name in DRAWN if name in known}
    return {"refused": None, "sheet": sheet, "json": drawn}


def _changes(comparison: FamilyComparison, map: Map, layout: Layout) -> Columns:
    """Cells of the first run's map in which both runs have a pair."""
    rank, cells = {length: at for at, length in enumerate(map.lengths)}, comparison.cells
    places = [(cell.length_tokens, cell.depth) for cell in map.cells]
    bands = dict(zip(places, layout.cells, strict=True))
    found = [bands[cell.length_tokens, cell.depth] for cell in cells]
    return {
        "length": [rank[cell.length_tokens] for cell in cells],
        "depth": [share(cell.depth) for cell in cells],
        **{end: [share(band[end]) for band in found] for end in ("top", "bottom")},
        "loss": [share(cell.loss) for cell in cells],
        **{name: [getattr(cell, name) for cell in cells] for name in ("n", "lost", "gained")},
        "p": [share(cell.p) if comparison.counted else None for cell in cells],
    }


def _effective_row(effective: Effective, first: float | None) -> dict[str, Any]:
    """One rule. first: the score at the shortest length.

    threshold: where on the curve by length the rule draws its line; None for rules of another
    curve.
    """
    rule, value = effective.rule, effective.value
    relative = None if first is None or value is None else rule.threshold * first
    levels = {"absolute": rule.threshold, "relative": relative}
    return {
        "rule": rule.name,
        "says": rule_says(rule),
        "value": effective_label(effective),
        "threshold": share(levels.get(rule.kind)),
        "tokens": tokens_of(effective),
    }


def rule_says(rule: Rule) -> str:
    """A rule in words.

    >>> from needlemap.stats.effective import parse_rule
    >>> rule_says(parse_rule("relative:85"))
    'mean score at least 85 % of that at the shortest length'
    """
    percent = f"{100 * rule.threshold:g} %"
    return {
        "absolute": f"mean score at least {percent}",
        "relative": f"mean score at least {percent} of that at the shortest length",
        "worst-depth": f"score at the worst depth at least {percent}",
        "auc": "mean score over the logarithm of the length",
    }[rule.kind]


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

    >>> (
    ...     value_text("base_url", "http://me:pass@127.0.0.1/v1"),
    ...     value_text("request", {"api_key": "abc"}),
    ... )
    ('http://[hidden]@127.0.0.1/v1', '{"api_key": "[hidden]"}')
    """
    if name in ITEM:
        return _text(value)
    return hidden(_text(_masked(value)))


def fact_rows(about: RunFile) -> list[list[str]]:
    """Versions and hashes: what it takes to say which run this was."""
    tokenizer, scorer = about.tokenizer, about.scorer
    rows = [
        ["needlemap", about.needlemap],
        ["created", about.created],
        ["python", about.python],
        *([name, number] for name, number in about.packages.items()),
        ["tokenizer", f"{tokenizer.name} {_short(tokenizer.fingerprint)}".strip()],
        ["scorer", f"{scorer.name} {value_text('scorer_options', scorer.options)}"],
        *_named("haystack", about.haystacks),
        *_named("file", about.imported.files if about.imported else ()),
    ]
    return [row for row in rows if row[1]]


def _named(what: str, rows: Sequence[RunHaystack | ImportedFile]) -> list[list[str]]:
    return [
        [f"{what} {number}", hidden(f"{row.name} · sha256 {_short(row.sha256)}")]
        for number, row in enumerate(rows)
    ]


def _short(digest: str) -> str:
    """The first letters of a hash, and what it is a hash of, if it says that."""
    kind, colon, digits = digest.rpartition(":")
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
    """Counts of trials, and what they cost together; judge_usd is None without a judge that
    costs."""
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
    """Kinds by how often; examples: the first different messages. Trials not asked yet are a
    kind too."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in run.records:
        if record.failure and not record.scored:
            kinds[record.failure].append(record)
    rows = [
        {"kind": kind, "count": len(found), "examples": _examples(found)}
        for kind, found in kinds.items()
    ]
    unasked = run.map.missing - sum(map(len, kinds.values()))
    rows += [{"kind": NOT_ASKED, "count": unasked, "examples": []}] if unasked > 0 else []
    return sorted(rows, key=_often)


def _often(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["count"], row["kind"]


def _examples(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.error for record in records if record.error))[:EXAMPLES]
