"""How a difficulty was found, as a report: the steps of a dial, and the one that is frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from needlemap.asking.difficulty import FILE, HIGHEST, LOWEST, Tuned
from needlemap.records.families import Families
from needlemap.reports.labels import score_label
from needlemap.reports.report import COUNT, PERCENT, Column, Fact, Report, Row, Table, keyed


def options_label(options: Mapping[str, Any]) -> str:
    """A step's options in words: 'keys=8, digits=9'."""
    return ", ".join(f"{option}={value}" for option, value in options.items())


_FAMILY = Column("family", "family")
_COLUMNS = (
    Column("step", "step", of=lambda row: f"{row['step']}{' *' * row['frozen']}"),
    Column("options", "options", of=lambda row: options_label(row["options"])),
    Column("score", "score", PERCENT),
    Column("n", "n", COUNT),
)


def difficulty_report(found: Sequence[Tuned], families: Families) -> Report:
    """The report of the dials of a run's families. Scores in percent. file: where the frozen
    options lie, of a suite the folder of its families; None where nothing is frozen."""
    frozen = any(tuned.frozen is not None for tuned in found)
    file = str(families.path / FILE if families.is_plain else families.path) if frozen else None
    model = found[0].family.settings.model
    title = f"difficulty for {model}: the step with a score of {LOWEST:.0%} to {HIGHEST:.0%}"
    columns = _COLUMNS if families.is_plain else (_FAMILY, *_COLUMNS)
    after = f"* frozen. Others at the same difficulty: --difficulty {file}" if frozen else ""
    facts = keyed({"model": model, "file": file})
    table = Table("steps", columns, tuple(_rows(found)), f"\n{title}", after)
    return Report("difficulty", title, (*facts, *_warnings(found), table))


def _rows(found: Sequence[Tuned]) -> Iterator[Row]:
    """A row a step that was measured."""
    for tuned in found:
        for step in tuned.steps:
            yield Row(
                {
                    "family": tuned.family.name,
                    "task": tuned.family.settings.task,
                    "step": step.number,
                    "options": dict(step.options),
                    "score": step.score,
                    "n": step.n,
                    "frozen": step.number == tuned.frozen,
                }
            )


def _warnings(found: Sequence[Tuned]) -> Iterator[Fact]:
    """A sentence for each family whose frozen step is too hard or too easy."""
    for tuned in found:
        if tuned.off:
            step = tuned.steps[(tuned.frozen or 1) - 1]
            name, model = tuned.family.name, tuned.family.settings.model
            score = f"{model} scores {score_label(step.score)}, outside 60 to 95: {tuned.off}"
            yield Fact(said=f"warning: {f'{name}: ' * bool(name)}{score}", warns=True)
