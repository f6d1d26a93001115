"""`needlemap run`: ask, score, draw, and say how it went."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from needlemap.asking import Outcome
from needlemap.asking.campaign import spent_in
from needlemap.asking.run import (
    FamiliesToAsk,
    ModelsInTurn,
    look_ahead,
    open_family,
    try_servers,
)
from needlemap.asking.session import Session, make_model
from needlemap.asking.until import Goal
from needlemap.commands.announce import (
    INTERRUPTED,
    announce,
    code_of,
    ending_code,
    families_line,
    interrupted,
    next_line,
    show_json,
    tell_model_notes,
    tell_rules,
    terminable,
)
from needlemap.commands.arguments import RunFlags
from needlemap.commands.report import show_families
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder
from needlemap.models import Model
from needlemap.records.families import Families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.lock import hold_folder
from needlemap.reports.goals import check_threshold, threshold_report, until_report
from needlemap.reports.live import LiveMap, MapView, ShowingObserver
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.junit import write_junit
from needlemap.reports.renderers.text import show_report, to_text
from needlemap.reports.report import Report
from needlemap.reports.run_notes import ended_lines, judge_lines, usage_lines
from needlemap.reports.run_report import map_report
from needlemap.reports.seek_report import asked_line, length_line
from needlemap.reports.suite_report import fields_of, models_report
from needlemap.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.stats.seek import sought_in
from needlemap.stats.verdicts import (
    NO_RESULT,
    WRONG_SETTINGS,
    combined_code,
    exit_code,
    most_serious,
)
from needlemap.sync import run_coroutine
from needlemap.text import show, tell


class Copies(Protocol):
    """Flags that another package adds to `run`, which say where copies of the model are."""

    @property
    def wanted(self) -> bool:
        """Return True if one of these flags was typed."""

    @property
    def dry_run(self) -> bool:
        """Return True to print what would start the copies, and start nothing."""

    @property
    def most(self) -> int:
        """Return the largest number of copies at a time."""

    def model(self, settings: Settings, run: Path) -> Model:
        """Return the model whose copies answer. run: the folder where they keep their logs."""

    def script(self, run: Path, most: int) -> str:
        """Return what would start them, for so many prompts."""


def run_command(each: Mapping[str, Chosen], typed: RunFlags, added: Sequence[Copies] = ()) -> int:
    """Run or resume the families of each model. Returns the exit code.

    each: by the name of its folder, '' of the only one.
    """
    copies = next((flags for flags in added if flags.wanted), None)
    dry_run = copies is not None and copies.dry_run
    first = next(iter(each.values()))
    tell_rules(first)
    _check(typed, each)
    with ExitStack() as stack:
        out = typed.out
        if not first.first.save:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        path = out or fresh_folder(first.first, first.suite, len(each))
        if not dry_run:
            stack.enter_context(hold_folder(path))
        command = _Command(each, path, typed, copies)
        if copies is not None and dry_run:
            return command.finish(command.rehearse(copies))
        return command.finish(command.ask())


def _check(typed: RunFlags, each: Mapping[str, Chosen]) -> None:
    """Raises SettingsError for what does not go together."""
    first = next(iter(each.values())).first
    judges = typed.fail_under is not None and check_threshold(typed.fail_under) > 0
    if judges and first.seek is not None:
        raise SettingsError(
            "--fail-under judges a mean, and --seek asks too unevenly for one. Give one."
        )
    if judges and first.until:
        raise SettingsError("--fail-under and --until ask for two verdicts. Give one.")
    if first.seek is not None and len(each) > 1:
        raise SettingsError("--seek is for one model at a time. Give one --model.")
    given = {
        "--junit": typed.junit is not None,
        "--on-undecided": typed.on_undecided != "fail",
        "--exit-zero": typed.exit_zero,
    }
    for flag in (
        flag for flag, is_given in given.items() if is_given and not judges and not first.until
    ):
        raise SettingsError(f"{flag} is of a verdict. Ask for one: --fail-under or --until.")


@dataclass(frozen=True, slots=True)
class _Command:
    """A typed command: the families of each model, the folder of all, and how they are shown
    and answered."""

    each: Mapping[str, Chosen]
    path: Path
    typed: RunFlags
    copies: Copies | None

    @property
    def settings(self) -> Settings:
        """The first model's, with what all share."""
        return next(iter(self.each.values())).first

    def rehearse(self, copies: Copies) -> dict[Path, int]:
        """Show what would start the copies, and ask nothing; the exit code of each model."""
        codes = dict[str, int]()
        for name, chosen in self.each.items():
            codes[name] = 0
            prompts = _rehearsed(chosen, self.path / name, copies.most)
            show(copies.script(self.path / name, max(1, prompts)))
        return self._end_each(codes)

    def ask(self) -> dict[Path, int]:
        """Ask all models; the exit code of each that was begun."""
        make = {name: partial(model_of, self.copies, run=self.path / name) for name in self.each}
        observer = Terminal(self.each, self.path, self.typed)
        models = ModelsInTurn(self.each, self.path, observer, make)
        run_coroutine(try_servers(self.each))
        with terminable() as ending:
            try:
                ending.run(models.run())
            except KeyboardInterrupt:
                observer.interrupted()
                observer.codes[observer.model] = interrupted(self.settings, self.path, ending.code)
        return self._end_each(observer.codes)

    def _end_each(self, by_name: Mapping[str, int]) -> dict[Path, int]:
        """Show several models in one table, and where they are kept; the exit codes by
        folder."""
        codes = {self.path / name: code for name, code in by_name.items()}
        if "" in self.each:
            return codes
        if not self.typed.json:
            show("")
            show_report(models_report(list(filter(is_run_folder, codes))))
        if self.settings.save and not self.settings.quiet:
            page = f"needlemap report {self.path} -o report.html"
            tell(f"\nall: {self.path}\nreport: {page}")
        return codes

    def finish(self, codes: Mapping[Path, int]) -> int:
        """Print the document and the verdicts, where they are wanted; the exit code of all runs
        together. A verdict stands for its run, whatever was not measured and whichever limit
        stopped it."""
        judged = {path: self._judged(path, code) for path, code in codes.items()}
        reports = {path: found for path, found in judged.items() if found is not None}
        code = combined_code(
            code_of(reports[path], self.typed) if path in reports else code
            for path, code in codes.items()
        )
        if self.typed.json:
            verdicts = {path: {"verdict": to_json(each)} for path, each in reports.items()}
            runs = [
                {**fields_of(path), **verdicts.get(path, {})}
                for path in filter(is_run_folder, codes)
            ]
            found = most_serious(each.verdict for each in reports.values() if each.verdict)
            result = {"result": found[0].plain("run")} if found else {}
            show_json({**result, "runs": runs, "exit_code": code})
        if self.typed.junit is not None:
            write_junit(self.typed.junit, list(reports.values()), self.typed.on_undecided)
        for path, report in reports.items() if not self.typed.json else ():
            show(to_text(report) if len(codes) == 1 else f"{path.name}: {to_text(report)}", end="")
        return code

    def _judged(self, path: Path, code: int) -> Report | None:
        """The report of the verdict that was asked for, if any; none where settings are wrong,
        and of what was cut."""
        if code in (WRONG_SETTINGS, *INTERRUPTED) or not is_run_folder(path):
            return None
        name = path.name
        if self.settings.until:
            goal = Goal.of(self.settings.until, self.settings.scope)
            first = load_run(goal.path)
            return until_report(first, load_run(path), goal.margin, goal.scope, name)
        if self.typed.fail_under is None:
            return None
        return threshold_report(path, self.typed.fail_under, name)


def model_of(copies: Copies | None, settings: Settings, run: Path) -> Model:
    """Return the model that the settings name, here or as copies. run: where copies keep their
    logs."""
    return make_model(settings) if copies is None else copies.model(settings, run)


def _rehearsed(chosen: Chosen, path: Path, most: int) -> int:
    """Say what the run would, and raise what it would; how many trials are left, of several
    families at most at a time."""
    if chosen.suite:
        ahead = [look_ahead(settings, path / name) for name, settings in chosen.families.items()]
        return max(
            (most if each.trials is None else each.trials - (each.scored or 0)) for each in ahead
        )
    session = open_family(chosen.first, path).session
    announce(session)
    return len(session.todo)


class Terminal(ShowingObserver):
    """Tells on the terminal how the asking goes. model: the one that is asked. code: the worst
    exit code of its families so far; codes: those of the models that were asked."""

    def __init__(self, each: Mapping[str, Chosen], home: Path, typed: RunFlags) -> None:
        """home: the folder that was typed."""
        super().__init__(Families(home, "", ("",)))
        self._each, self._home = each, home
        self.settings = next(iter(each.values())).first
        self.model, self.code, self.codes = "", 0, dict[str, int]()
        self._noted = False
        self._maps, self._anywhere = not typed.json, typed.map

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """Print which of several models begins, and how many families it has."""
        super().begins_model(name, asking)
        chosen = self._each[name]
        self.model, self.settings, self.code, self._noted = name, chosen.first, 0, False
        if self.settings.quiet:
            return
        if name:
            at = list(self._each).index(name) + 1
            tell(f"\nmodel {at} of {len(self._each)}: {self.settings.model}")
        if chosen.suite:
            tell(families_line(chosen.suite, asking))

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """Show what it came to."""
        self.end()
        self.codes[name] = self.code

    def leaves_model(self, name: str, error: NeedlemapError) -> None:
        """Print the error of one of several models; the others are still asked. Raises the
        error of a single one."""
        if not name:
            super().leaves_model(name, error)
        tell(f"needlemap: {self._each[name].first.model}: {error}")
        limited = isinstance(error, LimitReached)
        self.codes[name] = exit_code(NO_RESULT) if limited else WRONG_SETTINGS

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Print the model and the size of its run."""
        if self.settings.quiet:
            return
        if name:
            tell(f"\n{name}")
        announce(session)
        if not self._noted:
            tell_model_notes(model)
        self._noted = True

    def map_view(self, session: Session) -> type[MapView] | None:
        """The map that fills in, or lines."""
        return LiveMap if sys.stderr.isatty() and session.experiment.settings.seek is None else None

    def goes_on(self, name: str, session: Session) -> None:
        """Print the result so far and the next step."""
        run = load_run(session.folder.path)
        found = sought_in(run.about, run.records)
        if found is not None and not self.settings.quiet:
            tell(f"{length_line(found)} · {asked_line(found)} · {next_line(session)}")

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Show what came of it, and what stopped it."""
        if outcome.scored or session.done or not outcome.over:
            self._show(name, session)
        self._adds(ending_code(outcome, session, self._home))

    def whole(self, name: str, session: Session) -> None:
        """Show the result of a single family. Several have their table."""
        if not name and not self.settings.quiet:
            announce(session)
        if not name:
            self._show(name, session)

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Say so, and let the exit code say that something was not measured, or not asked."""
        if isinstance(error, LimitReached):
            rest = f" To go on: the same command with a higher limit and -o {self._home}"
            tell(f"\nneedlemap: family '{name}' was not asked: {error}{rest}")
        else:
            tell(f"\nneedlemap: family '{name}' is left out: {error}")
        self._adds(exit_code(NO_RESULT))

    def _adds(self, code: int) -> None:
        """Let one more family's end count for the exit code."""
        self.code = combined_code([self.code, code])

    def end(self) -> None:
        """Print the table of several families, and its path."""
        if self.families.is_plain:
            return
        if not self.settings.quiet:
            path, names = self.families.path, self.families.names
            kept = f"\nsuite: {path}\nreport: needlemap report {path} -o report.html"
            spent = spent_in(self.settings, map(self.families.folder, names)).spent_text()
            tell(f"\n{spent}{kept if self.settings.save else ''}\n")
        if self._maps:
            show_families(self.families)

    def interrupted(self) -> None:
        """Show what there is: of one family on a terminal, where the map that filled in is
        gone."""
        if not self.families.is_plain:
            self.end()
        elif self._maps and (folder := RunFolder(self.families.path)).exists:
            show_report(map_report(load_run(folder), anywhere=self._anywhere))

    def _show(self, name: str, session: Session) -> None:
        shown = not name and self._maps
        if self.settings.quiet and not shown:
            return
        run = load_run(session.folder, texts=False)
        if shown:
            show_result(session.experiment.settings, run, anywhere=self._anywhere)
        if not self.settings.quiet:
            show_usage(session, run)


def show_result(settings: Settings, run: Loaded, *, anywhere: bool = False) -> None:
    """The map, or without a terminal its lines, or what a run that seeks knows; and where it
    is kept. anywhere: the map in any case."""
    show_report(map_report(run, anywhere=anywhere))
    if settings.save and not settings.quiet and run.folder is not None:
        path = run.folder.path
        page, figure = (
            f"needlemap report {path} -o report.html",
            f"needlemap report {path} -o map.png",
        )
        tell(f"\nrun: {path}\npage: {page}\nfigure: {figure}")


def show_usage(session: Session, run: Loaded) -> None:
    """What the server counted, where that is worth a word."""
    experiment = session.experiment
    remote, framing = experiment.traits.remote, experiment.settings.framing_tokens
    own = experiment.tokenizer.name.startswith("server:")
    records = session.folder.records(texts=False)
    lines = usage_lines(records, remote=remote, framing_tokens=framing, own=own)
    for line in (*ended_lines(run), *lines, *judge_lines(session.folder.every_record(texts=False))):
        tell(line)
