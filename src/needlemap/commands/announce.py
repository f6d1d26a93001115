"""Messages about a run. Before it: its size, its highest cost, and warnings. After it: why it
stopped, which trials failed, and the exit code.

A command ends on SIGTERM as on Ctrl-C: it comes from kill, from a cluster's or a container's
time limit, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol, TypeVar

from needlemap.asking import Outcome
from needlemap.asking.budget import Budget, Reserved
from needlemap.asking.canary import begins_twice, given_to_own
from needlemap.asking.resume import is_replaced, is_unanswered
from needlemap.asking.run import FamiliesToAsk
from needlemap.asking.session import Session
from needlemap.asking.until import PlannedPairs
from needlemap.errors import Failure
from needlemap.models import Model
from needlemap.plan import by_length
from needlemap.plan.estimate import notes_on
from needlemap.plan.summary import judged_usd
from needlemap.records.folder import RunFolder
from needlemap.reports.labels import tokens_label
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.junit import write_junit
from needlemap.reports.renderers.text import show_report
from needlemap.reports.report import Report
from needlemap.scorers import rule_of
from needlemap.settings import Settings
from needlemap.settings.prices import price_source
from needlemap.settings.suites import Chosen
from needlemap.stats.verdicts import NO_RESULT, PASS, WRONG_SETTINGS, Verdict, exit_code
from needlemap.text import counted, show, show_data, tell
from needlemap.trials.build import Experiment

INTERRUPTED = (130, 143)  # SIGINT, SIGTERM: 128 + the number, as a shell has it
T = TypeVar("T")


class Shown(Protocol):
    """The flags of a command that say how its finding is shown."""

    @property
    def json(self) -> bool:
        """Return True to print one JSON document instead of text."""

    @property
    def junit(self) -> Path | None:
        """Return the file for the verdicts as JUnit XML, None for none."""

    @property
    def on_undecided(self) -> Literal["fail", "pass"]:
        """Return how CI counts NOT ENOUGH DATA."""

    @property
    def exit_zero(self) -> bool:
        """Return True to exit with 0 whatever the verdict."""


def tell_rules(chosen: Chosen) -> None:
    """Which rules an older tool's names bring."""
    if chosen.note:
        tell(f"note: {chosen.note}")


def families_line(suite: str, asking: FamiliesToAsk) -> str:
    """Several families before their prompts are built: how many trials, and how many are
    scored."""
    trials, scored = (
        [getattr(each, name) for each in asking.ahead] for name in ("trials", "scored")
    )
    counts = f", {sum(trials):,} trials" if None not in trials else ""
    done = f", {sum(scored):,} already scored" if None not in scored and sum(scored) else ""
    return f"suite {suite}: {len(asking.ahead)} families{counts}{done}"


def tell_notes(experiment: Experiment, told: set[str]) -> None:
    """Print the notes on documents, before prompts are written.

    told: notes that earlier families already printed.
    """
    for note in notes_on(experiment):
        if note not in told and not experiment.settings.quiet:
            tell(f"note: {note}")
        told.add(note)


def next_line(session: Session) -> str:
    """What a run that seeks asks next."""
    asks = Counter(trial.cell.length_tokens for trial in session.todo)
    haystacks = len({trial.repeat for trial in session.todo})
    return (
        f"asking {counted(haystacks, 'haystack')} at {', '.join(map(tokens_label, sorted(asks)))}"
    )


def _announce_seek(session: Session) -> None:
    experiment = session.experiment
    settings, lengths = experiment.settings, experiment.grid.lengths
    lines = [
        f"{settings.model} · {experiment.task.name} · seeking {settings.seek:g} % "
        f"within {settings.within:g} %, {tokens_label(lengths[0])} to {tokens_label(lengths[-1])} "
        f"tokens "
        f"({experiment.tokenizer.name})",
        *(f"note: {note}" for note in notes_on(experiment)),
        *([next_line(session)] if session.todo else ["nothing is left to ask"]),
    ]
    tell("\n".join(lines))


def announce(session: Session) -> None:
    """Print the size of a run and warnings that its settings do not show."""
    experiment = session.experiment
    if experiment.settings.seek is not None:
        _announce_seek(session)
        return
    notes = (f"note: {note}" for note in notes_on(experiment))
    lines = [_asked_line(experiment), *notes, *_begun_lines(session), *_surprises(session)]
    tell("\n".join([*lines, *(_most(session) if session.todo else ())]))


def _asked_line(experiment: Experiment) -> str:
    """The model, the task, how many trials, how many tokens."""
    grid, settings = experiment.grid, experiment.settings
    lengths, depths = len(grid.lengths), len(grid.depths)
    first = sum(not trial.second for trial in experiment.trials)
    trials, twice = counted(first, "trial"), len(experiment.trials) - first
    if not experiment.ready:
        axes = counted(lengths, "length"), counted(depths, "depth"), str(settings.repeats)
        whole = lengths * depths * settings.repeats == first  # else cells share prompts
        trials = f"{' x '.join(axes)} {'=' if whole else 'in'} {trials}"
    again = f", {twice:,} of them asked twice" if twice else ""
    fed = experiment.tokens_fed
    own = "" if fed is None else f", {fed:,} of the model's own"
    return (
        f"{settings.model} · {experiment.task.name} · {trials}{again} · "
        f"{experiment.tokens_asked:,} prompt tokens ({experiment.tokenizer.name}){own}"
    )


def _begun_lines(session: Session) -> Iterator[str]:
    """Until when it is asked, and what of it was asked before."""
    experiment, left = session.experiment, len(session.unanswered)
    settings, kept = experiment.settings, len(session.todo) - left
    if settings.until:
        planned = PlannedPairs.of(experiment)
        yield f"until decided: {planned.goal.label}: {planned.cost(experiment).label}"
    if session.done or kept:
        yield f"{session.done} already scored, {left} to ask"
    if kept:
        scorer = f"scorer {experiment.scorer.name}, rule {rule_of(experiment.scorer)}"
        yield f"{kept} answers are kept and scored anew: {scorer}"


def _surprises(session: Session) -> Iterator[str]:
    """Notes and warnings: what the settings silently would not say."""
    experiment = session.experiment
    trials = experiment.trials
    for what, count in zip(("lengths", "depths"), experiment.grid.duplicates, strict=True):
        if count:
            yield f"note: {what} hold {counted(count, 'value')} twice (rounded): asked once"
    if any(trial.haystack_repeated for trial in trials):
        yield "warning: the haystack is shorter than the longest prompt and is repeated"
    if collided := sorted({word for trial in trials for word in trial.collisions}):
        yield f"warning: the haystack already holds {', '.join(map(repr, collided))}"
    if given := experiment.given_away:
        yield f"warning: the question gives its answer away: {given[0]}"
    if experiment.traits.render is not None and begins_twice(trials[0].prompt):
        yield "warning: prompts begin with the same token twice: does the template spell it?"
    if not session.done and is_replaced(session.folder, experiment):
        path = session.folder.path
        yield f"note: nothing was answered in the run that {path} held: it is replaced"
    if missed := [abs(trial.prompt.off_by) for trial in trials if trial.prompt.off_by]:
        most = counted(max(missed), "token")
        yield f"warning: {len(missed)} prompts miss their length, by {most} at most (recorded)"


def _most(session: Session) -> list[str]:
    """What asking will cost at most, and whether a limit may cut it short; nothing where
    neither a server nor a limit is there."""
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
    if limited and budget.cuts(most + Reserved(0, judge or 0.0)):
        sure = _sure(session, budget)
        lines.append(
            f"note: a limit may cut this short ({budget.state()} used): {sure} of "
            f"{counted(len(session.todo), 'trial')} fit for certain. Short lengths are asked first"
        )
    return lines


def _sure(session: Session, budget: Budget) -> int:
    """How many of the trials fit into what is left, all answers using their whole budget;
    shortest first."""
    judge = Reserved(0, judged_usd(session.experiment, session.todo[:1]) or 0.0)
    total, sure = Reserved(0, 0.0), 0
    for trial in chain.from_iterable(by_length(session.todo)):
        total += session.most([trial]) + judge
        if budget.cuts(total):
            break
        sure += 1
    return sure


def notes(model: Model | None) -> None:
    """What a back end has to say about its model before it is asked."""
    for note in model.notes if model else ():
        tell(f"note: {note}")


class Ending:
    """Which of the two signals asked for the end, as an exit code."""

    code = INTERRUPTED[0]
    _task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run`, cancelled by either signal. Raises KeyboardInterrupt then."""
        try:
            with asyncio.Runner() as runner:
                runner.get_loop().call_soon(self._note_task)  # before the first step of its task
                return runner.run(coroutine)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._task = None

    def finish(self, coroutine: Coroutine[Any, Any, T], then: str) -> T | None:
        """Its result; None where it was interrupted, which is said, and what to type then."""
        try:
            return self.run(coroutine)
        except KeyboardInterrupt:
            tell(f"\nneedlemap: interrupted. {then}")
            return None

    def _note_task(self) -> None:
        """Keep the one task that there is when the loop starts: the coroutine's."""
        (self._task,) = asyncio.all_tasks()

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Do what Ctrl-C does here and now; where it is ignored, as behind an ampersand, what
        it would do."""
        self.code = INTERRUPTED[1]
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(number, frame)
        elif self._task is not None:
            self._task.cancel()
            self._task.get_loop().call_soon_threadsafe(int)  # wakes a loop that waits
        else:
            signal.default_int_handler(number, frame)


@contextmanager
def terminable() -> Iterator[Ending]:
    """Inside, SIGTERM raises KeyboardInterrupt as SIGINT does. In the main thread only."""
    ending = Ending()
    before = signal.signal(signal.SIGTERM, ending.terminate)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def interrupted(settings: Settings, path: Path, code: int) -> int:
    """Print why a run was interrupted. Returns the exit code."""
    kept = (
        f"What was scored is kept; to go on: the same command with -o {path}"
        if settings.save
        else ""
    )
    tell(f"needlemap: interrupted. {kept}".rstrip())
    return code


def going_on(path: Path) -> str:
    """What goes on in a folder."""
    return f"To go on: the same command with -o {path}"


def say_stopped(why: str, path: Path) -> None:
    """Why not all was asked, and how it goes on; nothing where all was."""
    if why:
        tell(f"needlemap: not all was asked: {why.rstrip('.')}. {going_on(path)}")


def show_json(document: Any) -> None:
    """Print one JSON document."""
    show_data(f"{json.dumps(document, indent=1, ensure_ascii=False)}\n")


def show_finding(
    report: Report,
    typed: Shown,
    path: Path | None = None,
    *,
    brief: bool = False,
) -> int:
    """Print a report, as JSON where that was typed, and write it for CI; the exit code. path:
    its folder, of which there is a page. brief: whether people see the last line alone."""
    code = code_of(report, typed)
    if typed.json:
        show_json(to_json(report) | {"exit_code": code})
    elif brief:
        show(report.last)
    else:
        if path is not None:  # the verdict is the last line
            page = f"needlemap report {path} -o {report.kind}.html"
            tell(f"\n{report.kind}: {path}\npage: {page}\n")
        show_report(report)
    if typed.junit is not None and report.claims:
        write_junit(typed.junit, [report], typed.on_undecided)
    return code


def code_of(report: Report, typed: Shown) -> int:
    """The exit code of a report's verdict, and 0 of one without."""
    if report.verdict is None:
        return 0
    return exit_code(report.verdict.word, typed.on_undecided, exit_zero=typed.exit_zero)


def ending_code(outcome: Outcome, session: Session, path: Path) -> int:
    """What stopped a family's asking or failed in it, in one line each; the exit code. path:
    what to type to go on."""
    for warning in outcome.warnings:
        tell(f"warning: {warning}")
    experiment, folder = session.experiment, RunFolder(session.folder.path)
    kept = False
    if (outcome.canary or outcome.hopeless) and experiment.settings.save:  # answers stay
        kept = outcome.scored > 0 or (folder.exists and not is_unanswered(folder))
    if outcome.canary:
        elsewhere = (
            f" Other settings want another folder than {path}: give one with -o." if kept else ""
        )
        tell(f"needlemap: stopped before spending more. {outcome.canary}{elsewhere}")
        return WRONG_SETTINGS
    if outcome.hopeless:
        again = f" To go on once it is mended: the same command with -o {path}" if kept else ""
        ends = not again or outcome.hopeless.endswith((".", "!", "?"))  # as typed, without a dot
        why = outcome.hopeless if ends else f"{outcome.hopeless}."
        tell(f"needlemap: stopped, every request would fail: {why}{again}")
        return WRONG_SETTINGS
    if outcome.refused_from:
        fitting = [length for length in experiment.grid.lengths if length < outcome.refused_from]
        advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
        tell(
            f"needlemap: the model refused prompts of {outcome.refused_from:,} tokens and more "
            f"({outcome.refusal}). {advice}"
        )
        return WRONG_SETTINGS
    missing = _missing(outcome, session, path)
    if missing is None:
        return exit_code(PASS)
    if not outcome.stopped:
        _tell_failures(outcome, session.experiment.settings)
    tell(missing.line("run"))
    return exit_code(missing.word)


def _tell_failures(outcome: Outcome, settings: Settings) -> None:
    """Print which prompts were set aside, and if nothing was printed before, why others failed."""
    for each in outcome.aside:
        tell(f"needlemap: set aside: {each}")
    for kind, words in outcome.words.items() if settings.quiet else ():
        tell(f"needlemap: {kind}: {words}")
    for advice in filter(None, (given_to_own(kind, settings) for kind in outcome.failures)):
        tell(f"needlemap: {advice}")


def _missing(outcome: Outcome, session: Session, path: Path) -> Verdict | None:
    """The verdict on a run of which trials are missing; None where all were measured."""
    if outcome.stopped:
        why = outcome.stopped.rstrip(".")
        again = f"to go on: the same command with a higher limit and -o {path}"
        return Verdict(NO_RESULT, f"stopped by the budget: {why}", next=again)
    if not outcome.failures:
        return None
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.failures.items()))
    saves = session.experiment.settings.save
    again = f"to ask them again: the same command with -o {path}" if saves else ""
    if {*outcome.failures} == {Failure.ORACLE}:
        again = "with this model that stays so"
    return Verdict(NO_RESULT, f"not measured: {kinds}", next=again)
