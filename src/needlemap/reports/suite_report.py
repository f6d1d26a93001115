"""What several families of one run came to, and several models, each as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from needlemap.maps.effective import RULES, FamilyScores
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import length_labels
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import COUNT, FIGURES, SCORE, Column, Fact, Report, Row, Table, keyed
from needlemap.reports.results import (
    Read,
    effective_fields,
    families_sought,
    mean_fields,
    run_fields,
)
from needlemap.reports.seek_report import seeks
from needlemap.reports.summary import (
    FAMILY_RULES,
    NO_MEAN,
    count_label,
    effective_by_rule,
    mean_length_lines,
    mean_of,
    read_families,
    scores_of,
)
from needlemap.text import printable


def suite_report(
    families: Families, read: Read, rules: Sequence[str] = FAMILY_RULES, whole: bool = False
) -> Report:
    """The report of a run with several families. rules: of effective length. whole: for programs,
    with all that is known of each family. Raises SettingsError for an unknown rule."""
    begun = [run for run in read.values() if run is not None]
    scores = FamilyScores([]) if any(map(seeks, begun)) else scores_of(read)
    means, overall = scores.means(), scores.overall()
    found = effective_by_rule(scores, rules)
    models = ", ".join(dict.fromkeys(run.map.model for run in begun))
    values = {
        "run": str(families.path),
        "suite": families.suite,
        "model": begun[0].map.model if begun else None,
        "overall": overall and mean_fields(overall),
        "missing": sum(run.map.missing for run in begun),
        "lengths": [{"length_tokens": n, **mean_fields(mean)} for n, mean in means.items()],
        "effective_lengths": effective_fields(found),
    }
    if whole:
        values["families"] = {name: run and run_fields(run, rules) for name, run in read.items()}
        return Report("suite", families.suite, tuple(keyed(values)))
    title = f"suite {families.suite} · {models}"
    parts: tuple[Fact | Table, ...]
    if sought := families_sought(families.suite, read):
        parts = (Fact(said=sought),)
    elif not any(run.map.lengths for run in begun):
        parts = (Fact(said=f"suite {families.suite}: nothing was asked yet"),)
    else:
        lines = mean_length_lines(means, found) if means else [NO_MEAN]
        mean = _values("mean", {n: each.score for n, each in means.items()}, mean_of(means))
        rows = [*(_family(name, run) for name, run in read.items()), mean]
        table = _by_length("family", rows, Column("count", "n", FIGURES))
        parts = (Fact(said=printable(title, line=True)), table, Fact(said="\n".join(lines)))
    return Report("suite", title, (*keyed(values), *parts))


def models_report(paths: Sequence[Path]) -> Report:
    """The report of several models: scores by length, of several families their mean."""
    rows = [_model(families, read_families(families)) for families in map(families_of, paths)]
    missing = [Column("missing", "missing", COUNT)] if any(row["missing"] for row in rows) else []
    return Report("models", f"{len(rows)} models", (_by_length("model", rows, *missing),))


def fields_of(path: str | Path, rules: Sequence[str] | None = None) -> dict[str, Any]:
    """A folder's run for programs. rules: of effective length; by default those of the terminal.
    Raises NeedlemapError."""
    families = families_of(path)
    read = read_families(families)
    if only := read.get(""):
        return run_fields(only, rules or RULES)
    return to_json(suite_report(families, read, rules or FAMILY_RULES, whole=True))


def _by_length(what: str, rows: Sequence[Mapping[str, Any]], *more: Column) -> Table:
    """A table with the lengths across, that of all behind them."""
    lengths = sorted({length for row in rows for length in row["scores"]})
    labels = length_labels(lengths)
    columns = (Column(str(n), labels[n], SCORE, partial(_score_at, n)) for n in lengths)
    every = Column("overall", "all", SCORE)
    return Table("", (Column("name", what), *columns, every, *more), tuple(map(Row, rows)))


def _score_at(length: int, row: Mapping[str, Any]) -> float | None:
    score: float | None = row["scores"].get(length)
    return score


def _values(
    name: str, scores: Mapping[int, float], overall: float | None, **more: Any
) -> dict[str, Any]:
    """The values of a row."""
    return {"name": printable(name, line=True), "scores": scores, "overall": overall, **more}


def _family(name: str, run: Loaded | None) -> dict[str, Any]:
    scores = {n: mean.score for n, mean in run.map.margins.items()} if run else {}
    return _values(name, scores, run.map.overall if run else None, count=count_label(run))


def _model(families: Families, read: Read) -> dict[str, Any]:
    """Its name, its scores, their mean, and how many trials are missing."""
    begun = [run for run in read.values() if run is not None]
    name = begun[0].map.model if begun else str(families.path)
    missing = sum(run.map.missing for run in begun) or None
    if families.is_plain:
        return _family(name, begun[0]) | {"missing": missing}
    scores = scores_of(read)
    mean, means = scores.overall(), scores.means()
    overall = None if mean is None else mean.score
    return _values(name, {n: each.score for n, each in means.items()}, overall, missing=missing)
