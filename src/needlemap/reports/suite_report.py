"""What several families of one run came to, and several models, each as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from needlemap.records.families import Families, families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.kept import finding_report
from needlemap.reports.labels import (
    effective_label,
    interval_behind,
    interval_label,
    length_labels,
    score_label,
)
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import (
    COUNT,
    FIGURES,
    SCORE,
    Column,
    Fact,
    Line,
    Report,
    Row,
    Table,
    keyed,
)
from needlemap.reports.run_report import RunsByFamily, effective_fields, mean_fields, run_report
from needlemap.reports.seek_report import asked_line, length_line, seek_result_of, seeks
from needlemap.reports.summary import (
    FAMILY_RULES,
    NO_MEAN,
    count_label,
    effective_lengths_by,
    mean_length_lines,
    means_of,
    overall_of,
    read_families,
    score_name,
    scores_of,
    weighted_scores,
)
from needlemap.settings.suites import scores_among
from needlemap.stats.effective import RULES, FamilyScores, Mean, parse_rule
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.seek import Sought
from needlemap.text import printable

SEEK_COLUMNS = (
    Column("name", "family"),
    Column("found", "effective length"),
    Column("asked", "asked"),
)


def suite_report(
    families: Families,
    runs_by_family: RunsByFamily,
    rules: Sequence[str] = FAMILY_RULES,
    glance: str = RULES[0],
) -> Report:
    """Return the report of a run with several families, or raise SettingsError for a wrong rule.

    rules: of effective length. glance: the rule of the length that is shown at a glance.
    """
    started_runs = [run for run in runs_by_family.values() if run is not None]
    seeks_any = any(map(seeks, started_runs))
    scores = scores_of(families, runs_by_family)
    means = scores.means()
    overall = scores.overall()
    effective_lengths = effective_lengths_by(scores.effective, rules)
    name = score_name(families)
    mean = Line(name, means, scores.effective(parse_rule(glance)), main=True)
    models = ", ".join(dict.fromkeys(run.map.model for run in started_runs))
    title = printable(f"suite {families.suite} · {models}", line=True)
    count = f"{len(runs_by_family)} families"
    values = {
        "run": str(families.path),
        "suite": families.suite,
        "model": started_runs[0].map.model if started_runs else None,
        "overall": overall and mean_fields(overall),
        "missing": sum(run.map.missing for run in started_runs),
        "refused_or_filtered": sum(run.map.withheld for run in started_runs),
        "lengths": [
            {"length_tokens": length, **mean_fields(mean)} for length, mean in means.items()
        ],
        "effective_lengths": list(map(effective_fields, effective_lengths)),
        "families": lambda: {
            name: run and to_json(run_report(run, rules)) for name, run in runs_by_family.items()
        },
    }
    weighted = weighted_scores(families, runs_by_family)
    if families.scores:
        values["scores"] = [
            _score_fields(name, weights, weighted[name])
            for name, weights in families.scores.items()
        ]
    lines = mean_length_lines(name, means, overall, effective_lengths) if means else [NO_MEAN]
    score = score_label(None if overall is None else overall.score) + interval_behind(overall)
    parts = (
        _seek_parts(title, runs_by_family)
        if seeks_any
        else _score_parts(families, runs_by_family, title, mean, overall, lines)
    )
    if weighted and not seeks_any:
        parts = chain(parts, [_scores_table(weighted)])
    return Report(
        "suite",
        title,
        (*keyed(values), *parts),
        chart=(*family_lines(runs_by_family), *(() if seeks_any else (mean,))),
        brief=count if seeks_any else f"{count}, {name} {score}",
        answer="" if seeks_any else _answer(runs_by_family, mean, overall),
    )


def _answer(runs_by_family: RunsByFamily, mean: Line, overall: Mean | None) -> str:
    """Return a sentence on the score of all families and its effective length."""
    not_started_count = [*runs_by_family.values()].count(None)
    note = f", {not_started_count} of them not started" if not_started_count else ""
    if overall is None:
        return f"No {mean.name} yet over {len(runs_by_family)} families{note}"
    score = f"{score_label(overall.score)} %{interval_behind(overall)}"
    sentence = f"{mean.name.capitalize()} over {len(runs_by_family)} families: {score}"
    if mean.effective is None:
        return sentence
    rule = mean.effective.rule.name
    return f"{sentence}; effective length {effective_label(mean.effective)} ({rule})"


def _score_parts(
    families: Families,
    runs_by_family: RunsByFamily,
    title: str,
    mean: Line,
    overall: Mean | None,
    lines: Sequence[str],
) -> Iterator[Fact | Table]:
    """Yield the score of all families, then scores by length of each and of all."""
    not_started_count = [*runs_by_family.values()].count(None)
    score = "none yet"
    if overall is not None:
        score = f"{score_label(overall.score)} %{interval_behind(overall)}"
    weighting = "weighted by the suite" if families.scores else "each family counts the same"
    yield Fact(value=score, head=f"{mean.name.capitalize()} over families", note=weighting)
    if mean.effective is not None:
        effective, rule = effective_label(mean.effective), mean.effective.rule.name
        yield Fact(value=effective, head="Effective length", note=f"{rule}, of the {mean.name}")
    yield Fact(
        value=len(runs_by_family),
        head="Families",
        note=f"{not_started_count} not started" if not_started_count else "",
    )
    if not any(run.map.lengths for run in runs_by_family.values() if run is not None):
        yield Fact(said=f"suite {families.suite}: nothing was asked yet")
        return
    rows = [_family_row(name, run) for name, run in runs_by_family.items()]
    if not families.scores:
        rows.append(_row_values(mean.name, mean.means, overall))
    yield _by_length("family", rows, Column("count", "n", FIGURES), title=title)
    yield Fact(said="\n".join(lines))


def _score_fields(name: str, weights: Mapping[str, float], scores: FamilyScores) -> dict[str, Any]:
    """Return a score for programs."""
    overall, means = scores.overall(), scores.means()
    return {
        "name": name,
        "weights": dict(weights),
        "overall": overall and mean_fields(overall),
        "lengths": [
            {"length_tokens": length, **mean_fields(mean)} for length, mean in means.items()
        ],
    }


def _scores_table(scores: Mapping[str, FamilyScores]) -> Table:
    """Return a row a score, with the interval of its mean over lengths."""
    rows = []
    for name, family_scores in scores.items():
        overall = family_scores.overall()
        interval = interval_label(overall.low, overall.high) if overall else None
        rows.append(_row_values(name, family_scores.means(), overall, interval=interval))
    return _by_length("score", rows, Column("interval", "95 %", FIGURES), linked=False)


def _seek_parts(title: str, runs_by_family: RunsByFamily) -> Iterator[Fact | Table]:
    """Yield the effective length of each family of a suite that seeks.

    There is no mean, because each family is sampled unevenly.
    """
    yield Fact(value=f"{len(runs_by_family)} families", head="Sought", note="no mean is made")
    rows = []
    for name, run in runs_by_family.items():
        result = None if run is None else seek_result_of(run)
        effective = "nothing is scored yet" if result is None else _without_head(result)
        spending = "" if result is None else asked_line(result)
        rows.append(Row({"name": name, "found": effective, "asked": spending}, to=name))
    yield Table("", SEEK_COLUMNS, tuple(rows), title)


def _without_head(result: Sought) -> str:
    """Return the effective length, without these two words."""
    return length_line(result).removeprefix("effective length").lstrip(": ")


def family_lines(runs_by_family: RunsByFamily) -> tuple[Line, ...]:
    """Return scores by length of each family that was started, also of lengths without one."""
    return tuple(
        Line(name, {length: run.map.margins.get(length) for length in run.map.lengths})
        for name, run in runs_by_family.items()
        if run is not None
    )


def models_report(paths: Sequence[Path]) -> Report:
    """Return the report of several models: scores by length, of several families their mean."""
    rows = [_model_row(families, read_families(families)) for families in map(families_of, paths)]
    further_columns = []
    if any(row["missing"] for row in rows):
        further_columns.append(Column("missing", "missing", COUNT))
    if any(row["verdict"] for row in rows):
        further_columns.append(Column("verdict", "verdict"))
    return Report("models", f"{len(rows)} models", (_by_length("model", rows, *further_columns),))


def suites_in(runs: Sequence[Loaded]) -> tuple[list[tuple[Families, RunsByFamily]], list[Loaded]]:
    """Return the suites in the runs of other tools' files, and the runs of no suite.

    A suite is several runs of one suite and model in one folder.
    """
    groups: dict[tuple[Path, str, str], list[Loaded]] = {}
    for run in runs:
        groups.setdefault((Path(run.path).parent, run.suite, run.about.model_label), []).append(run)
    suites: list[tuple[Families, RunsByFamily]] = []
    in_suites: set[int] = set()
    for (path, suite, _), group in groups.items():
        if not suite or len(group) == 1:
            continue
        runs_by_family = {str(run.about.named.task): run for run in group}
        suites.append(
            (
                Families(path, suite, tuple(runs_by_family), scores_among(suite, runs_by_family)),
                runs_by_family,
            )
        )
        in_suites.update(map(id, group))
    return suites, [run for run in runs if id(run) not in in_suites]


def fields_of(path: str | Path, rules: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a folder's run for programs, or raise NeedlemapError if it cannot be read.

    rules: of effective length; by default those of the terminal.
    """
    families = families_of(path)
    runs_by_family = read_families(families)
    if single_run := runs_by_family.get(""):
        return to_json(run_report(single_run, rules or RULES))
    return to_json(suite_report(families, runs_by_family, rules or FAMILY_RULES))


def _by_length(
    row_name: str,
    rows: Sequence[Mapping[str, Any]],
    *further_columns: Column,
    title: str = "",
    linked: bool = True,
) -> Table:
    """Return a table with a column for each length, then one for all lengths."""
    lengths = sorted({length for row in rows for length in row["scores"]})
    labels = length_labels(lengths)
    columns = (
        Column(str(length), labels[length], SCORE, partial(_score_at, length)) for length in lengths
    )
    overall = Column("overall", "all", SCORE)
    table_rows = tuple(Row(row, to=row["name"] if linked else "") for row in rows)
    return Table(
        "", (Column("name", row_name), *columns, overall, *further_columns), table_rows, title
    )


def _score_at(length: int, row: Mapping[str, Any]) -> float | None:
    score: float | None = row["scores"].get(length)
    return score


def _row_values(
    name: str,
    means: Mapping[int, ClusterMean | Mean | None],
    overall: ClusterMean | Mean | None,
    **more: Any,
) -> dict[str, Any]:
    """Return the values of a row."""
    scores = {length: mean.score for length, mean in means.items() if mean is not None}
    overall_score = None if overall is None else overall.score
    return {"name": printable(name, line=True), "scores": scores, "overall": overall_score, **more}


def _family_row(name: str, run: Loaded | None) -> dict[str, Any]:
    means, mean = (run.map.margins, run.map.total) if run else ({}, None)
    return _row_values(name, means, mean, count=count_label(run))


def _model_row(families: Families, runs_by_family: RunsByFamily) -> dict[str, Any]:
    """Return a model's name, its scores, their mean, and how many trials are missing.

    A check, an ab and a storm have a verdict's word in place of scores.
    """
    started_runs = [run for run in runs_by_family.values() if run is not None]
    name = started_runs[0].map.model if started_runs else str(families.path)
    means = means_of(families, runs_by_family)
    mean = overall_of(families, runs_by_family)
    missing_count = sum(run.map.missing for run in started_runs) or None
    report = finding_report(families, runs_by_family)
    word = report.verdict.word if report and report.verdict else None
    return _row_values(name, means, mean, missing=missing_count, verdict=word)
