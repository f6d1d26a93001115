"""What runs came to: one JSON document for programs, one line each for people.

Scores and depths are in percent, as in tables and in `compare --json`, lengths in tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import is_run_folder
from needlemap.grid import percent
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.records.lock import is_held
from needlemap.reports.kept import finding_report
from needlemap.reports.labels import interval_label, percent_of, score_label
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import Fact, Heat, Report, keyed
from needlemap.reports.run_notes import DistractorAnswers, distractor_answers, ended_lines
from needlemap.reports.seek_report import seek_report, seeks
from needlemap.reports.summary import effective_lengths_of, overall_of, read_families, summary_lines
from needlemap.stats.effective import RULES, Effective, Mean
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import depth_scores
from needlemap.stats.table_schema import CELLS, RUN
from needlemap.text import printable

# Levels of folders below the one that is looked through.
FOLDER_LEVELS = 4
RunsByFamily = Mapping[str, Loaded | None]
_DEPTHS = ("depth_percent", "realised_depth_percent")


def map_report(run: Loaded, *, anywhere: bool = False) -> Report:
    """Return a report of a run's map alone or, if the run seeks, of its result.

    anywhere: whether the map is drawn without a terminal, too.
    """
    if seeks(run):
        return seek_report(run)
    return Report("run", run.map.model, heat=Heat(run.map, anywhere=anywhere))


def run_report(run: Loaded, rules: Sequence[str] = RULES, heat: Heat | None = None) -> Report:
    """Return the report of a run with one family: map, sentences, and all numbers for programs.

    A run that seeks reports what it sought, since means over uneven cells show nothing. heat: how
    the map is drawn. Raises SettingsError for an unknown rule.
    """
    score_map = run.map
    seek = seek_report(run) if seeks(run) else None
    values = {
        "run": run.path,
        "model": score_map.model,
        "task": score_map.task,
        "tokenizer": score_map.tokenizer,
        "scorer": score_map.scorer,
        "mode": score_map.mode,
        "overall": mean_fields(score_map.total) if score_map.total and not seek else None,
        "missing": score_map.missing,
        "refused_or_filtered": score_map.withheld,
        "stopped": run.about.stopped or None,
        "lengths": [
            {"length_tokens": length, **mean_fields(mean)}
            for length, mean in score_map.margins.items()
        ],
        "depths": lambda: _depth_fields(run),
        "cells": lambda: [_cell_fields(cell, score_map.depthless) for cell in score_map.cells],
        "effective_lengths": lambda: [
            effective_fields(effective) for effective in effective_lengths_of(run, rules)
        ],
        "notes": list(run.notes),
    }
    if distractors := distractor_answers(run):
        values["distractors"] = _distractor_fields(distractors)
    notes = [Fact(said=printable(line, line=True)) for line in ended_lines(run)]
    if seek:
        values["seek"] = to_json(seek) or None
        parts = (replace(part, key="") for part in seek.parts)
        return replace(seek, parts=(*keyed(values), *parts, *notes))
    sentences = (Fact(said=line) for line in summary_lines(run.cube, rules))
    return Report(
        "run", score_map.model, (*keyed(values), *sentences, *notes), heat=heat or Heat(score_map)
    )


def _distractor_fields(answers: DistractorAnswers) -> dict[str, Any]:
    """Return what answers took from distractors: a share in percent, and counts."""
    rate = answers.instead
    share = {"percent": rate.share, "low": rate.low, "high": rate.high}
    instead = {name: percent_of(value) for name, value in share.items()}
    return {
        "instead": {**instead, "hits": int(rate.hits), "n": rate.n},
        "beside": answers.beside,
        "neither": answers.neither,
    }


def _depth_fields(run: Loaded) -> list[dict[str, Any]]:
    """Return a row for each depth or, if depths are ragged, for each part of the haystack.

    If the task asks about the whole text, there is no row.
    """
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
    """Return a mean with its interval, in percent."""
    fields = {
        "score": percent_of(mean.score),
        "low": percent_of(mean.low),
        "high": percent_of(mean.high),
    }
    if isinstance(mean, ClusterMean):
        fields |= {"n": mean.n, "haystacks": mean.clusters}
    return fields


def _cell_fields(cell: Any, depthless: bool) -> dict[str, Any]:
    """Return a cell in the words of the CSV."""
    fields: dict[str, Any] = {column.name: column.table_value(cell) for column in CELLS[len(RUN) :]}
    fields["failures"] = dict(cell.failures)
    if depthless:
        fields |= dict.fromkeys(_DEPTHS)
    return fields


def effective_fields(effective: Effective) -> dict[str, Any]:
    """Return a rule's value and interval in tokens, or for auc in percent.

    If an end is beyond the longest length tested, it is that length, and named in `beyond`. If it
    is below the shortest, it is 0. If the score crawls through the threshold, there is no value.
    """
    ends = {"value": effective.value, "low": effective.low, "high": effective.high}
    label = percent_of if effective.rule.kind == "auc" else _tokens
    return {
        "rule": effective.rule.name,
        **{name: effective.longest if end == inf else label(end) for name, end in ends.items()},
        "beyond": [name for name, end in ends.items() if end == inf],
        "crawls": effective.crawls,
        "shortest": effective.shortest,
        "longest": effective.longest,
    }


def _tokens(length: float | None) -> int | None:
    return None if length is None else round(length)


def runs_below(path: Path, levels: int = FOLDER_LEVELS) -> Iterator[Path]:
    """Yield the folders of all runs in a folder, sorted by name.

    The folder itself is included. levels: of folders below it. Links are not followed.
    """
    if is_run_folder(path):
        yield path
    if is_run_folder(path) or not levels or not path.is_dir():
        return
    with os.scandir(path) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    for name in names:
        yield from runs_below(path / name, levels - 1)


def run_row(path: Path) -> list[str]:
    """Return a row of `needlemap list runs`: folder, model, task, score, cells and state.

    Of a check, an ab or a storm the score is the verdict's word.

    If the run cannot be read, its state says why.
    """
    try:
        families = families_of(path)
        runs_by_family = read_families(families)
        started_runs = [run for run in runs_by_family.values() if run is not None]
        score = _score(families, runs_by_family)
    except NeedlemapError as error:
        return [str(path), "", "", "", "", f"cannot be read: {printable(str(error), line=True)}"]
    return [
        str(path),
        ", ".join(dict.fromkeys(run.map.model for run in started_runs)),
        started_runs[0].map.task
        if families.is_plain
        else f"suite:{printable(families.suite, line=True)}",
        score,
        f"{sum(len(run.map.cells) for run in started_runs):,}",
        _state(runs_by_family, families),
    ]


def _score(families: Families, runs_by_family: RunsByFamily) -> str:
    """Return the mean of a run or, if it has none, its verdict or that it sought a length."""
    if report := finding_report(families, runs_by_family):
        return report.verdict.word if report.verdict else "-"
    if any(seeks(run) for run in runs_by_family.values() if run is not None):
        return "sought"
    mean = overall_of(families, runs_by_family)
    if mean is None:
        return "-"
    return f"{score_label(mean.score)} {interval_label(mean.low, mean.high)}"


def _state(runs_by_family: RunsByFamily, families: Families) -> str:
    """Return the state of a run: "complete", or its missing trials and the reasons."""
    started_runs = [run for run in runs_by_family.values() if run is not None]
    missing_count = sum(run.map.missing for run in started_runs)
    not_started_count = len(runs_by_family) - len(started_runs)
    parts = []
    if any(map(is_held, (families.path, *families.folders))):
        parts.append("running")
    if not_started_count:
        parts.append(f"{not_started_count} families not started")
    if missing_count:
        parts.append(f"{missing_count:,} trials missing")
    if any(run.about.stopped for run in started_runs):
        parts.append("stopped by a limit")
    return ", ".join(parts) or "complete"
