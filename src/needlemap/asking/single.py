"""Trials that are asked one by one, or all at a time, each of a family that stays open
between.

For a strategy that goes back and forth between families, as a check does: what a family's
folder holds is read once, and its run.json is written when it is opened and when it is closed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from needlemap.asking import Runner, TrialObserver
from needlemap.asking.budget import Budget
from needlemap.asking.pacer import Pacer
from needlemap.asking.session import about
from needlemap.models import Model
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import Record
from needlemap.trials import Trial
from needlemap.trials.build import Experiment
from needlemap.trials.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Step:
    """One trial.

    family: the name of the one that keeps its record. model: its name in the campaign. after_s:
    how long it is held back. cancel_s: how long it is waited for until the client goes away;
    None: to its end.
    """

    family: str
    trial: Trial
    resolved: Resolved
    folder: RunFolder
    model: str = ""
    after_s: float = 0.0
    cancel_s: float | None = None


@dataclass(slots=True)
class OpenFamily:
    """A family whose records file is open."""

    runner: Runner
    writer: Writer
    folder: RunFolder
    resolved: Resolved
    asked: list[tuple[int, float, int]] = field(default_factory=list)

    @classmethod
    def of(
        cls, step: Step, model: Model, budget: Budget, pacer: Pacer | None, scored: int
    ) -> OpenFamily:
        """Opened for its first trial. pacer: of all families of one server. Raises
        NeedlemapError where another run holds the folder."""
        resolved, writer = step.resolved, Writer(step.folder)
        try:
            experiment = Experiment.of(resolved, [step.trial], ())
            writer.describe(about(experiment, step.folder, model))
            kept = budget, writer, TrialObserver(), scored
            runner = Runner(model, resolved.scorer, resolved.settings, *kept, pacer=pacer)
        except BaseException:
            writer.close()
            raise
        return cls(runner, writer, step.folder, resolved)

    async def ask(self, step: Step) -> Record | None:
        """The record of a step's trial; None where a limit let it not be sent, or where it was
        cancelled: then it counts as sent. Raises NeedlemapError."""
        if step.after_s:
            await asyncio.sleep(step.after_s)
        record = None
        asked = asyncio.timeout(step.cancel_s)
        try:
            async with asked:
                record = await self.runner.first(step.trial)
        except TimeoutError:
            if not asked.expired():
                raise
        if record is not None:
            self.asked.append((record.length_tokens, record.depth, record.repeat))
        return record

    def close(self) -> None:
        """Write which cells it has now, and let go of its folder."""
        with closing(self.writer):
            row = about(Experiment.of(self.resolved, (), ()), self.folder)
            cells = merged_cells(row.cells, self.asked)
            self.writer.describe(row.model_copy(update={"cells": cells}))


def merged_cells(
    cells: Iterable[tuple[int, float, Sequence[int]]], asked: Iterable[tuple[int, float, int]]
) -> list[tuple[int, float, list[int]]]:
    """run.json's cells with those that were asked."""
    found = defaultdict[tuple[int, float], set[int]](set)
    for length, depth, repeats in cells:
        found[length, depth].update(repeats)
    for length, depth, repeat in asked:
        found[length, depth].add(repeat)
    return [(length, depth, sorted(each)) for (length, depth), each in sorted(found.items())]
