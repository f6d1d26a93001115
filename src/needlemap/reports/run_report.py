"""What runs came to: one JSON document for programs, one line each for people.

Scores and depths are in percent, as in tables and in `compare --json`, lengths in tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import is_run_folder
from needlemap.grid import percent
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.records.lock import is_held
from needlemap.reports.labels import (
    interval_label,
    percent_of,
    score_label,
)
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import Fact, Heat, Report, keyed
from needlemap.reports.run_notes import Taken, ended_lines
from needlemap.reports.seek_report import seek_report, seeks
from needlemap.reports.summary import held_by, overall_of, read_families, summary_lines
from needlemap.stats.effective import RULES, Effective, Mean, effective_length
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import depth_scores
from needlemap.stats.table_schema import CELLS, RUN
from needlemap.text import printable

DEEP = 4  # folders below the one that is looked through
Read = Mapping[str, Loaded | None]
_DEPTHS = ("depth_percent", "realised_depth_percent")


def map_report(run: Loaded, *, anywhere: bool = False) -> Report:
    """The map of a run alone, or what it sought. anywhere: drawn without a terminal, too."""
    if seeks(run):
        return seek_report(run)
    return Report("run", run.map.model, heat=Heat(run.map, anywhere=anywhere))


def run_report(run: Loaded, rules: Sequence[str] = RULES, heat: Heat | None = None) -> Report:
    """The report of a run with one family: its map, sentences, and for programs all numbers.
    Of a run that seeks what it sought, as means over uneven cells tell nothing. heat: how the
    map is drawn. Raises SettingsError for an unknown rule."""
    found, sought = run.map, seek_report(run) if seeks(run) else None
    values = {
        "run": run.path,
        "model": found.model,
        "task": found.task,
        "tokenizer": found.tokenizer,
        "scorer": found.scorer,
        "mode": found.mode,
        "overall": mean_fields(found.total) if found.total and not sought else None,
        "missing": found.missing,
        "refused_or_filtered": found.withheld,
        "stopped": run.about.stopped or None,
        "lengths": [{"length_tokens": n, **mean_fields(mean)} for n, mean in found.margins.items()],
        "depths": lambda: _depth_fields(run),
        "cells": lambda: [_cell_fields(cell, found.depthless) for cell in found.cells],
        "effective_lengths": lambda: [
            effective_fields(each) for each in _effective_lengths(run, rules)
        ],
        "notes": list(run.notes),
    }
    if taken := Taken.of(run.prompts, one=run.about.one_haystack):
        values["distractors"] = _taken_fields(taken)
    if sought:
        values["seek"] = to_json(sought) or None
        parts = (replace(part, key="") for part in sought.parts)
        return replace(sought, parts=(*keyed(values), *parts))
    ended = (printable(line, line=True) for line in ended_lines(run))
    lines = (*summary_lines(run.cube, rules), *ended)
    said = (Fact(said=line) for line in lines)
    return Report("run", found.model, (*keyed(values), *said), heat=heat or Heat(found))


def _taken_fields(found: Taken) -> dict[str, Any]:
    """What answers took from distractors: a share in percent, and counts."""
    rate = found.instead
    share = {"percent": rate.share, "low": rate.low, "high": rate.high}
    instead = {name: percent_of(value) for name, value in share.items()}
    return {
        "instead": {**instead, "hits": int(rate.hits), "n": rate.n},
        "beside": found.beside,
        "neither": found.neither,
    }


def _effective_lengths(run: Loaded, rules: Sequence[str]) -> list[Effective]:
    """How far the scores of a run hold; not known of one that seeks."""
    return [] if seeks(run) else held_by(partial(effective_length, run.cube), rules)


def _depth_fields(run: Loaded) -> list[dict[str, Any]]:
    """A row a depth, or a part of the haystack; none of a task that asks about the whole
    text."""
    rows = () if run.map.depthless else depth_scores(run.cube)
    return [
        {
            "depth_percent": percent(row.depth),
            "end_percent": percent(row.end),
            **mean_fields(row.mean),
        }
        for row in rows
    ]


def mean_fields(mean: ClusterMean | Mean) -> dict[str, Any]:
    """A mean with its interval, in percent."""
    found = {
        "score": percent_of(mean.score),
        "low": percent_of(mean.low),
        "high": percent_of(mean.high),
    }
    return found | (
        {"n": mean.n, "haystacks": mean.clusters} if isinstance(mean, ClusterMean) else {}
    )


def _cell_fields(cell: Any, depthless: bool) -> dict[str, Any]:
    """A cell in the words of the CSV."""
    found: dict[str, Any] = {column.name: column.table_value(cell) for column in CELLS[len(RUN) :]}
    found |= {"failures": dict(cell.failures)}
    return found | (dict.fromkeys(_DEPTHS) if depthless else {})


def effective_fields(found: Effective) -> dict[str, Any]:
    """A rule's value and interval in tokens, of auc in percent. An end that lies beyond the
    longest length tested is that length, and named in `beyond`; 0 is below the shortest."""
    ends = {"value": found.value, "low": found.low, "high": found.high}
    told = percent_of if found.rule.kind == "auc" else _tokens
    return {
        "rule": found.rule.name,
        **{name: found.longest if end == inf else told(end) for name, end in ends.items()},
        "beyond": [name for name, end in ends.items() if end == inf],
        "shortest": found.shortest,
        "longest": found.longest,
    }


def _tokens(length: float | None) -> int | None:
    return None if length is None else round(length)


def runs_below(path: Path, deep: int = DEEP) -> Iterator[Path]:
    """The folders of all runs in a folder, itself too, and in its folders, so many deep, by
    name; links are not followed."""
    if is_run_folder(path):
        yield path
    if is_run_folder(path) or not deep or not path.is_dir():
        return
    with os.scandir(path) as entries:
        inside = sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    for name in inside:
        yield from runs_below(path / name, deep - 1)


def listed(path: Path) -> list[str]:
    """A run as a row of `needlemap list runs`: folder, model, task, score with interval,
    cells, state."""
    try:
        families = families_of(path)
        read = read_families(families)
        begun = [run for run in read.values() if run is not None]
        mean = overall_of(families, read)
    except NeedlemapError as error:
        return [str(path), "", "", "", "", f"cannot be read: {printable(str(error), line=True)}"]
    return [
        str(path),
        ", ".join(dict.fromkeys(run.map.model for run in begun)),
        begun[0].map.task if families.is_plain else f"suite:{printable(families.suite, line=True)}",
        _score(mean),
        f"{sum(len(run.map.cells) for run in begun):,}",
        _state(read, families),
    ]


def _score(mean: ClusterMean | Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{score_label(mean.score)} {interval_label(mean.low, mean.high)}"


def _state(read: Read, families: Families) -> str:
    """The state of a run: complete, or the missing trials and why."""
    begun = [run for run in read.values() if run is not None]
    missing, waiting = sum(run.map.missing for run in begun), len(read) - len(begun)
    parts = [f"{waiting} families not begun"] if waiting else []
    parts += [f"{missing:,} trials missing"] if missing else []
    parts += ["stopped by a limit"] if any(run.about.stopped for run in begun) else []
    going = any(map(is_held, (families.path, *families.folders)))
    return ", ".join((["running"] if going else []) + parts) or "complete"
