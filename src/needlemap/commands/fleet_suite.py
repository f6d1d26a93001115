"""`needlemap run suite:NAME --workers`, `--slurm`: workers for one family after the other; one budget."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

from needlemap.commands.announce import families_line
from needlemap.commands.fleet import rehearse, script, start
from needlemap.commands.look_after import Part
from needlemap.commands.run import Terminal, interrupted
from needlemap.commands.termination import INTERRUPTED, TERMINATED
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.runs.asking import Asking
from needlemap.runs.families import Families, budget_beside, fresh_folder
from needlemap.runs.fleet import Fleet
from needlemap.runs.presence import began_s
from needlemap.runs.session import Session
from needlemap.runs.work import next_folder
from needlemap.settings.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.text.printable import show
from needlemap.trials.build import prepare

_ENDING = (2, 3, INTERRUPTED, TERMINATED)  # exit codes after which no further family is asked


def fleet_suite(chosen: Chosen, out: Path | None, live: bool, fleet: Fleet) -> int:
    """Run or resume a suite's families by workers; the exit code."""
    first, settled = chosen.first, chosen.families
    if live:
        raise SettingsError("--live with workers shows a run with one family. Leave it out.")
    if not first.save:
        raise SettingsError("--no-save keeps no run folders, and workers share nothing else. Leave it out.")
    path = out or fresh_folder(first, chosen.suite)
    if fleet.dry_run:
        family, *others = settled
        session = Session.open(prepare(settled[family]), path / family)
        rehearse(session, Part(path))
        show(script(fleet, path / family, session))
        show(f"So much for {family}; then, each in its own folder: {', '.join(others)}", file=sys.stderr)
        return 0
    asking = Asking.of(chosen, path)
    if not first.quiet:
        show(families_line(chosen.suite, asking), file=sys.stderr, flush=True)
    face = Terminal(asking.families, first)
    try:
        code = _one_by_one(asking.families, settled, fleet, face)
    except KeyboardInterrupt:  # between two families
        code = interrupted(first, path, INTERRUPTED)
    face.end()
    return code


def _one_by_one(folder: Families, settled: Mapping[str, Settings], fleet: Fleet, face: Terminal) -> int:
    """The worst exit code of the families."""
    worst, part = 0, Part(folder.path, folder.names)
    for family, settings in settled.items():
        code, took_s = _family(folder, family, settings, fleet, part, face)
        worst, part = max(worst, code), replace(part, ran_s=part.ran_s + took_s)
        if code in _ENDING:
            break
    return worst


def _family(
    folder: Families, family: str, settings: Settings, fleet: Fleet, part: Part, face: Terminal
) -> tuple[int, float]:
    """The exit code of a family, and how long its workers were at it: from when the first began, as waiting
    in a queue does not count."""
    run = folder.path / family
    try:
        session = Session.open(prepare(settings), run)
    except NeedlemapError as error:
        face.left_out(family, error)
        return 1, 0.0
    if not session.wanted:
        return 0, 0.0
    if not settings.quiet:
        show(f"\n{family}", file=sys.stderr)
    budget = budget_beside(settings, folder.beside(family), monotonic() - part.ran_s)
    launched = next_folder(run)
    code = start(replace(session, budget=budget), fleet, False, part)
    return code, monotonic() - began_s(launched) if launched.is_dir() else 0.0
