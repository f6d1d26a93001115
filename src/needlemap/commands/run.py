"""`needlemap run`: ask, score, draw, and say how it went."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from needlemap.commands.settle import notes_on, settle
from needlemap.commands.termination import Ending, terminable
from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.models.base import Model
from needlemap.plan.order import by_length
from needlemap.plan.summary import judged_usd
from needlemap.reports.closing import ended_lines
from needlemap.reports.live import Lines, LiveMap, Silent, Tally, Together, View
from needlemap.reports.terminal import plain_summary, terminal_map
from needlemap.reports.usage import judge_lines, usage_lines
from needlemap.runs.begun import is_replaced, is_unanswered
from needlemap.runs.budget import Budget, Reserved
from needlemap.runs.canary import begins_twice
from needlemap.runs.contexts import SavingContexts
from needlemap.runs.loaded import load_map, map_of
from needlemap.runs.record import Record
from needlemap.runs.runner import Outcome, Watcher
from needlemap.runs.session import Session, about, make_model
from needlemap.runs.store import RunFolder
from needlemap.scorers.base import rule_of
from needlemap.settings.prices import price_source
from needlemap.settings.settings import Settings
from needlemap.text.printable import counted, show
from needlemap.trials.build import Experiment, prepare


def run_command(
    preset: str | None, out: Path | None, flags: Mapping[str, Any], live: bool = False, trusted: bool = False
) -> int:
    """Run or resume, with a page if `live`; returns the exit code."""
    settings = settle(preset, flags, trusted)
    if settings.save:
        return _run(settings, out or fresh(settings), live)
    if settings.save_contexts:
        raise SettingsError("--save-contexts writes into the run folder, and --no-save keeps none. Give one.")
    with tempfile.TemporaryDirectory() as folder:
        return _run(settings, Path(folder) / "run", live)


def _run(settings: Settings, path: Path, live: bool) -> int:
    session = Session.open(prepare(settings), path)
    model = make_model(settings) if session.wanted and session.asks else None
    if not settings.quiet:
        announce(session)
        notes(model)
    if not session.wanted:
        session.relabel()
    with page_of(session, live) as page:
        outcome = Outcome()
        if session.wanted:
            with terminable() as ending:
                try:
                    outcome = _asked(session, model, page, ending)
                except KeyboardInterrupt:
                    if sys.stdout.isatty() and session.folder.exists:  # the map that filled in is gone
                        Console().print(terminal_map(load_map(session.folder)))
                    return interrupted(settings, path, ending.code)
        if outcome.scored or session.done or not outcome.over:
            show_result(load_map(session.folder), settings, path)
            if not settings.quiet:
                show_usage(session)
        return verdict(outcome, session.experiment, path)


def page_of(session: Session, live: bool) -> View:
    """The page that shows the run, or nothing where it was not wanted or nothing is left to ask."""
    if not live:
        return Silent()
    if not session.todo:
        make = f"needlemap report {session.folder.path} -o report.html"
        show(f"live: nothing is left to ask, so no page is served. To make one: {make}", file=sys.stderr)
        return Silent()
    from needlemap.reports.page.live import LivePage  # late: a run without it needs no server

    return LivePage(session)


def _asked(session: Session, model: Model | None, page: Watcher, ending: Ending) -> Outcome:
    """Ask what is left; the terminal shows it, and so does the page."""
    with view_of(session) as view:
        watchers: list[Watcher] = [view, page]
        if session.experiment.settings.save_contexts:
            watchers.append(SavingContexts(session.folder.path))
        return ending.run(session.run(model, Together(*watchers)))


def interrupted(settings: Settings, path: Path, code: int) -> int:
    """What is said of a run that was interrupted; the exit code."""
    kept = f"What was scored is kept; to go on: the same command with -o {path}" if settings.save else ""
    show(f"needlemap: interrupted. {kept}".rstrip(), file=sys.stderr)
    return code


def fresh(settings: Settings, what: str | None = None) -> Path:
    """A folder that no run has used: runs/MODEL-TASK-TIME, or with another name for what is asked."""
    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in settings.model)
    path = Path("runs") / f"{name}-{what or settings.task}-{datetime.now():%Y%m%d-%H%M%S}"
    while path.exists():
        path = path.with_name(f"{path.name}-again")
    return path


def announce(session: Session, *, by_workers: bool = False) -> None:
    """What is about to be asked, and what the settings silently would not say."""
    experiment = session.experiment
    grid, settings = experiment.grid, experiment.settings
    axes = counted(len(grid.lengths), "length"), counted(len(grid.depths), "depth"), str(settings.repeats)
    size = "" if experiment.ready else f"{' x '.join(axes)} = "
    trials = size + counted(len(experiment.trials), "trial")
    lines = [
        f"{settings.model} · {experiment.task.name} · {trials} · "
        f"{experiment.tokens_asked:,} prompt tokens ({experiment.tokenizer.name})"
    ]
    if experiment.tokens_fed is not None:
        lines[0] += f", {experiment.tokens_fed:,} of the model's own"
    lines += [f"note: {note}" for note in notes_on(experiment)]
    left = len(session.unanswered)
    kept = len(session.todo) - left
    lines += [f"{session.done} already scored, {left} to ask"] if session.done or kept else []
    lines += [f"{kept} answers are kept and scored anew: {scorer_label(experiment)}"] if kept else []
    for what, count in zip(("lengths", "depths"), grid.duplicates, strict=True):
        lines += [f"note: {what} hold {counted(count, 'value')} twice (rounded): asked once"] if count else []
    if any(trial.haystack_repeated for trial in experiment.trials):
        lines.append("warning: the haystack is shorter than the longest prompt and is repeated")
    collided = sorted({word for trial in experiment.trials for word in trial.collisions})
    lines += [f"warning: the haystack already holds {', '.join(map(repr, collided))}"] if collided else []
    given = experiment.given_away
    lines += [f"warning: the question gives its answer away: {given[0]}"] if given else []
    if experiment.traits.render is not None and begins_twice(experiment.trials[0].prompt):
        lines.append("warning: prompts begin with the same token twice: does the template spell it?")
    if not session.done and is_replaced(session.folder, experiment):
        lines.append(f"note: nothing was answered in the run that {session.folder.path} held: it is replaced")
    lines += _same(experiment)
    missed = sum(trial.prompt.off_by != 0 for trial in experiment.trials)
    lines += [f"warning: {missed} prompts miss their length by a token or two (recorded)"] if missed else []
    lines += _most(session, by_workers) if session.todo else []
    show("\n".join(lines), file=sys.stderr, flush=True)


def _most(session: Session, by_workers: bool) -> list[str]:
    """What asking will cost at most, and whether a limit may cut it short; nothing where neither a server nor
    a limit is there."""
    experiment, budget = session.experiment, session.spent()
    settings, most = experiment.settings, session.most(session.unanswered)
    judge = judged_usd(experiment, session.todo)
    limited = settings.limit_usd is not None or settings.limit_tokens is not None
    if not (limited or experiment.traits.remote or judge != 0):
        return []
    lines = [f"at most {most.tokens:,} tokens, every answer using its whole budget"]
    if budget.prices.usd(1, 0, 1) is None:
        lines[0] += "; no price is known"
    elif most.usd:
        lines[0] += f"; ${most.usd:.4f} ({price_source(settings)})"
    if judge != 0:
        lines[0] += f"; judge: {'no price is known' if judge is None else f'${judge:.4f} more'}"
    if limited and budget.cuts(replace(most, usd=most.usd + (judge or 0.0))):
        sure = _sure(session, budget)
        order = "Workers ask in the order of the plan" if by_workers else "Short lengths are asked first"
        lines.append(
            f"note: a limit may cut this short ({budget.state()} used): {sure} of "
            f"{counted(len(session.todo), 'trial')} fit for certain. {order}"
        )
    return lines


def _sure(session: Session, budget: Budget) -> int:
    """How many of the trials fit into what is left, all answers using their whole budget; shortest first."""
    judge = judged_usd(session.experiment, session.todo[:1]) or 0.0
    total, sure = Reserved(0, 0.0), 0
    for trial in chain.from_iterable(by_length(session.todo)):
        most = session.most([trial])
        total = Reserved(total.tokens + most.tokens, total.usd + most.usd + judge)
        if budget.cuts(total):
            break
        sure += 1
    return sure


def scorer_label(experiment: Experiment) -> str:
    """An experiment's scorer, and the number of its rule."""
    return f"scorer {experiment.scorer.name}, rule {rule_of(experiment.scorer)}"


def _same(experiment: Experiment) -> list[str]:
    """How many prompts are asked twice: sentences are longer than the steps in depth, or repeats alike."""
    if experiment.ready:
        return []
    trials, first = experiment.trials, experiment.settings.first_repeat
    places = {
        (
            experiment.haystacks[trial.repeat - first],
            trial.cell.length_tokens,
            trial.prompt.positions,
            trial.prompt.haystack_tokens,
            tuple(needle.text for needle in trial.item.needles),
        )
        for trial in trials
    }
    same = len(trials) - len(places)
    if not same or experiment.settings.mode == "cold":
        return []
    return [f"note: {same} of {len(trials)} prompts equal one of another depth or repeat; n counts them once"]


def notes(model: Model | None) -> None:
    """What a back end has to say about its model before it is asked."""
    for note in getattr(model, "notes", ()):
        show(f"note: {note}", file=sys.stderr, flush=True)


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


def verdict(outcome: Outcome, experiment: Experiment, path: Path) -> int:
    """What stopped the run or failed in it, in one line each; the exit code."""
    warn(outcome)
    stopped = outcome.canary or outcome.hopeless
    kept = stopped and experiment.settings.save and _is_answered(outcome, path)
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
        show(f"needlemap: not measured: {kinds}. {again}".rstrip(), file=sys.stderr)
        return 1
    return 0
