"""`needlemap run`: ask, score, draw, and say how it went."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from needlemap.asking import Outcome
from needlemap.asking.run import (
    Asking,
    Share,
    ask_families,
    look_ahead,
    run_coroutine,
    share_out,
    spent_in,
    try_servers,
)
from needlemap.asking.session import Session, open_session
from needlemap.asking.until import Goal
from needlemap.commands.announce import (
    announce,
    families_line,
    interrupted,
    next_line,
    notes,
    tell_rules,
    verdict,
)
from needlemap.commands.replicas import HERE, MOST, ReplicaFlags
from needlemap.commands.report import show_families, show_kept
from needlemap.commands.termination import terminable
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder
from needlemap.maps.seek import sought_in
from needlemap.models import Model
from needlemap.records.families import Families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import load_run
from needlemap.reports.closing import Tally, ended_lines, judge_lines, usage_lines
from needlemap.reports.live import Lines, LiveMap, ShowingFace, View, map_maker
from needlemap.reports.results import Judged, check_threshold, fields_of, judge, results
from needlemap.reports.seek import asked_line, length_line
from needlemap.reports.summary import model_lines
from needlemap.reports.verdict import OF_CODE, Case, Sequential, judge_runs, write_junit
from needlemap.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.text import show, show_data


@dataclass(frozen=True, slots=True)
class Showing:
    """What of a run is shown. live: also a page, while it goes on. as_json: one document on standard output
    instead of maps. fail_under: in percent, the mean to judge it by; None for no verdict. map: the map also
    where there is no terminal. junit: where verdicts go, too. on_undecided: pass or fail."""

    live: bool = False
    as_json: bool = False
    fail_under: float | None = None
    map: bool = False
    junit: Path | None = None
    on_undecided: str = "fail"

    def check(self, each: Mapping[str, Chosen]) -> None:
        """Raises SettingsError for what does not go together."""
        first = next(iter(each.values())).first
        judges = self.fail_under is not None and check_threshold(self.fail_under) > 0
        if self.on_undecided not in ("fail", "pass"):
            raise SettingsError(f"--on-undecided takes fail or pass, got '{self.on_undecided}'.")
        if judges and first.seek is not None:
            raise SettingsError("--fail-under judges a mean, and --seek asks too unevenly for one. Give one.")
        if judges and first.until:
            raise SettingsError("--fail-under and --until ask for two verdicts. Give one.")
        if first.seek is not None and len(each) > 1:
            raise SettingsError("--seek is for one model at a time. Give one --model.")
        typed = {"--junit": self.junit is not None, "--on-undecided": self.on_undecided != "fail"}
        for flag in (flag for flag, given in typed.items() if given and not judges and not first.until):
            raise SettingsError(f"{flag} is of a verdict. Ask for one: --fail-under or --until.")

    def code_of(self, found: Judged | Sequential) -> int:
        """The exit code of a verdict."""
        return 0 if found.code == 4 and self.on_undecided == "pass" else found.code


MAP = Showing()
INTERRUPTED = (130, 143)
_RANKS = (0, 4, 1, 2, 3, *INTERRUPTED)  # exit codes, the worst last


def run_command(
    each: Mapping[str, Chosen], out: Path | None, showing: Showing = MAP, replicas: ReplicaFlags = HERE
) -> int:
    """Run or resume what is asked of each model; returns the exit code.

    each: by the name of its folder, '' of the only one.
    """
    first = next(iter(each.values()))
    tell_rules(first)
    showing.check(each)
    if first.first.save_contexts and not first.first.save:
        raise SettingsError("--save-contexts writes into the run folder, and --no-save keeps none. Give one.")
    with ExitStack() as stack:
        if not first.first.save:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        path = out or fresh_folder(first.first, first.suite, len(each))
        if "" in each:
            return _told({path: _run(first, path, showing, replicas)}, showing, first.first)
        return _told(_run_each(each, path, showing, replicas), showing, first.first)


def _run(
    chosen: Chosen, path: Path, showing: Showing, replicas: ReplicaFlags, share: Share | None = None
) -> int:
    """Ask one model. share: where it is one of several, in a folder of its own."""
    home = path.parent if share else path
    if replicas.dry_run:
        show(replicas.script(path, _rehearsed(chosen, path)))
        return 0
    make = partial(replicas.make, run=path)
    asking = Asking.of(chosen, path, make)
    if chosen.suite and not chosen.first.quiet:
        show(families_line(chosen.suite, asking), file=sys.stderr, flush=True)
    with Terminal(asking.families, chosen.first, showing, home) as face, terminable() as ending:
        try:
            ending.run(ask_families(asking, face, make, share))
        except KeyboardInterrupt:
            face.interrupted()
            return interrupted(chosen.first, home, ending.code)
        face.end()
        return face.code


def _run_each(
    each: Mapping[str, Chosen], path: Path, showing: Showing, replicas: ReplicaFlags
) -> dict[Path, int]:
    """Ask several models one after the other, under one budget; the exit code of each that was begun.

    Those that a share of the budget stopped are asked once more, as long as others leave some of it.
    """
    codes, started_s = dict[str, int](), monotonic()
    shares, left = share_out(each, path, started_s), list(each)
    run_coroutine(try_servers(each.values()))
    while left:
        for name in left:
            codes[name] = _run_one_of(each, name, path, showing, replicas, shares[name])
            if codes[name] in INTERRUPTED:
                return _end_each(each, path, showing, codes)
        cut = [name for name in left if codes[name] == 3]
        left = cut if len(cut) < len(left) else []
        shares = share_out(each, path, started_s) if left else shares
    return _end_each(each, path, showing, codes)


def _run_one_of(
    each: Mapping[str, Chosen],
    name: str,
    path: Path,
    showing: Showing,
    replicas: ReplicaFlags,
    share: Share,
) -> int:
    """Ask one of several models; what is wrong with it does not keep the others from being asked."""
    chosen, at = each[name], list(each).index(name) + 1
    if not chosen.first.quiet:
        show(f"\nmodel {at} of {len(each)}: {chosen.first.model}", file=sys.stderr, flush=True)
    try:
        return _run(chosen, path / name, showing, replicas, share)
    except NeedlemapError as error:
        show(f"needlemap: {chosen.first.model}: {error}", file=sys.stderr, flush=True)
        return 2


def _end_each(
    each: Mapping[str, Chosen], path: Path, showing: Showing, by_name: Mapping[str, int]
) -> dict[Path, int]:
    """Show all models in one table, and where they are kept; the exit codes by folder."""
    codes = {path / name: code for name, code in by_name.items()}
    settings = next(iter(each.values())).first
    if not showing.as_json:
        show("\n".join(["", *model_lines(list(filter(is_run_folder, codes)))]))
    if settings.save and not settings.quiet:
        show(f"\nall: {path}\nreport: needlemap report {path} -o report.html", file=sys.stderr)
    return codes


def _judged(path: Path, showing: Showing, settings: Settings, code: int) -> Judged | Sequential | None:
    """The verdict that was asked for, if any; none where settings are wrong, and of what was interrupted."""
    if code in (2, *INTERRUPTED) or not is_run_folder(path):
        return None
    if settings.until:
        goal = Goal.of(settings.until)
        return judge_runs([(load_run(goal.path), load_run(path))], goal.margin / 100)
    return None if showing.fail_under is None else judge(path, showing.fail_under)


def _told(codes: Mapping[Path, int], showing: Showing, settings: Settings) -> int:
    """Print the document and the verdicts, where they are wanted; the exit code, the worst of all runs'. A
    verdict outranks what was not measured and what a limit left out."""
    judged = {path: _judged(path, showing, settings, code) for path, code in codes.items()}
    known = {path: found for path, found in judged.items() if found is not None}
    ends = {path: showing.code_of(known[path]) if path in known else code for path, code in codes.items()}
    code = max(ends.values(), key=_RANKS.index)
    if showing.as_json:
        verdicts = {path: {"verdict": found.plain()} for path, found in known.items()}
        runs = [{**fields_of(path), **verdicts.get(path, {})} for path in filter(is_run_folder, codes)]
        show_data(f"{json.dumps(results(runs) | {'exit_code': code}, indent=1, ensure_ascii=False)}\n")
    if showing.junit is not None:
        write_junit(showing.junit, "run", [_case(path, found) for path, found in known.items()])
    for path, found in known.items() if not showing.as_json else ():
        show(found.text if len(codes) == 1 else f"{path.name}: {found.text}")
    return code


def _case(path: Path, found: Judged | Sequential) -> Case:
    """A verdict on a run for JUnit."""
    return Case(f"{path.name}: {found.asked}", OF_CODE[found.code], found.text.splitlines()[-1], found.text)


def _rehearsed(chosen: Chosen, path: Path) -> int:
    """Say what the run would, and raise what it would; how many trials are left, of several families at most
    at a time."""
    if chosen.suite:
        ahead = [look_ahead(settings, path / name) for name, settings in chosen.families.items()]
        return max((MOST if each.trials is None else each.trials - (each.scored or 0)) for each in ahead)
    session = open_session(chosen.first, path)
    announce(session)
    return len(session.todo)


class Terminal(ShowingFace):
    """Tells on the terminal how the asking goes. code: the worst exit code of the families so far."""

    def __init__(
        self, families: Families, settings: Settings, showing: Showing = MAP, home: Path | None = None
    ) -> None:
        """home: the folder that was typed, where that is not the families'."""
        super().__init__(families, showing.live)
        self._home = home or families.path
        self.settings, self.code, self._noted = settings, 0, False
        self._maps, self._anywhere = not showing.as_json, showing.map

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

    def goes_on(self, name: str, session: Session) -> None:
        """Say what is known by now, and what is asked next."""
        run = load_run(session.folder.path)
        found = sought_in(run.about, run.records)
        if found is not None and not self.settings.quiet:
            show(f"{length_line(found)} · {asked_line(found)} · {next_line(session)}", file=sys.stderr)

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Show what came of it, and what stopped it."""
        if outcome.scored or session.done or not outcome.over:
            self._show(name, session)
        self.code = max(self.code, verdict(outcome, session, self._home))

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
        elif self._maps and (folder := RunFolder(self.families.path)).exists:
            show_kept(folder, anywhere=self._anywhere)

    def _show(self, name: str, session: Session) -> None:
        if not name and self._maps:
            show_result(session.experiment.settings, session.folder, anywhere=self._anywhere)
        if not self.settings.quiet:
            show_usage(session)


def view_of(session: Session) -> View:
    settings = session.experiment.settings
    if settings.quiet:
        return View()
    tally = Tally(len(session.experiment.trials), session.done, session.budget.state)
    if session.seeker is not None or not sys.stderr.isatty():
        return Lines(tally)
    return LiveMap(tally, list(session.folder.records()), map_maker(session))


def show_result(settings: Settings, folder: RunFolder, *, anywhere: bool = False) -> None:
    """The map, or without a terminal its lines, or what a run that seeks knows; and where it is kept.
    anywhere: the map in any case."""
    show_kept(folder, anywhere=anywhere)
    if settings.save and not settings.quiet:
        path = folder.path
        page, figure = f"needlemap report {path} -o report.html", f"needlemap report {path} -o map.png"
        show(f"\nrun: {path}\npage: {page}\nfigure: {figure}", file=sys.stderr)


def show_usage(session: Session) -> None:
    """What the server counted, where that is worth a word."""
    experiment = session.experiment
    remote, framing = experiment.traits.remote, experiment.settings.framing_tokens
    lines = usage_lines(session.folder.records(), remote=remote, framing_tokens=framing)
    for line in (*ended_lines(session.folder), *lines, *judge_lines(session.folder.every_record())):
        show(line, file=sys.stderr)
