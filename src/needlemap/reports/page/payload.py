"""The page's summary: everything but the single trials, as JSON can hold it. Same runs, same summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from needlemap import __version__
from needlemap.maps.cube import Cube
from needlemap.maps.effective import RULES, effective_length, parse_rule
from needlemap.maps.map import Map
from needlemap.reports.balanced import balance_lines
from needlemap.reports.labels import length_labels, row_labels, told_apart
from needlemap.reports.layout import Layout, make_layout
from needlemap.reports.page.cells import cell_columns
from needlemap.reports.page.change import difference
from needlemap.reports.page.curves import by_depth, by_length, effective_row
from needlemap.reports.page.known import fact_rows, setting_rows
from needlemap.reports.page.numbers import share
from needlemap.reports.page.sums import failures, totals
from needlemap.reports.palette import PALETTES, palette_colours
from needlemap.reports.placeless import placeless_lines
from needlemap.reports.summary import summary_lines
from needlemap.runs.contrast import outdated
from needlemap.runs.loaded import Loaded
from needlemap.runs.outcomes import outcome_counts, outcome_lines
from needlemap.runs.session import cube_of_run

FORMAT = 1


def summary(
    runs: Sequence[Loaded],
    *,
    made: datetime,
    title: str | None = None,
    palette: str = "amber",
    notes: Sequence[Sequence[str]] = (),
    live: Mapping[str, Any] | None = None,
    rules: tuple[str, ...] = RULES,
) -> dict[str, Any]:
    """All runs and their differences from the first. notes: of each run, what the page leaves out.

    Raises SettingsError for an unknown palette.
    """
    palette_colours(palette)
    names = told_apart([run.map.model for run in runs], [Path(run.path) for run in runs])
    layouts = [make_layout(run.map) for run in runs]
    said = notes or [()] * len(runs)
    return {
        "page": FORMAT,
        "made": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": __version__,
        "title": title,
        "live": None if live is None else dict(live),
        "palettes": {name: list(colours) for name, colours in PALETTES.items()},
        "palette": palette,
        "runs": [
            {"name": name, "notes": list(lines), **_run(run, layout, rules)}
            for name, lines, run, layout in zip(names, said, runs, layouts, strict=True)
        ],
        "differences": [
            {"a": 0, "b": at, **difference(runs[0], run, layouts[0])} for at, run in enumerate(runs) if at
        ],
    }


def _run(run: Loaded, layout: Layout, rules: tuple[str, ...]) -> dict[str, Any]:
    cube = cube_of_run(run.about, run.records)
    lines = summary_lines(cube, rules)
    ended = [*balance_lines(run.records), *outcome_lines(outcome_counts(run.records))]
    return {
        **_identity(run),
        **_axes(run.map, layout),
        "cells": cell_columns(run.map, layout, run.records),
        "overall": _overall(run.map, lines),
        "lines": [*lines, *outdated(run.path, run.about), *placeless_lines(run.about, run.records), *ended],
        **_curves(run.map, cube, rules),
        "totals": totals(run),
        "failures": failures(run),
        "settings": setting_rows(run.about["settings"]),
        "facts": fact_rows(run.about),
    }


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
