"""`needlemap run --workers`, `--slurm`, `--attach`: workers elsewhere ask, this command looks after them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.commands.run import (
    announce,
    fresh,
    interrupted,
    page_of,
    show_result,
    show_usage,
    verdict,
    view_of,
    warn,
)
from needlemap.commands.settle import settle
from needlemap.commands.termination import INTERRUPTED, terminable
from needlemap.configure import checked
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models.base import Model
from needlemap.reports.live import Silent, View
from needlemap.runs.budget import Budget
from needlemap.runs.claims import MOST_DEATHS
from needlemap.runs.closed_book import kept
from needlemap.runs.fleet import Fleet
from needlemap.runs.launch import Launch
from needlemap.runs.launch_file import LaunchFile, read_launch, refuse_launched
from needlemap.runs.launcher import Launcher
from needlemap.runs.locks import lock_folder, lock_launch
from needlemap.runs.presence import began_s, refuse_elsewhere
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session, about, load_map, make_model
from needlemap.runs.store import RUN_FILE, RunFolder, write_json
from needlemap.runs.work import lay_out, load_work, next_folder, work_folder
from needlemap.settings import Settings
from needlemap.suites import suite_name
from needlemap.trials import prepare

_LOOK_S = 0.3  # between looks at the records
_SECOND_S = 5.0  # for the second Ctrl-C
_CANCELLED_S = 60.0  # for jobs that were cancelled to be gone


def fleet_command(
    preset: str | None, out: Path | None, flags: Mapping[str, Any], live: bool, fleet: Fleet
) -> int:
    """Start workers for a run and look after them, or after those of an earlier command; the exit code."""
    if fleet.attach is not None:
        if preset or flags or out:
            raise SettingsError(
                "--attach takes no preset, no settings and no -o: what was started goes on as it is."
            )
        return _attach(fleet.attach, live)
    if (suite := suite_name(preset)) is not None:
        raise SettingsError(
            f"Workers share one run, and suite '{suite}' is several, asked one after the other in this "
            f"process. Leave them out, or give each family's preset its workers (needlemap list presets)."
        )
    settings = settle(preset, flags)
    if not settings.save:
        raise SettingsError("--no-save keeps no run folder, and workers share nothing else. Leave it out.")
    path = out or fresh(settings)
    if fleet.dry_run:
        kind, options = fleet.kind()
        print(make_launcher(kind, next_folder(path), options).script(fleet.most))
        return 0
    return _start(settings, path, fleet, live)


def make_launcher(kind: str, folder: Path, options: Mapping[str, Any]) -> Launcher:
    """The launcher of a kind. Raises NeedlemapError when it cannot work here."""
    if kind == "slurm":
        from needlemap.runs.launch_slurm import Slurm

        return Slurm(folder, **options)
    from needlemap.runs.launch_processes import Processes

    return Processes(folder, **options)


def _start(settings: Settings, path: Path, fleet: Fleet, live: bool) -> int:
    session = Session.open(prepare(settings), path)
    if not settings.quiet:
        announce(session)
    if not session.wanted:
        return _finished(session, Outcome())
    model = _model(session)
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(lock_launch(path))
        refuse_launched(path)
        kind, options = fleet.kind()
        launcher = make_launcher(kind, next_folder(path), options)
        with terminable() as ending:
            try:
                first = asyncio.run(session.run(model, Silent(), whole=False)) if model else Outcome()
            except KeyboardInterrupt:
                return interrupted(settings, path, ending.code)
        session = Session.open(session.experiment, path)
        if first.over or not session.todo:
            return _finished(session, first)
        warn(first)
        with lock_folder(path):  # nobody else is there
            write_json(path / RUN_FILE, about(session.experiment, session.folder))
            work = lay_out(path, session.experiment, session.todo, fleet.most)
        stack.enter_context(lock_folder(path, shared=True))
        for note in launcher.notes():
            print(f"note: {note}", file=sys.stderr, flush=True)
        workers = min(fleet.most, len(work.units))
        retry = 2 if fleet.retry is None else fleet.retry
        file = LaunchFile(int(work.folder.name), kind, options, workers, retry, os.getcwd())
        launch = Launch(path, file, work, launcher, session.experiment)
        launch.submit(workers)
        return _look_after(launch, launcher, session, live)


def _model(session: Session) -> Model | None:
    """The model, to ask here what goes before all else, so that what would stop every worker stops it now.

    Only models elsewhere: those that live in a process may need a machine that this one is not. Raises
    SettingsError, for a missing key or an unknown price too.
    """
    settings = session.experiment.settings
    if session.experiment.traits.remote:
        return make_model(settings)
    if settings.closed_book:
        raise SettingsError(
            "Workers ask nothing of --closed-book, and this model lives in them. Leave it out; when they are "
            f"done: the same command with --closed-book, without workers, and -o {session.folder.path}"
        )
    return None


def _attach(path: Path, live: bool) -> int:
    file = read_launch(path)
    if file is None or file.ended is not None:
        ended = f" It ended at {file.ended}." if file else ""
        raise NeedlemapError(
            f"No workers were left to work on '{path}'.{ended} To ask what is left: "
            f"the command that started it, with -o {path}"
        )
    path = path.absolute()
    try:
        os.chdir(file.cwd)  # where paths in the settings start
    except OSError as error:
        raise NeedlemapError(f"The folder that the run was started in cannot be used: {error}") from None
    settings = checked(RunFolder(path).about()["settings"], str(path / RUN_FILE))
    session = Session.open(prepare(settings), path)
    if not settings.quiet:
        announce(session)
    with lock_launch(path), lock_folder(path, shared=True):
        work = load_work(work_folder(path, file.number))
        if file.kind == "processes":
            refuse_elsewhere(work.folder)
        launcher = make_launcher(file.kind, work.folder, file.options)
        launch = Launch(path, file, work, launcher, session.experiment)
        return _look_after(launch, launcher, session, live)


def _look_after(launch: Launch, launcher: Launcher, session: Session, live: bool) -> int:
    """Watch until the workers are done; the exit code. Ctrl-C ends workers of this machine, and asks again
    before it cancels jobs of a cluster."""
    path, settings = session.folder.path, session.experiment.settings
    session = replace(session, budget=Budget.of(settings, began_s(work_folder(path, launch.file.number))))
    with page_of(session, live) as page, _ending_too(launcher) as code:
        try:
            for record in (*launch.before, *kept(session.folder)):
                session.budget.add(record)
            with view_of(session) as view:
                _watch(launch, (_Spending(session.budget), view, page))
        except KeyboardInterrupt:
            return _interrupted(launch, launcher, path, code())
        launch.close()
        outcome = _outcome(launch)
        if outcome.stopped:
            write_json(path / RUN_FILE, session.folder.about() | {"stopped": outcome.stopped})
        return _finished(session, outcome, launch)


class _Spending(Silent):
    """Counts what workers spend, for the limits that are shown."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def recorded(self, record: Record) -> None:
        """Count one record."""
        self._budget.add(record)


@contextmanager
def _ending_too(launcher: Launcher) -> Iterator[Callable[[], int]]:
    """SIGTERM ends workers of this machine as Ctrl-C does; jobs of a cluster go on without this command."""
    if launcher.lasting:
        yield lambda: INTERRUPTED
        return
    with terminable() as ending:
        yield lambda: ending.code


def _watch(launch: Launch, views: tuple[View, ...], until: float = float("inf")) -> bool:
    """Until nothing is left to wait for; False when time ran out (monotonic seconds)."""
    began, due = time.monotonic(), 0.0
    while (now := time.monotonic()) < until:
        for record in launch.records():
            for view in views:
                view.recorded(record)
        if now >= due:
            overview = launch.step()
            due = now + min(10.0, max(1.0, (now - began) / 30))  # a scheduler is not to be asked all the time
            for view in views:
                for event in overview.events:
                    view.said(event)
                view.told(overview.workers, overview.progress)
            if overview.over:
                return True
        time.sleep(_LOOK_S)
    return False


def _interrupted(launch: Launch, launcher: Launcher, path: Path, code: int) -> int:
    if launcher.lasting:
        _say(
            f"the jobs go on. To look after them again: needlemap run --attach {path}\n"
            f"Ctrl-C again within {_SECOND_S:g} s cancels them."
        )
        try:
            time.sleep(_SECOND_S)
            return code
        except KeyboardInterrupt:
            pass
    launch.cancel()
    gone = _watch(launch, (), time.monotonic() + _CANCELLED_S)
    if gone:
        launch.close()
    kept = f"What was scored is kept; to go on: the same command with -o {path}"
    still = "" if gone else f" Some did not end yet: needlemap run --attach {path}"
    _say(f"interrupted, workers ended. {kept}.{still}")
    return code


def _outcome(launch: Launch) -> Outcome:
    """How the workers' asking ended, as that of one run. Failures are those that stand in the records."""
    total = Outcome()
    for worker in launch.leavings():
        each = worker.outcome or Outcome()
        total.stopped = total.stopped or each.stopped
        total.hopeless = total.hopeless or each.hopeless
        if each.refused_from is not None:
            total.refused_from = min(total.refused_from or each.refused_from, each.refused_from)
            total.refusal = each.refusal
    total.failures = launch.failures()
    return total


def _finished(session: Session, outcome: Outcome, launch: Launch | None = None) -> int:
    """The map, what went wrong, the exit code."""
    settings, path = session.experiment.settings, session.folder.path
    if launch is not None:
        for why in launch.errors():
            _say(f"a worker ended: {why}")
    if RunFolder(path).exists:
        show_result(load_map(path), settings, path)
        if not settings.quiet:
            show_usage(session)
    code = verdict(outcome, session.experiment, path)
    if launch is None:
        return code
    unasked = launch.unasked()
    for unit, left, logs in launch.aside():
        cells = ", ".join(sorted({f"{trial.cell.length_tokens:,}" for trial in left}))
        _say(
            f"set aside: unit of {unit.stop - unit.start} trials, {len(left)} of them not asked "
            f"(lengths {cells}): it killed its worker {MOST_DEATHS} times. Logs: {', '.join(logs)}"
        )
        code = code or 1
    if unasked and not outcome.stopped and not outcome.hopeless:
        _say(
            f"{unasked} trials were not asked: workers kept ending. To go on: the same command with -o {path}"
        )
        code = code or (2 if launch.errors() else 1)
    return code


def _say(text: str) -> None:
    print(f"needlemap: {text}", file=sys.stderr, flush=True)
