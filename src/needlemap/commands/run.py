"""`needlemap run`: ask, score, draw, and say how it went."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from needlemap.asking.resume import is_unanswered
from needlemap.asking.run import Asking, ask_families, look_ahead, spent_in
from needlemap.asking.runner import Outcome
from needlemap.asking.session import Session, about
from needlemap.asking.until import Goal
from needlemap.commands.announce import announce, families_line, notes, tell_rules
from needlemap.commands.replicas import HERE, MOST, ReplicaFlags
from needlemap.commands.report import show_families
from needlemap.commands.termination import terminable
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.records.families import Families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import load_map, load_run, map_of
from needlemap.records.record import Record
from needlemap.reports.closing import ended_lines, judge_lines, usage_lines
from needlemap.reports.face import ShowingFace
from needlemap.reports.live import Lines, LiveMap, Silent, Tally, View
from needlemap.reports.results import Judged, check_threshold, fields_of, judge, results
from needlemap.reports.sequential import Sequential, judge_runs
from needlemap.reports.terminal import plain_summary, terminal_map
from needlemap.settings.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.text.printable import show, show_data
from needlemap.trials.build import Experiment, prepare


@dataclass(frozen=True, slots=True)
class Showing:
    """What of a run is shown. live: also a page, while it goes on. as_json: one document on standard output
    instead of maps. fail_under: in percent, the mean to judge it by; None for no verdict."""

    live: bool = False
    as_json: bool = False
    fail_under: float | None = None


MAP = Showing()


def run_command(
    chosen: Chosen, out: Path | None, showing: Showing = MAP, replicas: ReplicaFlags = HERE
) -> int:
    """Run or resume; returns the exit code."""
    tell_rules(chosen)
    if showing.fail_under is not None:
        check_threshold(showing.fail_under)
        if chosen.first.until:
            raise SettingsError("--fail-under and --until ask for two verdicts. Give one.")
    if chosen.first.save:
        return _run(chosen, out or fresh_folder(chosen.first, chosen.suite), showing, replicas)
    if chosen.first.save_contexts:
        raise SettingsError("--save-contexts writes into the run folder, and --no-save keeps none. Give one.")
    with tempfile.TemporaryDirectory() as folder:
        return _run(chosen, Path(folder) / "run", showing, replicas)


def _run(chosen: Chosen, path: Path, showing: Showing, replicas: ReplicaFlags) -> int:
    if replicas.dry_run:
        show(replicas.script(path, _rehearsed(chosen, path)))
        return 0
    make = partial(replicas.make, run=path)
    asking = Asking.of(chosen, path, make)
    if chosen.suite and not chosen.first.quiet:
        show(families_line(chosen.suite, asking), file=sys.stderr, flush=True)
    with Terminal(asking.families, chosen.first, showing) as face, terminable() as ending:
        try:
            ending.run(ask_families(asking, face, make))
        except KeyboardInterrupt:
            face.interrupted()
            return _told(path, showing, interrupted(chosen.first, path, ending.code))
        face.end()
        return _told(path, showing, face.code, _judged(path, showing, chosen.first, face.code))


def _judged(path: Path, showing: Showing, settings: Settings, code: int) -> Judged | Sequential | None:
    """The verdict that was asked for, if any; none where settings are wrong."""
    if code == 2 or not is_run_folder(path):
        return None
    if settings.until:
        goal = Goal.of(settings.until)
        return judge_runs([(load_run(goal.path), load_run(path))], goal.margin / 100)
    return None if showing.fail_under is None else judge(path, showing.fail_under)


def _told(path: Path, showing: Showing, code: int, judged: Judged | Sequential | None = None) -> int:
    """Print the document and the verdict, where they are wanted; the exit code. A verdict outranks what was
    not measured and what a limit left out."""
    code = judged.code if judged else code
    if showing.as_json:
        found = results([fields_of(path)] if is_run_folder(path) else []) | {"exit_code": code}
        found |= {"verdict": judged.plain()} if judged else {}
        show_data(f"{json.dumps(found, indent=1, ensure_ascii=False)}\n")
    elif judged:
        show(judged.text)
    return code


def _rehearsed(chosen: Chosen, path: Path) -> int:
    """Say what the run would, and raise what it would; how many trials are left, of several families at most
    at a time."""
    if chosen.suite:
        ahead = [look_ahead(settings, path / name) for name, settings in chosen.families.items()]
        return max((MOST if each.trials is None else each.trials - (each.scored or 0)) for each in ahead)
    session = Session.open(prepare(chosen.first), path)
    announce(session)
    return len(session.todo)


class Terminal(ShowingFace):
    """Tells on the terminal how the asking goes. code: the worst exit code of the families so far."""

    def __init__(self, families: Families, settings: Settings, showing: Showing = MAP) -> None:
        super().__init__(families, showing.live)
        self.settings, self.code, self._noted = settings, 0, False
        self._maps = not showing.as_json

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Say what is asked of which model."""
        if self.settings.quiet:
            return
        if name:
            show(f"\n{name}", file=sys.stderr)
        announce(session)
        if not self._noted:
            notes(model)
        self._noted = True

    def view(self, name: str, session: Session) -> View:
        """The map that fills in, or lines."""
        return view_of(session)

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Show what came of it, and what stopped it."""
        if outcome.scored or session.done or not outcome.over:
            self._show(name, session)
        self.code = max(self.code, verdict(outcome, session.experiment, self.families, name))

    def whole(self, name: str, session: Session) -> None:
        """Of a run with one family show what it has; several have their table."""
        if not name and not self.settings.quiet:
            announce(session)
        if not name:
            self._show(name, session)

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Say so, and let the exit code say that something was not measured."""
        show(f"\nneedlemap: family '{name}' is left out: {error}", file=sys.stderr, flush=True)
        self.code = max(self.code, 1)

    def end(self) -> None:
        """Of several families their table, and where it is kept."""
        self.tell_unserved()
        if self.families.is_plain:
            return
        if self._maps:
            show_families(self.families)
        if self.settings.quiet:
            return
        path, names = self.families.path, self.families.names
        kept = f"\nsuite: {path}\nreport: needlemap report {path} -o report.html"
        spent = spent_in(self.settings, map(self.families.folder, names)).told()
        show(f"\n{spent}{kept if self.settings.save else ''}", file=sys.stderr)

    def interrupted(self) -> None:
        """Show what there is: of one family on a terminal, where the map that filled in is gone."""
        if not self.families.is_plain:
            self.end()
        elif self._maps and sys.stdout.isatty() and RunFolder(self.families.path).exists:
            Console().print(terminal_map(load_map(self.families.path)))

    def _show(self, name: str, session: Session) -> None:
        if not name and self._maps:
            show_result(load_map(session.folder), session.experiment.settings, session.folder.path)
        if not self.settings.quiet:
            show_usage(session)


def interrupted(settings: Settings, path: Path, code: int) -> int:
    """What is said of a run that was interrupted; the exit code."""
    kept = f"What was scored is kept; to go on: the same command with -o {path}" if settings.save else ""
    show(f"needlemap: interrupted. {kept}".rstrip(), file=sys.stderr)
    return code


def view_of(session: Session) -> View:
    settings = session.experiment.settings
    if settings.quiet:
        return Silent()
    tally = Tally(len(session.experiment.trials), session.done, session.budget.state)
    if not sys.stderr.isatty():
        return Lines(tally)
    return LiveMap(tally, list(session.folder.records()), _Drawing(session.experiment, session))


class _Drawing:
    """Makes the map of records so far."""

    def __init__(self, experiment: Experiment, session: Session) -> None:
        self._about = about(experiment, session.folder)

    def __call__(self, records: list[Record]) -> Map:
        return map_of(self._about, records)


def show_result(map: Map, settings: Settings, path: Path) -> None:
    """The map, on a terminal or as lines, and where it is kept."""
    if sys.stdout.isatty():
        Console().print(terminal_map(map))
    else:
        show(plain_summary(map), end="")
    if settings.save and not settings.quiet:
        page, figure = f"needlemap report {path} -o report.html", f"needlemap report {path} -o map.png"
        show(f"\nrun: {path}\npage: {page}\nfigure: {figure}", file=sys.stderr)


def show_usage(session: Session) -> None:
    """What the server counted, where that is worth a word."""
    experiment = session.experiment
    remote, framing = experiment.traits.remote, experiment.settings.framing_tokens
    lines = usage_lines(session.folder.records(), remote=remote, framing_tokens=framing)
    for line in (*ended_lines(session.folder), *lines, *judge_lines(session.folder.every_record())):
        show(line, file=sys.stderr)


def warn(outcome: Outcome) -> None:
    """What the first trial showed that is worth a word."""
    for warning in outcome.warnings:
        show(f"warning: {warning}", file=sys.stderr, flush=True)


def _is_answered(outcome: Outcome, path: Path) -> bool:
    """Whether a folder holds answers, so that a run with other settings cannot have it."""
    folder = RunFolder(path)
    return outcome.scored > 0 or (folder.exists and not is_unanswered(folder))


def verdict(outcome: Outcome, experiment: Experiment, families: Families, name: str) -> int:
    """What stopped a family's asking or failed in it, in one line each; the exit code."""
    warn(outcome)
    path = families.path
    stopped = outcome.canary or outcome.hopeless
    kept = stopped and experiment.settings.save and _is_answered(outcome, families.folder(name))
    if outcome.canary:
        elsewhere = f" Other settings want another folder than {path}: give one with -o." if kept else ""
        show(f"needlemap: stopped before spending more. {outcome.canary}{elsewhere}", file=sys.stderr)
        return 2
    if outcome.hopeless:
        again = f" To go on once it is mended: the same command with -o {path}" if kept else ""
        why = outcome.hopeless if outcome.hopeless.endswith((".", "!", "?")) else f"{outcome.hopeless}."
        show(f"needlemap: stopped, every request would fail: {why}{again}", file=sys.stderr)
        return 2
    if outcome.refused_from:
        fitting = [length for length in experiment.grid.lengths if length < outcome.refused_from]
        advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
        show(
            f"needlemap: the model refused prompts of {outcome.refused_from:,} tokens and more "
            f"({outcome.refusal}). {advice}",
            file=sys.stderr,
        )
        return 2
    if outcome.stopped:
        show(
            f"needlemap: stopped by the budget: {outcome.stopped}. To go on: the same command with a higher "
            f"limit and -o {path}",
            file=sys.stderr,
        )
        return 3
    if outcome.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.failures.items()))
        again = f"To ask them again: the same command with -o {path}" if experiment.settings.save else ""
        for each in outcome.aside:
            show(f"needlemap: set aside: {each}", file=sys.stderr)
        show(f"needlemap: not measured: {kinds}. {again}".rstrip(), file=sys.stderr)
        return 1
    return 0
