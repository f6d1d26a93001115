"""Suites on the command line: run, plan, prompts and report of several families at once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import IO, Any

from needlemap.commands.plan import Terms, summary, table_lines
from needlemap.commands.prompts import prompt_line
from needlemap.commands.run import announce, fresh, notes, show_usage, verdict, view_of
from needlemap.commands.termination import terminable
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.models.base import Model
from needlemap.money import price_source
from needlemap.plan.order import ordered
from needlemap.plan.summary import Summary
from needlemap.reports.live import Together
from needlemap.reports.suite import RULES, Family, suite_lines
from needlemap.runs.contexts import SavingContexts
from needlemap.runs.loaded import load_run
from needlemap.runs.runner import Outcome, Watcher
from needlemap.runs.session import Session, cube_of_run, make_model
from needlemap.runs.store import RUN_FILE
from needlemap.runs.suite_folder import SuiteFolder, budget_beside, is_suite, make_suite, open_suite
from needlemap.settings import Settings
from needlemap.suites import Suite, load_suite
from needlemap.trials import prepare

_SUMMED = (
    *("cells", "prompts", "asked", "computed", "cached", "cut_loss"),
    *("usd_plain", "usd_cached", "flops", "seconds", "held_tokens"),
)
_OVER = (2, 3)  # exit codes after which the other families are not asked


def run_suite(name: str, out: Path | None, flags: Mapping[str, Any], live: bool) -> int:
    """Run or resume a suite's families, one after the other, from one budget; the exit code."""
    suite = load_suite(name)
    settled = suite.settle(flags)
    first = next(iter(settled.values()))
    if live:
        raise SettingsError("--live shows one run, and a suite is several. Leave it out.")
    if not first.save:
        raise SettingsError("--no-save keeps no run folders, and a suite's report is made of them.")
    path = out or fresh(first, f"suite-{suite.name}")
    sessions = {
        family: Session.open(prepare(settings), path / family) for family, settings in settled.items()
    }
    folder = make_suite(path, suite)
    if not first.quiet:
        _announce_all(suite, sessions)
    code = _asked(folder, sessions, first)
    show_suite(folder)
    if not first.quiet:
        print(f"\nsuite: {path}\nreport: needlemap report {path} -o report.html", file=sys.stderr)
    return code


def _announce_all(suite: Suite, sessions: Mapping[str, Session]) -> None:
    experiments = [session.experiment for session in sessions.values()]
    trials = sum(len(experiment.trials) for experiment in experiments)
    tokens = sum(experiment.tokens_asked for experiment in experiments)
    left = sum(len(session.todo) for session in sessions.values())
    done = f", {trials - left:,} already scored" if left < trials else ""
    print(
        f"suite {suite.name}: {len(sessions)} families, {trials:,} trials, {tokens:,} prompt tokens{done}",
        file=sys.stderr,
        flush=True,
    )


def _asked(folder: SuiteFolder, sessions: Mapping[str, Session], settings: Settings) -> int:
    """Ask what is left of all families; the exit code."""
    wanted = {family: session for family, session in sessions.items() if session.wanted}
    if not wanted:
        return 0
    model = make_model(settings)
    if not settings.quiet:
        notes(model)
    with terminable() as ending:
        try:
            return asyncio.run(_families(folder, wanted, model))
        except KeyboardInterrupt:
            print(
                f"needlemap: interrupted. What was scored is kept; to go on: the same command with -o "
                f"{folder.path}",
                file=sys.stderr,
            )
            return ending.code


async def _families(folder: SuiteFolder, sessions: Mapping[str, Session], model: Model) -> int:
    """One family after the other, with one model, until one ends as all others would; the worst exit code."""
    started, codes = monotonic(), [0]
    try:
        for family, session in sessions.items():
            settings = session.experiment.settings
            if not settings.quiet:
                print(f"\n{family}", file=sys.stderr)
            budget = budget_beside(settings, folder.beside(family), started)
            outcome = await ask_session(replace(session, budget=budget), model)
            codes.append(verdict(outcome, session.experiment, folder.path))
            if codes[-1] in _OVER:
                break
    finally:
        await model.close()
    return max(codes)


async def ask_session(session: Session, model: Model) -> Outcome:
    """Announce a run, and ask what is left of it; the model stays open."""
    settings = session.experiment.settings
    if not settings.quiet:
        announce(session)
    with view_of(session) as view:
        watchers: list[Watcher] = [view]
        if settings.save_contexts:
            watchers.append(SavingContexts(session.folder.path))
        outcome = await session.run(model, Together(*watchers), close=False)
    if not settings.quiet:
        show_usage(session)
    return outcome


def show_suite(folder: SuiteFolder, rules: tuple[str, ...] | None = None) -> None:
    """Print a suite's table. rules: of effective length, instead of the usual ones."""
    print("\n".join(suite_lines(folder.suite, measured(folder), rules or RULES)))


def measured(folder: SuiteFolder) -> list[Family]:
    """What each family of a suite's folder came to."""
    found = []
    for name in folder.families:
        if (folder.path / name / RUN_FILE).is_file():
            run = load_run(folder.path / name)
            found.append(Family(name, run.map, cube_of_run(run.about, run.records)))
        else:
            found.append(Family(name, None, None))
    return found


def plan_suite(name: str, terms: Terms, as_json: bool, flags: Mapping[str, Any]) -> None:
    """Print what each family, and all of them together, would ask and cost in the run's mode."""
    terms.check()
    suite = load_suite(name)
    settled = suite.settle(flags)
    first = next(iter(settled.values()))
    rows = [replace(summary(prepare(settings), terms), mode=family) for family, settings in settled.items()]
    whole = _total(rows)
    if as_json:
        families = {row.mode: _plain(row) for row in rows}
        head = {"suite": suite.name, "model": first.model, "mode": first.mode, "prices": price_source(first)}
        print(json.dumps(head | {"total": _plain(whole), "families": families}, indent=1))
        return
    print(f"suite {suite.name} · {first.model} · mode {first.mode}\n")
    print("\n".join(table_lines([*rows, whole], first="family")))
    if whole.usd_plain is not None:
        print(f"\ndollars: at most, every answer using its whole budget; prices: {price_source(first)}")


def _plain(row: Summary) -> dict[str, Any]:
    named = {name: value for name, value in asdict(row).items() if name != "mode"}
    return named | {"factor": row.factor}


def _total(rows: Sequence[Summary]) -> Summary:
    """All families, one after the other, each with all lanes."""
    sums = {name: _sum([getattr(row, name) for row in rows]) for name in _SUMMED}
    computed = [row.computed / max(1, row.lanes) for row in rows]
    idle = sum(row.idle * each for row, each in zip(rows, computed, strict=True)) / max(1.0, sum(computed))
    lanes = max(row.lanes for row in rows)
    return replace(rows[0], mode="total", lanes=lanes, idle=idle, **sums)


def _sum(values: Sequence[Any]) -> Any:
    """A sum; None where any is unknown."""
    return None if None in values else sum(values)


def prompts_suite(name: str, out: Path | None, flags: Mapping[str, Any]) -> None:
    """Write the prompts of all families, each line with its family."""
    settled = load_suite(name).settle(flags)
    if out is None:
        _write(sys.stdout, settled)
        return
    with out.open("w", encoding="utf-8") as file:
        count = _write(file, settled)
    print(f"{count:,} prompts of {len(settled)} families: {out}", file=sys.stderr)


def _write(file: IO[str], settled: Mapping[str, Settings]) -> int:
    count = 0
    for family, settings in settled.items():
        for trial in ordered(prepare(settings).trials, settings.mode):
            file.write(json.dumps({"family": family, **prompt_line(trial)}, ensure_ascii=False) + "\n")
            count += 1
    return count


def of_suites(paths: Sequence[Path]) -> list[Path]:
    """Run folders, with those of its families in the place of a suite's. Raises NeedlemapError for none."""
    found: list[Path] = []
    for path in paths:
        found += open_suite(path).runs if is_suite(path) else [path]
    if paths and not found:
        raise NeedlemapError(
            f"Suite '{paths[0]}' has no run yet. Type: needlemap run suite:NAME -o {paths[0]}"
        )
    return found
