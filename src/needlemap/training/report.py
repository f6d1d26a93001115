"""Report a series of checkpoints: the score of each training step by length.

With `--scorer recovery` each step has two lines: recovery, and dotted below it accuracy on the
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
    """Return the report of the runs of one training's checkpoints, by their steps.

    Raises SettingsError for an unknown step, for two runs of one step, and for runs with different
    scorers.
    """
    runs_by_step = _runs_by_step(runs)
    scorer = runs[0].about.scorer.name
    score_name = scorer if scorer == "recovery" else "score"
    means = {step: run.map.margins for step, run in runs_by_step.items()}
    accuracies = {step: accuracy_by_length(run) for step, run in runs_by_step.items()}
    crossings = {step: effective_length(run.cube, HALF) for step, run in runs_by_step.items()}

    lines = list[Line]()
    rows = list[Row]()
    for step, run in runs_by_step.items():
        lines.append(Line(f"step {step:,}", means[step], effective=crossings[step]))
        if accuracies[step]:
            lines.append(Line(f"accuracy at step {step:,}", accuracies[step], dotted=True))
        crossing = crossings[step]
        rows.append(
            Row(
                {
                    "step": step,
                    "model": printable(run.about.named.model, line=True),
                    "missing": run.map.missing,
                    "lengths": _fields(means[step]),
                    "accuracy": _fields(accuracies[step]),
                    "crosses_half": effective_fields(crossing) if crossing else None,
                }
            )
        )

    crossing_column = Column(
        "",
        "crosses 50 %",
        unit=FIGURES,
        of=lambda row: _crossing_label(crossings[row["step"]]),
    )
    tables = [
        Table(
            "steps",
            (*_columns(means), crossing_column),
            rows=tuple(rows),
            title=f"{score_name} by step",
        )
    ]
    if any(accuracies.values()):
        tables.append(
            Table(
                "",
                _columns(accuracies),
                rows=tuple(rows),
                title=f"accuracy by step: {ACCURACY}",
            )
        )
    warnings = _warnings(list(runs_by_step.values()))
    return Report(
        "series",
        f"{score_name.capitalize()} by step, {runs[0].about.named.task}, {len(rows)} steps",
        (Fact("scorer", scorer), *tables, *warnings),
        chart=tuple(lines),
        axis=f"{score_name.capitalize()} by length, %",
    )


def steps_of(report: Report) -> list[tuple[int, Effective | None]]:
    """Return each step of a series' report, and the length at which its score crosses one half."""
    (table,) = (table for table in report.all_tables if table.key)
    lines = (line for line in report.chart if not line.dotted)
    return [
        (row.values["step"], line.effective) for row, line in zip(table.rows, lines, strict=True)
    ]


def _runs_by_step(runs: Sequence[Loaded]) -> dict[int, Loaded]:
    """Return the runs by their steps, in ascending order.

    Raises SettingsError as `series_report` does.
    """
    runs_by_step = dict[int, Loaded]()
    for run in runs:
        step = run.about.named.step
        path = printable(str(run.path), line=True)
        if step is None:
            raise SettingsError(
                f"Run '{path}' does not say of which step its model is. Ask checkpoints together, "
                f"as --model 'hf/run/step-*', or type its command again with --step NUMBER."
            )
        if step in runs_by_step:
            other_path = printable(str(runs_by_step[step].path), line=True)
            raise SettingsError(
                f"'{other_path}' and '{path}' are both of step {step:,}. Give the runs of one "
                f"training."
            )
        runs_by_step[step] = run
    if any(run.about.scorer != runs[0].about.scorer for run in runs):
        raise SettingsError(
            "The steps are scored by different scorers or rules. Score them alike: needlemap "
            "score RUN --scorer NAME."
        )
    return dict(sorted(runs_by_step.items()))


def _fields(means: Means) -> list[dict[str, Any]]:
    """Return means by length for programs, in percent."""
    return [
        {"length_tokens": length} | mean_fields(mean)
        for length, mean in means.items()
        if mean is not None
    ]


def _columns(means_by_step: Mapping[int, Means]) -> tuple[Column, ...]:
    """Return a column for the step, and a column for each length."""
    lengths = sorted({length for means in means_by_step.values() for length in means})

    def label(length: int, row: Mapping[str, Any]) -> str | None:
        mean = means_by_step[row["step"]].get(length)
        if mean is None:
            return None
        return f"{score_label(mean.score)}{interval_behind(mean)}"

    columns = [Column("step", "step", unit=COUNT)]
    for length, title in length_labels(lengths).items():
        columns.append(Column("", title, unit=FIGURES, of=partial(label, length)))
    return tuple(columns)


def _crossing_label(crossing: Effective | None) -> str | None:
    return None if crossing is None else effective_label(crossing)


def _warnings(runs: Sequence[Loaded]) -> Iterator[Fact]:
    """Yield a warning if the steps have scores of different prompts."""
    prompts = [_prompts(run) for run in runs]
    if any(step_prompts != prompts[0] for step_prompts in prompts):
        counts = sorted(map(len, prompts))
        shared = len(set.intersection(*prompts))
        message = (
            f"The steps do not have scores of the same prompts: {counts[0]:,} to {counts[-1]:,} a "
            f"step, {shared:,} of them at every step. An item that could not be scored is missing "
            f"at that step."
        )
        yield Fact("prompts_differ", {"shared": shared}, message)


def _prompts(run: Loaded) -> set[str]:
    """Return the hashes of the prompts whose answers a run has scored."""
    return {record.prompt.sha256 for record in run.records if record.scored and record.prompt}
