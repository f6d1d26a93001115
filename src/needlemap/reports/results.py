"""What runs came to: one JSON document for programs, one line each for people, and a verdict on a threshold.

Scores and depths are in percent, as in tables and in `compare --json`, lengths in tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder
from needlemap.maps.columns import CELLS, RUN
from needlemap.maps.effective import RULES, Effective, FamilyScores, Mean, parse_rule
from needlemap.maps.intervals import ClusterMean
from needlemap.maps.means import depth_scores
from needlemap.records.families import Families, families_of
from needlemap.records.folder import is_held
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import interval_label, score_label
from needlemap.reports.seek import families_sought, seek_fields, seeks
from needlemap.reports.summary import FAMILY_RULES, family_lines, read_families, scores_of
from needlemap.settings.grid import percent
from needlemap.text import printable

DEEP = 4  # folders below the one that is looked through
Read = Mapping[str, Loaded | None]
_DEPTHS = ("depth_percent", "realised_depth_percent")


def results(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of some runs, each as `run_fields` or `families_fields` gives it."""
    return {"runs": list(runs)}


def fields_of(path: str | Path, rules: Sequence[str] | None = None) -> dict[str, Any]:
    """A folder's run. rules: of effective length; by default those of the terminal. Raises NeedlemapError."""
    families = families_of(path)
    read = read_families(families)
    only = read.get("")
    return (
        run_fields(only, rules or RULES) if only else families_fields(families, read, rules or FAMILY_RULES)
    )


def run_fields(run: Loaded, rules: Sequence[str]) -> dict[str, Any]:
    """A run with one family: overall, by length, by depth, by cell; effective lengths; notes."""
    map, cube = run.map, run.cube
    even = not seeks(run)
    depths = [] if map.depthless else depth_scores(cube)
    return {
        "run": run.path,
        "model": map.model,
        "task": map.task,
        "tokenizer": map.tokenizer,
        "scorer": map.scorer,
        "mode": map.mode,
        "overall": map.total and _mean_fields(map.total) if even else None,
        "missing": map.missing,
        "stopped": run.about.get("stopped"),
        "lengths": [{"length_tokens": n, **_mean_fields(mean)} for n, mean in map.margins.items()],
        "depths": [
            {"depth_percent": percent(row.depth), "end_percent": percent(row.end), **_mean_fields(row.mean)}
            for row in depths
        ],
        "cells": [_cell_fields(cell, map.depthless) for cell in map.cells],
        "effective_lengths": _effective_fields(FamilyScores([cube]), rules) if even else [],
        "notes": list(run.notes),
        **({} if even else {"seek": seek_fields(run)}),
    }


def families_fields(families: Families, read: Read, rules: Sequence[str]) -> dict[str, Any]:
    """A run with several families: their mean, and each; None for one that was not begun."""
    begun = [run for run in read.values() if run is not None]
    scores = FamilyScores([]) if any(map(seeks, begun)) else scores_of(read)
    overall = scores.overall()
    return {
        "run": str(families.path),
        "suite": families.suite,
        "model": begun[0].map.model if begun else None,
        "overall": overall and _mean_fields(overall),
        "missing": sum(run.map.missing for run in begun),
        "lengths": [{"length_tokens": n, **_mean_fields(mean)} for n, mean in scores.means().items()],
        "effective_lengths": _effective_fields(scores, rules),
        "families": {name: run and run_fields(run, rules) for name, run in read.items()},
    }


def families_text(families: Families, read: Read, rules: tuple[str, ...] = FAMILY_RULES) -> str:
    """What a run with several families came to: their table, or what each of them sought."""
    return families_sought(families.suite, read) or "\n".join(family_lines(families.suite, read, rules))


def _mean_fields(mean: ClusterMean | Mean) -> dict[str, Any]:
    found = {"score": _told(mean.score), "low": _told(mean.low), "high": _told(mean.high)}
    return found | ({"n": mean.n, "haystacks": mean.clusters} if isinstance(mean, ClusterMean) else {})


def _cell_fields(cell: Any, depthless: bool) -> dict[str, Any]:
    """A cell in the words of the CSV."""
    found: dict[str, Any] = {column.name: column.told(cell) for column in CELLS[len(RUN) :]}
    found |= {"failures": dict(cell.failures)}
    return found | (dict.fromkeys(_DEPTHS) if depthless else {})


def _effective_fields(scores: FamilyScores, rules: Sequence[str]) -> list[dict[str, Any]]:
    found = (scores.effective(parse_rule(rule)) for rule in rules)
    return [_rule_fields(each) for each in found if each is not None]


def _rule_fields(found: Effective) -> dict[str, Any]:
    """A rule's value and interval in tokens, of auc in percent. An end that lies beyond the longest length
    tested is that length, and named in `beyond`; 0 is below the shortest."""
    ends = {"value": found.value, "low": found.low, "high": found.high}
    told = _told if found.rule.kind == "auc" else _tokens
    return {
        "rule": found.rule.name,
        **{name: found.longest if end == inf else told(end) for name, end in ends.items()},
        "beyond": [name for name, end in ends.items() if end == inf],
        "shortest": found.shortest,
        "longest": found.longest,
    }


def _told(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 6)


def _tokens(length: float | None) -> int | None:
    return None if length is None else round(length)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run's mean against a threshold, all in percent. low, high: its 95 % interval; None without one.

    word: 'at least' where the lower end is no lower than the threshold, even if all that is missing were
    wrong; 'below' where the upper end is below it; else 'undecided'. missing: trials without a score.
    """

    fail_under: float
    word: str
    score: float | None
    low: float | None
    high: float | None
    missing: int

    @property
    def asked(self) -> str:
        """What it is judged by."""
        return f"mean at least {self.fail_under:g}"

    @property
    def code(self) -> int:
        """The exit code: 0 at least, 1 below, 4 undecided."""
        return {"at least": 0, "below": 1, "undecided": 4}[self.word]

    @property
    def text(self) -> str:
        """The verdict in a line."""
        shares = [None if each is None else each / 100 for each in (self.score, self.low, self.high)]
        mean = f"mean {score_label(shares[0])} {interval_label(*shares[1:])}"
        if self.word != "undecided":
            return f"verdict: {self.word} {self.fail_under:g}: {mean}"
        return f"verdict: undecided whether at least {self.fail_under:g}: {mean}. {self._advice}"

    @property
    def _advice(self) -> str:
        if self.missing:
            return f"{self.missing:,} trials have no score: the same command asks them again."
        if self.low is None:
            return "It has no interval yet: give 5 or more --repeats."
        return "More --repeats narrow the interval."

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def check_threshold(threshold: float) -> float:
    """A threshold in percent. Raises SettingsError for one that no mean could miss or reach."""
    if not 0 < threshold <= 100:
        raise SettingsError(f"--fail-under is a mean in percent, above 0 and up to 100, got {threshold:g}.")
    return threshold


def judge(path: str | Path, threshold: float) -> Judged:
    """A run's mean, of several families their mean, against a threshold in percent. Raises NeedlemapError."""
    read = read_families(families_of(path))
    only = read.get("")
    mean: ClusterMean | Mean | None = only.map.total if only else scores_of(read).overall()
    missing = sum(run.map.missing for run in read.values() if run is not None)
    if mean is None or mean.low is None or mean.high is None:
        score = None if mean is None else _told(mean.score)
        return Judged(threshold, "undecided", score, None, None, missing)
    sure = 100 * (mean.low - _lost(read))
    word = "at least" if sure >= threshold - 1e-9 else "below" if 100 * mean.high < threshold else "undecided"
    return Judged(threshold, word, _told(mean.score), _told(mean.low), _told(mean.high), missing)


def _lost(read: Read) -> float:
    """By how much the mean would sink if every trial without a score were wrong, a share."""
    maps = [run.map for run in read.values() if run is not None]
    shares = [map.missing / max(1, map.n + map.missing) * (map.overall or 0.0) for map in maps]
    return sum(shares) / max(1, len(shares))


def runs_below(path: Path, deep: int = DEEP) -> Iterator[Path]:
    """The folders of all runs in a folder, itself too, and in its folders, so many deep, by name; links are
    not followed."""
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
    """A run as a row of `needlemap list runs`: folder, model, task, score with interval, cells, state."""
    try:
        families = families_of(path)
        read = read_families(families)
        begun = [run for run in read.values() if run is not None]
        only = read.get("")
        mean: ClusterMean | Mean | None = only.map.total if only else scores_of(read).overall()
    except NeedlemapError as error:
        return [str(path), "", "", "", "", f"cannot be read: {printable(str(error), line=True)}"]
    return [
        str(path),
        ", ".join(dict.fromkeys(run.map.model for run in begun)),
        only.map.task if only else f"suite:{printable(families.suite, line=True)}",
        _score(mean),
        f"{sum(len(run.map.cells) for run in begun):,}",
        _state(read, families),
    ]


def _score(mean: ClusterMean | Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{score_label(mean.score)} {interval_label(mean.low, mean.high)}"


def _state(read: Read, families: Families) -> str:
    """What of a run is there: complete, or what is missing and why."""
    begun = [run for run in read.values() if run is not None]
    missing, waiting = sum(run.map.missing for run in begun), len(read) - len(begun)
    parts = [f"{waiting} families not begun"] if waiting else []
    parts += [f"{missing:,} trials missing"] if missing else []
    parts += ["stopped by a limit"] if any(run.about.get("stopped") for run in begun) else []
    going = any(is_held(families.folder(name)) for name in families.begun)
    return ", ".join((["running"] if going else []) + parts) or "complete"
