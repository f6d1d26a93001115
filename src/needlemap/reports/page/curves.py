"""Score by length and by depth with clustered intervals, effective length by each rule, and what changed.

Numbers have as few digits as are worth their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.maps import Cube
from needlemap.maps.comparison import FamilyComparison
from needlemap.maps.effective import Effective, Mean, Rule
from needlemap.maps.intervals import ClusterMean
from needlemap.maps.means import Map, depth_scores
from needlemap.records.loaded import Loaded
from needlemap.reports.comparison import comparison_json, comparison_text
from needlemap.reports.labels import Layout, depth_labels, depth_score_labels, effective_label
from needlemap.reports.page.trials import share
from needlemap.reports.paired import Names, compare_loaded
from needlemap.secrets import hidden

Columns = dict[str, list[Any]]


def by_length(map: Map) -> Columns:
    """A row for each length; null and n of 0 where there is no score."""
    return _columns([map.margins.get(length) for length in map.lengths])


def by_depth(cube: Cube) -> Columns:
    """A row for each depth, null where it has no score, or for each part of the haystack (`depth_scores`)."""
    rows = depth_scores(cube)
    if not cube.ragged:
        known, labels = {row.depth: row.mean for row in rows}, depth_labels(cube.depths)
        means = _columns([known.get(depth) for depth in cube.depths])
        return {"at": [share(depth) for depth in cube.depths], "label": list(labels.values()), **means}
    return {
        "at": [share((row.depth + row.end) / 2) for row in rows],
        "label": depth_score_labels(rows, cube.depths),
        **_columns([row.mean for row in rows]),
    }


def effective_row(effective: Effective, first: float | None) -> dict[str, Any]:
    """One rule. first: the score at the shortest length.

    threshold: where on the curve by length the rule draws its line; None for rules of another curve.
    """
    rule, value = effective.rule, effective.value
    known = rule.kind != "auc" and value is not None and isfinite(value) and value > 0
    relative = None if first is None or value is None else rule.threshold * first
    levels = {"absolute": rule.threshold, "relative": relative}
    return {
        "rule": rule.name,
        "says": rule_says(rule),
        "value": effective_label(effective),
        "threshold": share(levels.get(rule.kind)),
        "tokens": round(value) if known and value is not None else None,
    }


def rule_says(rule: Rule) -> str:
    """A rule in words.

    >>> from needlemap.maps.effective import parse_rule
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


def _columns(means: Sequence[ClusterMean | None]) -> Columns:
    return {
        "score": [share(mean.score) if mean else None for mean in means],
        "low": [share(mean.low) if mean else None for mean in means],
        "high": [share(mean.high) if mean else None for mean in means],
        "n": [mean.n if mean else 0 for mean in means],
    }


def difference(first: Loaded, second: Loaded, layout: Layout) -> dict[str, Any]:
    """The paired comparison, or the words that refuse it. layout: of the first run's map."""
    try:
        comparison, names = compare_loaded(first, second)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    assert comparison.only is not None
    shown = Names(hidden(names.first), hidden(names.second), hidden(names.differ))
    return {
        "refused": None,
        "text": comparison_text(comparison, shown, answers=True).splitlines(),
        "json": comparison_json(comparison, shown),
        "cells": _changes(comparison.only, first.map, layout),
    }


def _changes(comparison: FamilyComparison, map: Map, layout: Layout) -> dict[str, list[Any]]:
    """Cells of the first run's map in which both runs have a pair."""
    rank = {length: at for at, length in enumerate(map.lengths)}
    places = [(cell.length_tokens, cell.depth) for cell in map.cells]
    bands = {at: (row["top"], row["bottom"]) for at, row in zip(places, layout.cells, strict=True)}
    cells = comparison.cells
    found = [bands[cell.length_tokens, cell.depth] for cell in cells]
    return {
        "length": [rank[cell.length_tokens] for cell in cells],
        "depth": [share(cell.depth) for cell in cells],
        "top": [share(top) for top, _ in found],
        "bottom": [share(bottom) for _, bottom in found],
        "difference": [share(cell.change) for cell in cells],
        "n": [cell.n for cell in cells],
        "lost": [cell.lost for cell in cells],
        "gained": [cell.gained for cell in cells],
        "p": [share(cell.p) if comparison.counted else None for cell in cells],
    }


def curve(name: str, run: Loaded, place: int, effective: Effective | None) -> dict[str, Any]:
    """A run's scores by length under a name, and how far they hold. place: of the run on its page."""
    return {
        "name": name,
        "run": place,
        "at": list(run.map.lengths),
        **by_length(run.map),
        **_holds(effective),
    }


def mean_curve(name: str, means: Mapping[int, Mean], effective: Effective | None) -> dict[str, Any]:
    """The same of means over families."""
    found: Columns = {
        "score": [share(mean.score) for mean in means.values()],
        "low": [share(mean.low) for mean in means.values()],
        "high": [share(mean.high) for mean in means.values()],
        "n": [None] * len(means),
    }
    return {"name": name, "run": None, "at": list(means), **found, **_holds(effective)}


def _holds(effective: Effective | None) -> dict[str, Any]:
    """How far a curve holds: in words, and in tokens where that is a place on it."""
    if effective is None:
        return {"holds": "-", "tokens": None}
    return {"holds": effective_label(effective), "tokens": effective_row(effective, None)["tokens"]}
