"""A worker: builds a run's prompts once, loads its model once, and takes units until none is left.

    python -m needlemap.runs.worker RUN/launches/1 JOB

Settings come from run.json, keys from the environment. It writes a records file of its own. SIGTERM and
SIGUSR2 (a cluster that wants the machine back, a time limit) end it: units that it held are free again, what
was scored is kept, answers in flight are lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType

from needlemap.errors import NeedlemapError
from needlemap.models.base import Model
from needlemap.plan.order import cut, promised
from needlemap.plan.units import next_unit
from needlemap.reports.live import Lines, Tally, Together
from needlemap.runs.begun import to_be_scored, unscored
from needlemap.runs.claims import Claim, Claims, Ending
from needlemap.runs.closed_book import every_record
from needlemap.runs.contexts import SavingContexts
from needlemap.runs.launch_budget import launched_budget
from needlemap.runs.launch_file import read_launch
from needlemap.runs.presence import Leaving, Presence, Worker, worker_name
from needlemap.runs.runner import Outcome, Runner, Watcher
from needlemap.runs.session import make_model, make_ready, marked
from needlemap.runs.store import RunFolder, Writer
from needlemap.runs.tail import Tail
from needlemap.runs.work import load_work, unit_trials
from needlemap.settings.reading import checked
from needlemap.settings.settings import Settings
from needlemap.text.printable import show
from needlemap.trials.build import Experiment, prepare
from needlemap.trials.repeat import Trial

SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)
_DEAR_S, _SELDOM_S = 0.005, 0.5  # a look at the others that takes longer is taken so seldom


@dataclass(frozen=True, slots=True)
class Job:
    """One start of one worker, wherever it runs. folder: of the launch. Called, it works, and never returns.

    Pickled by reference and by these plain values only.
    """

    folder: str
    name: str = ""

    def __call__(self) -> None:
        """Work as the job that Slurm's environment names, or as `name`."""
        environment = os.environ
        array = environment.get("SLURM_ARRAY_JOB_ID")
        job = (
            f"{array}_{environment['SLURM_ARRAY_TASK_ID']}" if array else environment.get("SLURM_JOB_ID", "")
        )
        restart = 0 if self.name else int(environment.get("SLURM_RESTART_COUNT", 0))
        name = self.name or job
        _leave(work(Path(self.folder), Worker(worker_name(name, restart), name, restart)))


def work(folder: Path, worker: Worker) -> int:
    """Work until nothing is left; the exit code. What can be mended is told to the launch, and to the log."""
    for number in SIGNALS:
        signal.signal(number, _before_work)
    presence = Presence(folder, worker)
    try:
        leaving, why, outcome = _work(RunFolder(folder.parent.parent), folder, worker, presence)
    except _Told:
        leaving, why, outcome = Leaving.TOLD, "", Outcome()
    except (NeedlemapError, OSError) as error:
        show(f"needlemap: {error}", file=sys.stderr)
        presence.leave(Leaving.ERROR, str(error))
        return 2
    presence.leave(leaving, why, outcome)
    show(f"needlemap: {leaving}. {why}".rstrip(), file=sys.stderr)
    return 0


class _Told(BaseException):
    """A signal that came before anything was claimed: nothing is to be put away."""


def _before_work(_number: int, _frame: FrameType | None) -> None:
    raise _Told


def _leave(code: int) -> None:
    """End now: an answer that is still being computed is not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _work(run: RunFolder, folder: Path, worker: Worker, presence: Presence) -> tuple[Leaving, str, Outcome]:
    with closing(Writer(run, shared=True)) as writer:
        presence.writes(writer.name)
        experiment = prepare(checked(run.about()["settings"], str(run.path)))
        left = f"{len(unscored(run, experiment))} of {len(experiment.trials)} trials left"
        show(f"needlemap: worker {worker.name} on {worker.host}: {left}", file=sys.stderr, flush=True)
        hands = _Hands(run, experiment, folder, worker, writer, make_model(experiment.settings))
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(hands.work())
        finally:
            loop.run_until_complete(
                loop.shutdown_asyncgens()
            )  # but threads that still compute are left alone


class _Hands:
    """As many requests at a time as the settings say, each going through a unit of its own."""

    def __init__(
        self,
        run: RunFolder,
        experiment: Experiment,
        folder: Path,
        worker: Worker,
        writer: Writer,
        model: Model,
    ) -> None:
        self._experiment, self._worker, self._model = experiment, worker, model
        self._work = load_work(folder)
        self._units = unit_trials(self._work, experiment)
        self._claims: Claims = self._work.claims
        settings = experiment.settings
        self._budget = launched_budget(run.path, folder, settings)
        for record in every_record(run):
            self._budget.add(record)
        self._tail, self._scored = Tail(run.path, besides=writer.name), set[str]()
        self._budget.look = self._glance  # so that no more than is in flight goes beyond a limit
        self._look()
        self._runner = Runner(
            model,
            experiment.scorer,
            _share(settings, run),
            self._budget,
            writer,
            _watcher(run, experiment),
            sum(trial.key in self._scored for trial in experiment.trials),
            to_be_scored(run.every_record()),
        )

    async def work(self) -> tuple[Leaving, str, Outcome]:
        """Work until nothing is left, or until told to stop."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)  # type: ignore[union-attr]
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._model.close)
                await make_ready(self._experiment.scorer, self._experiment.trials[0], stack)
                await self._all()
        except asyncio.CancelledError:
            return Leaving.TOLD, "", self._runner.outcome
        outcome = self._runner.outcome
        stopped = outcome.hopeless or outcome.stopped
        return (Leaving.LIMIT, stopped, outcome) if stopped else (Leaving.DONE, "", outcome)

    async def _all(self) -> None:
        """Fresh units by all hands; between them, one at a time, those whose worker died: they may kill
        again, and would take the units of other hands with them."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._experiment.workers):
                        group.create_task(self._hand())
            except* (NeedlemapError, OSError) as errors:
                raise errors.exceptions[0] from None
            claim = None if self._over else self._take(suspect=True)
            if claim is None:
                return
            await self._unit(claim)

    async def _hand(self) -> None:
        last: int | None = None
        while not self._over and (claim := self._take(last)) is not None:
            await self._unit(claim)
            last = claim.unit

    @property
    def _over(self) -> bool:
        return bool(self._runner.outcome.stopped or self._runner.outcome.hopeless)

    def _take(self, last: int | None = None, *, suspect: bool = False) -> Claim | None:
        """Claim a unit; None when there is none to claim."""
        while True:
            standing = self._claims.standing()
            if suspect:
                unit = min(standing.suspect, default=None)
            else:
                unit = next_unit(self._work.units, standing.fresh, standing.held, last, self._worker.pid)
            if unit is None:
                return None
            self._look()
            claim = self._claims.take(
                unit, standing.claims[unit] + 1, self._worker.name, len(self._left(unit))
            )
            if claim is not None:
                return claim

    async def _unit(self, claim: Claim) -> None:
        """Ask what is left of a unit, by one request at a time."""
        ending = Ending.RETURNED
        try:
            mode, side = self._experiment.settings.mode, self._experiment.traits.side
            walk = marked(self._experiment, self._left(claim.unit))
            lanes = cut(walk, mode, 1, side)
            await self._runner.run((promised(walk, mode, lanes, side), lanes))
            ending = Ending.RETURNED if self._over else Ending.DONE
        finally:
            self._claims.end(claim, ending)

    def _left(self, unit: int) -> list[Trial]:
        return [trial for trial in self._units[unit] if trial.key not in self._scored]

    def _glance(self) -> None:
        """See what the others have done, before each request; now and then where that takes long."""
        if self._looked_s < _DEAR_S or monotonic() - self._looked_at_s > _SELDOM_S:
            self._look()

    def _look(self) -> None:
        """See what the others have done."""
        began_s = monotonic()
        for record in self._tail.new():
            self._budget.add(record)
            if record.scored:
                self._scored.add(record.key)
        self._looked_at_s = monotonic()
        self._looked_s = self._looked_at_s - began_s


def _share(settings: Settings, run: RunFolder) -> Settings:
    """Settings with this worker's part of what a server allows in a minute."""
    launch = read_launch(run.path)
    count = launch.workers if launch else 1
    names = ("requests_per_minute", "tokens_per_minute")
    allowed = {name: value / count for name in names if (value := getattr(settings, name)) is not None}
    return settings.model_copy(update=allowed)


def _watcher(run: RunFolder, experiment: Experiment) -> Watcher:
    """Lines for the log; contexts where they are wanted."""
    lines = Lines(Tally(len(experiment.trials), 0))
    return Together(lines, SavingContexts(run.path)) if experiment.settings.save_contexts else lines


if __name__ == "__main__":
    Job(sys.argv[1], sys.argv[2])()
