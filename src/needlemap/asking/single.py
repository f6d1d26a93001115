"""Trials that are asked one by one, or all at a time, each of a family that stays open
between.

For a strategy that goes back and forth between families, as a check does: what a family's
folder holds is read once, and its run.json is written when it is opened and when it is closed.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass, field

from needlemap.asking import Runner, TrialObserver
from needlemap.asking.budget import Budget
from needlemap.asking.pacer import Pacer
from needlemap.asking.session import make_run_file, merged_cells
from needlemap.models import Model
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import Record
from needlemap.trials import Trial
from needlemap.trials.build import Experiment
from needlemap.trials.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Step:
    """One trial that is asked at a certain time.

    Attributes:
        family: The name of the family that keeps its record.
        model: The name of the model in the campaign.
        after_s: How long the trial is held back.
        cancel_s: How long it is waited for until the client goes away; None: to its end.
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
    """A family whose records file is open.

    asked: the cells and repeats of the records that were made.
    """

    runner: Runner
    writer: Writer
    folder: RunFolder
    resolved: Resolved
    asked: list[tuple[int, float, int]] = field(default_factory=list)

    @classmethod
    def of(
        cls, step: Step, model: Model, budget: Budget, pacer: Pacer | None, scored: int
    ) -> OpenFamily:
        """Return the family of a step, opened for its first trial.

        pacer: the one that all families of a server share. Raises NeedlemapError if another process
        writes to the family's folder.
        """
        resolved = step.resolved
        writer = Writer(step.folder)
        try:
            experiment = Experiment.of(resolved, [step.trial], ())
            writer.describe(make_run_file(experiment, step.folder, model))
            runner = Runner(
                model=model,
                scorer=resolved.scorer,
                settings=resolved.settings,
                budget=budget,
                sink=writer,
                watcher=TrialObserver(),
                already=scored,
                pacer=pacer,
            )
        except BaseException:
            writer.close()
            raise
        return cls(runner, writer, step.folder, resolved)

    async def ask(self, step: Step) -> Record | None:
        """Return the record of a step's trial, or None if a limit held it back or it was cancelled.

        A cancelled trial counts as sent. Raises NeedlemapError.
        """
        if step.after_s:
            await asyncio.sleep(step.after_s)
        record = None
        limit = asyncio.timeout(step.cancel_s)
        try:
            async with limit:
                record = await self.runner.run_alone(step.trial)
        except TimeoutError:
            if not limit.expired():
                raise
        if record is not None:
            self.asked.append((record.length_tokens, record.depth, record.repeat))
        return record

    def close(self) -> None:
        """Write which cells the family has now, and release its folder."""
        with closing(self.writer):
            run_file = make_run_file(Experiment.of(self.resolved, (), ()), self.folder)
            cells = merged_cells(run_file.cells, self.asked)
            self.writer.describe(run_file.model_copy(update={"cells": cells}))
