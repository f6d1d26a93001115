"""`needlemap run --difficulty auto`: find where a model errs, and measure it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from needlemap.asking import Outcome
from needlemap.asking.campaign import Campaign
from needlemap.asking.difficulty import (
    AUTO,
    Dialled,
    DialObserver,
    StepsOfDials,
    TriedStep,
    dial_of,
)
from needlemap.asking.session import Session
from needlemap.commands.announce import (
    interrupted,
    notes,
    show_json,
    tell_rules,
    terminable,
    verdict,
)
from needlemap.commands.arguments import ReplicaFlags, RunFlags
from needlemap.commands.run import Terminal, model_of, show_result, show_usage
from needlemap.errors import SettingsError
from needlemap.files import is_run_folder
from needlemap.records.families import begin_families, fresh_folder
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import load_run
from needlemap.records.lock import hold_folder
from needlemap.reports.difficulty_report import difficulty_report, options_label
from needlemap.reports.labels import score_label
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import show_report
from needlemap.reports.report import Report
from needlemap.reports.suite_report import fields_of
from needlemap.settings.suites import Chosen, only_model
from needlemap.text import tell


def auto_command(named: Mapping[str, Chosen], typed: RunFlags, replicas: ReplicaFlags) -> int:
    """Find a difficulty for each family, freeze it, and measure the model at it; the exit
    code."""
    chosen = only_model(named)
    settings = chosen.first
    shown = replace(typed, out=None, difficulty=None, trust_run=False, json=False)
    if shown != RunFlags() or not settings.save:
        out_of = "--live, --fail-under and --no-save"
        raise SettingsError(f"--difficulty {AUTO} is several runs: leave {out_of} out.")
    if any(each.seek is not None or each.until for each in chosen.families.values()):
        raise SettingsError(f"--difficulty {AUTO} asks whole grids: leave --seek and --until out.")
    tell_rules(chosen)
    path = typed.out or fresh_folder(settings, chosen.suite)
    with hold_folder(path):
        return _ask_at_steps(chosen, path, typed, replicas)


def _ask_at_steps(chosen: Chosen, path: Path, typed: RunFlags, replicas: ReplicaFlags) -> int:
    settings = chosen.first
    wanted = [
        Dialled(name, each, dial_of(each.task), path / name)
        for name, each in chosen.families.items()
    ]
    for each in wanted:
        each.check_folder()
    families = begin_families(path, chosen.suite, tuple(chosen.families), chosen.scores)
    model = model_of(replicas, settings, path)
    if not settings.quiet:
        notes(model)
    observer = _Steps({"": chosen}, path, typed)
    observer.families = families
    with observer, terminable() as ending:
        try:
            found = ending.run(Campaign(models={"": model}).run(StepsOfDials(wanted, observer)))
        except KeyboardInterrupt:
            return interrupted(settings, path, ending.code)
        _show(observer, difficulty_report(found, families), typed.json)
    return observer.code


class _Steps(Terminal, DialObserver):
    """Tells of each step how it went, and shows the maps of the chosen steps alone, at the
    end."""

    def tried(self, family: Dialled, step: TriedStep) -> None:
        """Say what the step came to."""
        options = options_label(step.options)
        tell(f"step {step.number} of {len(family.dial)}: {options}: {score_label(step.score)}")

    def unmeasured(self, missing: int) -> None:
        """Say so."""
        self.code = self.code or 1
        if missing:
            tell(f"needlemap: {missing} prompts of a pilot were not measured")

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Say what it used, and what stopped it."""
        if not self.settings.quiet:
            show_usage(session, load_run(session.folder))
        self.code = max(self.code, verdict(outcome, session, self._home))

    def whole(self, name: str, session: Session) -> None:
        """Nothing: the end shows it."""


def _show(observer: _Steps, report: Report, as_json: bool) -> None:
    """Show the map or the table, then how the difficulty was found."""
    path = observer.families.path
    if as_json:
        runs = [fields_of(path)] if any(map(is_run_folder, observer.families.folders)) else []
        show_json({"runs": runs, "difficulty": to_json(report), "exit_code": observer.code})
        return
    if observer.families.is_plain and RunFolder(path).exists:
        show_result(observer.settings, load_run(path))
    observer.end()
    show_report(report)
