"""Looks after the workers of a run until they are done: shows them, ends them, and tells how it went."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from needlemap.commands.run import show_result, show_usage, verdict, view_of
from needlemap.commands.termination import INTERRUPTED, terminable
from needlemap.reports.live import Silent, View
from needlemap.runs.budget import Budget
from needlemap.runs.claims import MOST_DEATHS
from needlemap.runs.closed_book import every_record
from needlemap.runs.families import Families
from needlemap.runs.launch import Launch
from needlemap.runs.launch_budget import launched_budget
from needlemap.runs.launcher import Launcher
from needlemap.runs.loaded import load_map
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome
from needlemap.runs.session import Session
from needlemap.runs.store import RUN_FILE, RunFolder, write_json
from needlemap.runs.work import work_folder
from needlemap.text.printable import show

_LOOK_S = 0.3  # between looks at the records
_SECOND_S = 5.0  # for the second Ctrl-C
_CANCELLED_S = 60.0  # for jobs that were cancelled to be gone


@dataclass(frozen=True, slots=True)
class Part:
    """What a run is part of. whole: the folder that goes on with it by -o: its own, or its suite's.
    families: names of the suite's, () for a run alone. ran_s: how long those before it were asked."""

    whole: Path
    families: tuple[str, ...] = ()
    ran_s: float = 0.0


def _page_of(session: Session, live: bool) -> View:
    """The page that shows the run, or nothing where it was not wanted."""
    from needlemap.reports.page.live import LivePage

    return LivePage(Families(session.folder.path), "", session) if live else Silent()


def look_after(launch: Launch, launcher: Launcher, session: Session, live: bool, part: Part) -> int:
    """Watch until the workers are done; the exit code. Ctrl-C ends workers of this machine, and asks again
    before it cancels jobs of a cluster."""
    path, settings = session.folder.path, session.experiment.settings
    spent = launched_budget(path, work_folder(path, launch.file.number), settings)
    session = replace(session, budget=spent)
    with _page_of(session, live) as page, _ending_too(launcher) as code:
        try:
            for record in (*launch.before, *every_record(session.folder)):
                session.budget.add(record)
            with view_of(session) as view:
                _watch(launch, (_Spending(session.budget), view, page))
        except KeyboardInterrupt:
            return _interrupted(launch, launcher, path, code(), part)
        launch.close()
        outcome = _outcome(launch)
        if outcome.stopped:
            write_json(path / RUN_FILE, session.folder.about() | {"stopped": outcome.stopped})
        return finished(session, outcome, part, launch)


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
                view.told(f"{overview.workers} · {overview.progress}")
            if overview.over:
                return True
        time.sleep(_LOOK_S)
    return False


def _interrupted(launch: Launch, launcher: Launcher, path: Path, code: int, part: Part) -> int:
    if launcher.lasting:
        say(
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
    kept = f"What was scored is kept; to go on: the same command with -o {part.whole}"
    still = "" if gone else f" Some did not end yet: needlemap run --attach {path}"
    say(f"interrupted, workers ended. {kept}.{still}")
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


def finished(session: Session, outcome: Outcome, part: Part, launch: Launch | None = None) -> int:
    """The map of a run alone, what went wrong, the exit code."""
    settings, path = session.experiment.settings, session.folder.path
    if launch is not None:
        for why in launch.errors():
            say(f"a worker ended: {why}")
    if RunFolder(path).exists:
        if not part.families:
            show_result(load_map(path), settings, path)
        if not settings.quiet:
            show_usage(session)
    code = verdict(outcome, session.experiment, Families(part.whole), "")
    if launch is None:
        return code
    unasked = launch.unasked()
    for unit, left, logs in launch.aside():
        cells = ", ".join(sorted({f"{trial.cell.length_tokens:,}" for trial in left}))
        say(
            f"set aside: unit of {unit.stop - unit.start} trials, {len(left)} of them not asked "
            f"(lengths {cells}): it killed its worker {MOST_DEATHS} times. Logs: {', '.join(logs)}"
        )
        code = code or 1
    if unasked and not outcome.stopped and not outcome.hopeless:
        say(
            f"{unasked} trials were not asked: workers kept ending. To go on: the same command with -o "
            f"{part.whole}"
        )
        code = code or (2 if launch.errors() else 1)
    return code


def say(text: str) -> None:
    """A line of what went wrong, or of what to type."""
    show(f"needlemap: {text}", file=sys.stderr, flush=True)
