"""Run `needlemap run`: send prompts, score answers, draw the map, and report the result."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

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
    refuse_verdict_flags,
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
from needlemap.settings import MOST_AT_A_TIME, Settings
from needlemap.settings.suites import Chosen
from needlemap.stats.seek import result_of_run
from needlemap.stats.verdicts import (
    NO_RESULT,
    WRONG_SETTINGS,
    combined_code,
    exit_code,
    most_serious,
)
from needlemap.sync import run_coroutine
from needlemap.text import show, show_json, tell


class Copies(Protocol):
    """Flags that another package adds to `run`, which set where copies of the model are."""

    @property
    def wanted(self) -> bool:
        """Return True if one of these flags was typed."""

    @property
    def dry_run(self) -> bool:
        """Return True to print what would start the copies, and start nothing."""

    def model(self, settings: Settings, run: Path) -> Model:
        """Return the model whose copies answer. run: the folder where they keep their logs."""

    def script(self, run: Path, most: int) -> str:
        """Return the script that would start the copies. most: how many prompts there are."""


def run_command(
    chosen_by_model: Mapping[str, Chosen], typed: RunFlags, added: Sequence[Copies] = ()
) -> int:
    """Run or resume the families of each model, and return the exit code.

    chosen_by_model: by the name of the model's folder, '' for the only one. added: the flags of
    other packages.
    """
    copies = next((flags for flags in added if flags.wanted), None)
    is_dry_run = copies is not None and copies.dry_run
    first_chosen = next(iter(chosen_by_model.values()))
    tell_rules(first_chosen)
    _check(typed, chosen_by_model)
    with ExitStack() as stack:
        path = typed.out
        if not first_chosen.first.save:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        if path is None:
            path = fresh_folder(first_chosen.first, first_chosen.suite, models=len(chosen_by_model))
        if not is_dry_run:
            stack.enter_context(hold_folder(path))

        command = _Command(chosen_by_model, path, typed=typed, copies=copies)
        if copies is not None and is_dry_run:
            return command.finish(command.rehearse(copies))
        return command.finish(command.ask())


def _check(typed: RunFlags, chosen_by_model: Mapping[str, Chosen]) -> None:
    """Raise SettingsError for flags that do not fit together."""
    first = next(iter(chosen_by_model.values())).first
    judges = typed.fail_under is not None and check_threshold(typed.fail_under) > 0
    if judges and first.seek is not None:
        raise SettingsError(
            "--fail-under judges a mean, and --seek asks too unevenly for one. Give one."
        )
    if judges and first.until:
        raise SettingsError("--fail-under and --until ask for two verdicts. Give one.")
    if not judges and not first.until:
        refuse_verdict_flags(typed, "--fail-under or --until.")


@dataclass(frozen=True, slots=True)
class _Command:
    """A typed command.

    Attributes:
        chosen_by_model: The families of each model, by the name of its folder.
        path: The folder of all models.
        typed: The command's flags.
        copies: The flags that set where copies of the model are; None if it runs here.
    """

    chosen_by_model: Mapping[str, Chosen]
    path: Path
    typed: RunFlags
    copies: Copies | None

    @property
    def settings(self) -> Settings:
        """Return the first model's settings, for what all models share."""
        return next(iter(self.chosen_by_model.values())).first

    def rehearse(self, copies: Copies) -> dict[Path, int]:
        """Show what would start the copies, send nothing, and return each model's exit code."""
        codes = dict[str, int]()
        for name, chosen in self.chosen_by_model.items():
            codes[name] = 0
            prompts = _rehearse_model(chosen, self.path / name)
            show(copies.script(self.path / name, max(1, prompts)))
        return self._end_models(codes)

    def ask(self) -> dict[Path, int]:
        """Run all models, and return the exit code of each that was started."""
        make = {
            name: partial(model_of, self.copies, run=self.path / name)
            for name in self.chosen_by_model
        }
        observer = Terminal(self.chosen_by_model, self.path, typed=self.typed)
        models = ModelsInTurn(self.chosen_by_model, self.path, observer=observer, make=make)
        run_coroutine(try_servers(self.chosen_by_model))
        with terminable() as ending:
            try:
                ending.run(models.run())
            except KeyboardInterrupt:
                observer.interrupted()
                code = interrupted(self.settings, self.path, code=ending.code)
                observer.codes[observer.model] = code
        return self._end_models(observer.codes)

    def _end_models(self, codes_by_name: Mapping[str, int]) -> dict[Path, int]:
        """Show several models in one table, and return the exit codes by folder."""
        codes = {self.path / name: code for name, code in codes_by_name.items()}
        if "" in self.chosen_by_model:
            return codes

        if not self.typed.json:
            show("")
            show_report(models_report([path for path in codes if is_run_folder(path)]))
        if self.settings.save and not self.settings.quiet:
            page = f"needlemap report {self.path} -o report.html"
            tell(f"\nall: {self.path}\nreport: {page}")
        return codes

    def finish(self, codes: Mapping[Path, int]) -> int:
        """Print the verdicts or the JSON document, and return the exit code of all runs together.

        A verdict decides the code of its run, even if a limit stopped the run or trials are
        missing.
        """
        reports = dict[Path, Report]()
        final_codes = list[int]()
        for path, code in codes.items():
            report = self._verdict_report(path, code)
            if report is None:
                final_codes.append(code)
            else:
                reports[path] = report
                final_codes.append(code_of(report, self.typed))
        final_code = combined_code(final_codes)

        if self.typed.json:
            self._show_json(codes, reports, final_code)
        if self.typed.junit is not None:
            write_junit(self.typed.junit, list(reports.values()), self.typed.on_undecided)
        if not self.typed.json:
            for path, report in reports.items():
                text = to_text(report)
                if len(codes) > 1:
                    text = f"{path.name}: {text}"
                show(text, end="")
        return final_code

    def _show_json(
        self, codes: Mapping[Path, int], reports: Mapping[Path, Report], code: int
    ) -> None:
        """Print all runs, with their verdicts and the most serious verdict, as one document."""
        runs = list[dict[str, Any]]()
        for path in codes:
            if is_run_folder(path):
                fields = dict(fields_of(path))
                if path in reports:
                    fields["verdict"] = to_json(reports[path])
                runs.append(fields)
        document = dict[str, Any]()
        verdicts = most_serious(report.verdict for report in reports.values() if report.verdict)
        if verdicts:
            document["result"] = verdicts[0].plain("run")
        show_json({**document, "runs": runs, "exit_code": code})

    def _verdict_report(self, path: Path, code: int) -> Report | None:
        """Return the report of the verdict that a flag or a setting asks for.

        Return None if there is no such flag, if settings are wrong, or after an interruption.
        """
        if code in (WRONG_SETTINGS, *INTERRUPTED) or not is_run_folder(path):
            return None
        if self.settings.until:
            goal = Goal.of(self.settings.until, self.settings.scope)
            return until_report(
                load_run(goal.path),
                load_run(path),
                margin=goal.margin,
                wanted=goal.scope,
                name=path.name,
            )
        if self.typed.fail_under is None:
            return None
        return threshold_report(path, self.typed.fail_under, name=path.name)


def model_of(copies: Copies | None, settings: Settings, run: Path) -> Model:
    """Return the model that the settings name, here or as copies.

    run: the folder where copies keep their logs.
    """
    if copies is None:
        return make_model(settings)
    return copies.model(settings, run)


def _rehearse_model(chosen: Chosen, path: Path) -> int:
    """Print and raise what a run would, and return how many trials are left to send.

    For several families this is the largest number of one family. One whose number is not known
    before its prompts are built counts as enough for any number of copies.
    """
    if not chosen.suite:
        session = open_family(chosen.first, path).session
        announce(session)
        return len(session.todo)

    counts = list[int]()
    for name, settings in chosen.families.items():
        ahead = look_ahead(settings, path / name)
        if ahead.trials is None:
            counts.append(MOST_AT_A_TIME)
        else:
            counts.append(ahead.trials - (ahead.scored or 0))
    return max(counts)


class Terminal(ShowingObserver):
    """Print on the terminal how a run proceeds.

    Attributes:
        model: The name of the model that is running; '' for the only one.
        settings: That model's settings, for what its families share.
        code: The worst exit code of its families so far.
        codes: The exit codes of the models that ended, by name.
    """

    def __init__(self, chosen_by_model: Mapping[str, Chosen], home: Path, typed: RunFlags) -> None:
        """Show the runs below `home`, the folder that was typed."""
        super().__init__(Families(home, "", names=("",)))
        self._chosen_by_model = chosen_by_model
        self._home = home
        self.settings = next(iter(chosen_by_model.values())).first
        self.model = ""
        self.code = 0
        self.codes = dict[str, int]()
        self._noted = False
        self._shows_maps = not typed.json
        self._anywhere = typed.map

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """Print which of several models starts, and how many families it has."""
        super().begins_model(name, asking)
        chosen = self._chosen_by_model[name]
        self.model = name
        self.settings = chosen.first
        self.code = 0
        self._noted = False
        if self.settings.quiet:
            return
        if name:
            number = list(self._chosen_by_model).index(name) + 1
            tell(f"\nmodel {number} of {len(self._chosen_by_model)}: {self.settings.model}")
        if chosen.suite:
            tell(families_line(chosen.suite, asking))

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """Print the table of a model's families, and keep its exit code."""
        self.end()
        self.codes[name] = self.code

    def leaves_model(self, name: str, error: NeedlemapError) -> None:
        """Print the error of one of several models, so that the others still run.

        If there is only one model, raise its error.
        """
        if not name:
            super().leaves_model(name, error)
        tell(f"needlemap: {self._chosen_by_model[name].first.model}: {error}")
        if isinstance(error, LimitReached):
            self.codes[name] = exit_code(NO_RESULT)
        else:
            self.codes[name] = WRONG_SETTINGS

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
        """Return the map that fills in, or None to print lines."""
        if sys.stderr.isatty() and session.experiment.settings.seek is None:
            return LiveMap
        return None

    def goes_on(self, name: str, session: Session) -> None:
        """Print the result so far and the next step."""
        run = load_run(session.folder.path)
        result = result_of_run(run.about, run.records)
        if result is not None and not self.settings.quiet:
            tell(f"{length_line(result)} · {asked_line(result)} · {next_line(session)}")

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Show a family's result, and what stopped it."""
        if outcome.scored or session.done or not outcome.over:
            self._show(name, session)
        self._add_code(ending_code(outcome, session, path=self._home))

    def complete(self, name: str, session: Session) -> None:
        """Show the result of a single family. Several families have their table."""
        if name:
            return
        if not self.settings.quiet:
            announce(session)
        self._show(name, session)

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Print why a family is left out, and count it for the exit code."""
        if isinstance(error, LimitReached):
            advice = f"To go on: the same command with a higher limit and -o {self._home}"
            tell(f"\nneedlemap: family '{name}' was not asked: {error} {advice}")
        else:
            tell(f"\nneedlemap: family '{name}' is left out: {error}")
        self._add_code(exit_code(NO_RESULT))

    def _add_code(self, code: int) -> None:
        """Count one more family's end for the exit code."""
        self.code = combined_code([self.code, code])

    def end(self) -> None:
        """Print the table of several families, and its path."""
        if self.families.is_plain:
            return
        if not self.settings.quiet:
            folders = [self.families.folder(name) for name in self.families.names]
            lines = f"\n{spent_in(self.settings, folders).spent_text()}"
            if self.settings.save:
                path = self.families.path
                lines = f"{lines}\nsuite: {path}\nreport: needlemap report {path} -o report.html"
            tell(f"{lines}\n")
        if self._shows_maps:
            show_families(self.families)

    def interrupted(self) -> None:
        """Show what was measured before an interruption.

        For one family on a terminal this is the map again, because the map that filled in is gone.
        """
        if not self.families.is_plain:
            self.end()
            return
        folder = RunFolder(self.families.path)
        if self._shows_maps and folder.exists:
            show_report(map_report(load_run(folder), anywhere=self._anywhere))

    def _show(self, name: str, session: Session) -> None:
        shows_map = not name and self._shows_maps
        if self.settings.quiet and not shows_map:
            return
        run = load_run(session.folder, texts=False)
        if shows_map:
            show_result(session.experiment.settings, run, anywhere=self._anywhere)
        if not self.settings.quiet:
            show_usage(session, run)


def show_result(settings: Settings, run: Loaded, *, anywhere: bool = False) -> None:
    """Print a run's map or the length that it seeks, and where the run is kept.

    anywhere: print the map without a terminal too, where lines are printed otherwise.
    """
    show_report(map_report(run, anywhere=anywhere))
    if settings.save and not settings.quiet and run.folder is not None:
        path = run.folder.path
        page = f"needlemap report {path} -o report.html"
        figure = f"needlemap report {path} -o map.png"
        tell(f"\nrun: {path}\npage: {page}\nfigure: {figure}")


def show_usage(session: Session, run: Loaded) -> None:
    """Print how answers ended, and what a server and a judge counted, if it is worth a line."""
    experiment = session.experiment
    lines = [
        *ended_lines(run),
        *usage_lines(
            session.folder.records(texts=False),
            remote=experiment.traits.remote,
            framing_tokens=experiment.settings.framing_tokens,
            own=experiment.tokenizer.name.startswith("server:"),
        ),
        *judge_lines(session.folder.every_record(texts=False)),
    ]
    for line in lines:
        tell(line)
