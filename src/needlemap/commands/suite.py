"""Suites on the command line: run, plan, prompts and report of several families at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from needlemap.commands.plan import Terms, caching_note, judge_notes, summary, table_lines, yardstick
from needlemap.commands.prompts import prompt_line
from needlemap.commands.report import show_families
from needlemap.commands.run import announce, fresh, interrupted, notes, show_usage, verdict, view_of
from needlemap.commands.settle import tell_notes
from needlemap.commands.termination import terminable
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import refuse_link
from needlemap.models.base import Model
from needlemap.plan.order import ordered
from needlemap.plan.summary import Summary
from needlemap.reports.live import Together
from needlemap.runs.ahead import Ahead, look_ahead
from needlemap.runs.contexts import SavingContexts
from needlemap.runs.families import Families, make_suite, spent_in
from needlemap.runs.runner import Outcome, Watcher
from needlemap.runs.session import Session
from needlemap.runs.suite_session import ask_families
from needlemap.settings.prices import price_source
from needlemap.settings.settings import Settings
from needlemap.suites import Suite, load_suite
from needlemap.text.printable import show, show_data
from needlemap.trials.build import Experiment, prepare

_SUMMED = (
    *("cells", "prompts", "asked", "computed", "cached", "cut_loss"),
    *("usd_plain", "usd_cached", "usd_judge", "flops", "seconds", "held_tokens"),
)
OVER = (2, 3)  # exit codes after which the other families are not asked


def run_suite(name: str, out: Path | None, flags: Mapping[str, Any], live: bool) -> int:
    """Run or resume a suite's families, one after the other, from one budget; the exit code."""
    suite = load_suite(name)
    settled = suite.settle(flags)
    first = next(iter(settled.values()))
    refuse_for_suite(suite, first, live)
    path = out or fresh(first, f"suite-{suite.name}")
    folder = begun(suite, settled, path)
    code = _asked(folder, settled, first)
    end_suite(folder, first)
    return code


def refuse_for_suite(suite: Suite, settings: Settings, live: bool) -> None:
    """Raises SettingsError for what only one run can do."""
    if live:
        family, own = next(iter(suite.families.items()))
        alone = own.get("preset") or f"--task {settings.task}"
        raise SettingsError(
            f"--live shows one run, and suite '{suite.name}' is several. Leave it out, and whenever you want "
            f"to see how far they are: needlemap report FOLDER -o report.html. Or ask one family alone, as "
            f"{family}: needlemap run {alone} --live"
        )
    if not settings.save:
        raise SettingsError("--no-save keeps no run folders, and a suite's report is made of them.")


def begun(suite: Suite, settled: Mapping[str, Settings], path: Path) -> Families:
    """The suite's folder, when nothing is known to be wrong with any family. Says what will be asked.

    Raises NeedlemapError.
    """
    ahead = [_ahead(family, settings, path) for family, settings in settled.items()]
    folder = make_suite(path, suite)
    if not next(iter(settled.values())).quiet:
        show(_announcement(suite, ahead), file=sys.stderr, flush=True)
    return folder


def _ahead(family: str, settings: Settings, path: Path) -> Ahead:
    try:
        return look_ahead(settings, path / family)
    except NeedlemapError as error:
        raise NeedlemapError(f"Family '{family}': {error}") from None


def _announcement(suite: Suite, ahead: Sequence[Ahead]) -> str:
    """What is known before prompts are built: how many trials, and how many of them are scored."""
    trials, scored = (_sum([getattr(each, name) for each in ahead]) for name in ("trials", "scored"))
    counted = f", {trials:,} trials" if trials is not None else ""
    done = f", {scored:,} already scored" if scored else ""
    return f"suite {suite.name}: {len(ahead)} families{counted}{done}"


def end_suite(folder: Families, settings: Settings) -> None:
    """Print a suite's table and where it is kept."""
    show_families(folder)
    if not settings.quiet:
        report = f"needlemap report {folder.path} -o report.html"
        spent = spent_in(settings, map(folder.folder, folder.names)).told()
        show(f"\n{spent}\nsuite: {folder.path}\nreport: {report}", file=sys.stderr)


def _asked(folder: Families, settled: Mapping[str, Settings], settings: Settings) -> int:
    """Ask what is left of all families; the exit code."""
    asking = _Asking(folder.path)
    with terminable() as ending:
        try:
            ending.run(ask_families(folder, settled, asking))
        except KeyboardInterrupt:
            return interrupted(settings, folder.path, ending.code)
    return asking.code


class _Asking:
    """Asks and tells of one family after the other, until one ends as all others would.

    code: the worst exit code. path: the suite's folder.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.code = path, 0
        self._noted = False

    async def ask(self, family: str, session: Session, model: Model) -> bool:
        """Whether to go on with the next family."""
        if not session.experiment.settings.quiet:
            if not self._noted:
                notes(model)
            show(f"\n{family}", file=sys.stderr)
        self._noted = True
        outcome = await ask_session(session, model)
        code = verdict(outcome, session.experiment, self._path)
        self.code = max(self.code, code)
        return code not in OVER

    def unprepared(self, family: str, error: NeedlemapError) -> None:
        """Say so, and let the exit code say that something was not measured."""
        say_unprepared(family, error)
        self.code = max(self.code, 1)


def say_unprepared(family: str, error: NeedlemapError) -> None:
    """What is wrong with a family, which does not stop the others."""
    show(f"\nneedlemap: family '{family}' is left out: {error}", file=sys.stderr, flush=True)


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


def plan_suite(name: str, terms: Terms, as_json: bool, flags: Mapping[str, Any]) -> None:
    """Print what each family, and all of them together, would ask and cost in the run's mode."""
    terms.check()
    suite = load_suite(name)
    settled = suite.settle(flags)
    first = next(iter(settled.values()))
    told: set[str] = set()
    rows = [
        replace(_summary(_prepared(settings, told), terms), mode=family)
        for family, settings in settled.items()
    ]
    whole = _total(rows)
    if as_json:
        families = {row.mode: _plain(row) for row in rows}
        head = {"suite": suite.name, "model": first.model, "mode": first.mode, "prices": price_source(first)}
        notes = [*sorted(told), caching_note(whole, terms), *judge_notes(whole)]
        show(json.dumps(head | {"total": _plain(whole), "families": families, "notes": notes}, indent=1))
        return
    show(f"suite {suite.name} · {first.model} · mode {first.mode}\n")
    show("\n".join(table_lines([*rows, whole], first="family")), end="\n\n")
    show(caching_note(whole, terms))
    if whole.usd_plain is not None:
        show(f"dollars: at most, every answer using its whole budget; prices: {price_source(first)}")
    show("".join(f"{note}\n" for note in judge_notes(whole)), end="")


def _summary(experiment: Experiment, terms: Terms) -> Summary:
    return summary(experiment, terms, yardstick(experiment, terms))


def _prepared(settings: Settings, told: set[str]) -> Experiment:
    """A family's trials, with a word on what the families before did not tell."""
    experiment = prepare(settings)
    tell_notes(experiment, told)
    return experiment


def _plain(row: Summary) -> dict[str, Any]:
    named = {name: value for name, value in asdict(row).items() if name != "mode"}
    return named | {"factor": row.factor, "gain": row.gain}


def _total(rows: Sequence[Summary]) -> Summary:
    """All families, one after the other, each with all lanes."""
    sums = {name: _sum([getattr(row, name) for row in rows]) for name in _SUMMED}
    computed = [row.computed / max(1, row.lanes) for row in rows]
    idle = sum(row.idle * each for row, each in zip(rows, computed, strict=True)) / max(1.0, sum(computed))
    lanes = max(row.lanes for row in rows)
    found = sum(row.any_order * row.asked for row in rows) / max(1, sums["asked"])
    return replace(rows[0], mode="total", lanes=lanes, idle=idle, any_order=found, **sums)


def _sum(values: Sequence[Any]) -> Any:
    """A sum; None where any is unknown."""
    return None if None in values else sum(values)


def prompts_suite(name: str, out: Path | None, flags: Mapping[str, Any]) -> None:
    """Write the prompts of all families, each line with its family."""
    settled = load_suite(name).settle(flags)
    if out is None:
        _write(show_data, settled)
        return
    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        count = _write(file.write, settled)
    show(f"{count:,} prompts of {len(settled)} families: {out}", file=sys.stderr)


def _write(write: Callable[[str], object], settled: Mapping[str, Settings]) -> int:
    count, told = 0, set[str]()
    for family, settings in settled.items():
        for trial in ordered(_prepared(settings, told).trials, settings.mode):
            write(json.dumps({"family": family, **prompt_line(trial)}, ensure_ascii=False) + "\n")
            count += 1
    return count
