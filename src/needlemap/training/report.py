"""A series of checkpoints: what each step of a training came to, by length.

Of `--scorer recovery` each step has two lines: recovery, and dotted below it accuracy on the
same items. The length at which the score crosses one half is that of the rule `absolute:50`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from needlemap.errors import SettingsError
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import (
    effective_label,
    interval_behind,
    length_labels,
    score_label,
)
from needlemap.reports.report import COUNT, FIGURES, Column, Fact, Line, Report, Row, Table
from needlemap.reports.run_notes import accuracy_by_length
from needlemap.reports.run_report import effective_fields, mean_fields
from needlemap.stats.effective import Effective, effective_length, parse_rule
from needlemap.stats.intervals import ClusterMean
from needlemap.text import printable

HALF = parse_rule("absolute:50")
ACCURACY = "each token of the value is the model's first choice"
Means = Mapping[int, ClusterMean | None]


def series_report(runs: Sequence[Loaded]) -> Report:
    """The report of the runs of one training's checkpoints, by their steps. Raises
    SettingsError where a step is unknown or there twice, and for runs that are scored
    unlike."""
    by_step = _by_step(runs)
    name = runs[0].about.scorer.name
    noun = name if name == "recovery" else "score"
    means = {step: run.map.margins for step, run in by_step.items()}
    right = {step: accuracy_by_length(run) for step, run in by_step.items()}
    held = {step: effective_length(run.cube, HALF) for step, run in by_step.items()}
    chart = list[Line]()
    for step in by_step:
        chart.append(Line(f"step {step:,}", means[step], held[step]))
        if right[step]:
            chart.append(Line(f"accuracy at step {step:,}", right[step], dotted=True))
    rows = [
        Row(
            {
                "step": step,
                "model": printable(run.about.named.model, line=True),
                "missing": run.map.missing,
                "lengths": _fields(means[step]),
                "accuracy": _fields(right[step]),
                "crosses_half": effective_fields(found) if (found := held[step]) else None,
            }
        )
        for step, run in by_step.items()
    ]
    crossing = Column("", "crosses 50 %", FIGURES, lambda row: _held_label(held[row["step"]]))
    tables = [Table("steps", (*_columns(means), crossing), tuple(rows), f"{noun} by step")]
    if any(right.values()):
        tables.append(Table("", _columns(right), tuple(rows), f"accuracy by step: {ACCURACY}"))
    return Report(
        "series",
        f"{noun.capitalize()} by step, {runs[0].about.named.task}, {len(rows)} steps",
        (Fact("scorer", name), *tables, *_warnings([*by_step.values()])),
        chart=tuple(chart),
        axis=f"{noun.capitalize()} by length, %",
    )


def steps_of(report: Report) -> list[tuple[int, Effective | None]]:
    """Of a series' report each step, and the length at which its score crosses one half."""
    (table,) = (each for each in report.all_tables if each.key)
    lines = (line for line in report.chart if not line.dotted)
    return [
        (row.values["step"], line.effective) for row, line in zip(table.rows, lines, strict=True)
    ]


def _by_step(runs: Sequence[Loaded]) -> dict[int, Loaded]:
    """The runs by their steps, which ascend. Raises SettingsError."""
    found = dict[int, Loaded]()
    for run in runs:
        step, path = run.about.named.step, printable(str(run.path), line=True)
        if step is None:
            raise SettingsError(
                f"Run '{path}' does not say of which step its model is. Ask checkpoints together, "
                f"as --model 'hf/run/step-*', or type its command again with --step NUMBER."
            )
        if step in found:
            raise SettingsError(
                f"'{printable(str(found[step].path), line=True)}' and '{path}' are both of step "
                f"{step:,}. Give the runs of one training."
            )
        found[step] = run
    if any(run.about.scorer != runs[0].about.scorer for run in runs):
        raise SettingsError(
            "The steps are scored by different scorers or rules. Score them alike: needlemap "
            "score RUN --scorer NAME."
        )
    return dict(sorted(found.items()))


def _fields(means: Means) -> list[dict[str, Any]]:
    """Means by length for programs, in percent."""
    return [
        {"length_tokens": length} | mean_fields(mean)
        for length, mean in means.items()
        if mean is not None
    ]


def _columns(of: Mapping[int, Means]) -> tuple[Column, ...]:
    """The step, and a column a length. of: means by step and length."""
    labels = length_labels(sorted({length for means in of.values() for length in means}))

    def label(length: int, row: Mapping[str, Any]) -> str | None:
        mean = of[row["step"]].get(length)
        return None if mean is None else f"{score_label(mean.score)}{interval_behind(mean)}"

    each = (Column("", text, FIGURES, partial(label, at)) for at, text in labels.items())
    return Column("step", "step", COUNT), *each


def _held_label(held: Effective | None) -> str | None:
    return None if held is None else effective_label(held)


def _warnings(runs: Sequence[Loaded]) -> Iterator[Fact]:
    """What makes steps less alike than a series is."""
    scored = [_prompts(run) for run in runs]
    if any(each != scored[0] for each in scored):
        counts = sorted(map(len, scored))
        shared = len(set.intersection(*scored))
        said = (
            f"The steps do not have scores of the same prompts: {counts[0]:,} to {counts[-1]:,} a "
            f"step, {shared:,} of them at every step. An item that could not be scored is missing "
            f"at that step."
        )
        yield Fact("prompts_differ", {"shared": shared}, said, warns=True)


def _prompts(run: Loaded) -> set[str]:
    """The prompts that a run has scores of."""
    return {record.prompt.sha256 for record in run.records if record.scored and record.prompt}
