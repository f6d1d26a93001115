"""`needlemap run suite:NAME --workers`, `--slurm`: workers for one family after the other; one budget."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from needlemap.commands.fleet import rehearse, script, start
from needlemap.commands.look_after import Part
from needlemap.commands.run import fresh, interrupted
from needlemap.commands.suite import OVER, begun, end_suite, refuse_for_suite, say_unprepared
from needlemap.commands.termination import INTERRUPTED, TERMINATED
from needlemap.errors import NeedlemapError
from needlemap.runs.families import Families, budget_beside
from needlemap.runs.fleet import Fleet
from needlemap.runs.presence import began_s
from needlemap.runs.session import Session
from needlemap.runs.work import next_folder
from needlemap.settings.settings import Settings
from needlemap.suites import load_suite
from needlemap.text.printable import show
from needlemap.trials.build import prepare

_ENDING = (*OVER, INTERRUPTED, TERMINATED)  # exit codes after which no further family is asked


def fleet_suite(name: str, out: Path | None, flags: Mapping[str, Any], live: bool, fleet: Fleet) -> int:
    """Run or resume a suite's families by workers; the exit code."""
    suite = load_suite(name)
    settled = suite.settle(flags)
    first = next(iter(settled.values()))
    refuse_for_suite(suite, first, live)
    path = out or fresh(first, f"suite-{suite.name}")
    if fleet.dry_run:
        family, *others = settled
        session = Session.open(prepare(settled[family]), path / family)
        rehearse(session, Part(path))
        show(script(fleet, path / family, session))
        show(f"So much for {family}; then, each in its own folder: {', '.join(others)}", file=sys.stderr)
        return 0
    folder = begun(suite, settled, path)
    try:
        code = _one_by_one(folder, settled, fleet)
    except KeyboardInterrupt:  # between two families
        code = interrupted(first, path, INTERRUPTED)
    end_suite(folder, first)
    return code


def _one_by_one(folder: Families, settled: Mapping[str, Settings], fleet: Fleet) -> int:
    """The worst exit code of the families."""
    worst, part = 0, Part(folder.path, folder.names)
    for family, settings in settled.items():
        code, took_s = _family(folder, family, settings, fleet, part)
        worst, part = max(worst, code), replace(part, ran_s=part.ran_s + took_s)
        if code in _ENDING:
            break
    return worst


def _family(folder: Families, family: str, settings: Settings, fleet: Fleet, part: Part) -> tuple[int, float]:
    """The exit code of a family, and how long its workers were at it: from when the first began, as waiting
    in a queue does not count."""
    run = folder.path / family
    try:
        session = Session.open(prepare(settings), run)
    except NeedlemapError as error:
        say_unprepared(family, error)
        return 1, 0.0
    if not session.wanted:
        return 0, 0.0
    if not settings.quiet:
        show(f"\n{family}", file=sys.stderr)
    budget = budget_beside(settings, folder.beside(family), monotonic() - part.ran_s)
    launched = next_folder(run)
    code = start(replace(session, budget=budget), fleet, False, part)
    return code, monotonic() - began_s(launched) if launched.is_dir() else 0.0
