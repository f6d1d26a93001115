"""Print messages about a run. Before it: its size, its highest cost, and warnings. After it: why
it stopped, which trials failed, and the exit code.

SIGTERM ends a command as Ctrl-C does, and nothing is lost. The signal comes from kill, or from the
time limit of a cluster or a container.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol, TypeVar

from needlemap.asking import Outcome
from needlemap.asking.budget import Budget, Reservation
from needlemap.asking.canary import begins_twice, own_function_advice
from needlemap.asking.resume import can_replace, is_unanswered
from needlemap.asking.run import FamiliesToAsk
from needlemap.asking.session import Session
from needlemap.asking.until import PlannedPairs
from needlemap.errors import Failure, SettingsError
from needlemap.models import Model
from needlemap.plan import by_length
from needlemap.plan.estimate import notes_on
from needlemap.plan.summary import most_judge_usd
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
from needlemap.text import counted, show, show_json, tell
from needlemap.trials.build import Experiment

# Exit codes after SIGINT and SIGTERM: 128 + the signal's number, as in a shell.
INTERRUPTED = (130, 143)
T = TypeVar("T")


class Shown(Protocol):
    """The flags of a command that set how its finding is shown."""

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


def refuse_verdict_flags(typed: Shown, remedy: str) -> None:
    """Raise SettingsError if a flag of a verdict was typed. For commands that give none.

    remedy: the flags that ask for a verdict.
    """
    verdict_flags = {
        "--junit": typed.junit is not None,
        "--on-undecided": typed.on_undecided != "fail",
        "--exit-zero": typed.exit_zero,
    }
    for flag, is_typed in verdict_flags.items():
        if is_typed:
            raise SettingsError(f"{flag} is of a verdict. Ask for one: {remedy}")


def tell_rules(chosen: Chosen) -> None:
    """Print which rules an older tool's names bring with them."""
    if chosen.note:
        tell(f"note: {chosen.note}")


def families_line(suite: str, asking: FamiliesToAsk) -> str:
    """Return how many families, trials and scored trials a suite has, before prompts are built."""
    trials = _total(family.trials for family in asking.ahead)
    scored = _total(family.scored for family in asking.ahead)
    line = f"suite {suite}: {len(asking.ahead)} families"
    if trials is not None:
        line = f"{line}, {trials:,} trials"
    if scored:
        line = f"{line}, {scored:,} already scored"
    return line


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of some counts, or None if one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def tell_notes(experiment: Experiment, printed: set[str]) -> None:
    """Print the notes on documents, before prompts are written.

    printed: notes that earlier families already printed. These are added.
    """
    for note in notes_on(experiment):
        if note not in printed and not experiment.settings.quiet:
            tell(f"note: {note}")
        printed.add(note)


def next_line(session: Session) -> str:
    """Return which prompts a run that seeks a length sends next."""
    lengths = sorted({trial.cell.length_tokens for trial in session.todo})
    haystacks = len({trial.repeat for trial in session.todo})
    return f"asking {counted(haystacks, 'haystack')} at {', '.join(map(tokens_label, lengths))}"


def _announce_seek(session: Session) -> None:
    experiment = session.experiment
    settings = experiment.settings
    shortest = tokens_label(experiment.grid.lengths[0])
    longest = tokens_label(experiment.grid.lengths[-1])
    lines = [
        f"{settings.model} · {experiment.task.name} · seeking {settings.seek:g} % "
        f"within {settings.within:g} %, {shortest} to {longest} tokens "
        f"({experiment.tokenizer.name})",
        *(f"note: {note}" for note in notes_on(experiment)),
    ]
    if session.todo:
        lines.append(next_line(session))
    else:
        lines.append("nothing is left to ask")
    tell("\n".join(lines))


def announce(session: Session) -> None:
    """Print the size of a run, and warnings that its settings do not show."""
    experiment = session.experiment
    if experiment.settings.seek is not None:
        _announce_seek(session)
        return

    lines = [
        _size_line(experiment),
        *(f"note: {note}" for note in notes_on(experiment)),
        *_progress_lines(session),
        *_warnings(session),
    ]
    if session.todo:
        lines += _limit_lines(session)
    tell("\n".join(lines))


def _size_line(experiment: Experiment) -> str:
    """Return a line with the model, the task, and how many trials and tokens there are."""
    settings = experiment.settings
    first_trials = sum(not trial.second for trial in experiment.trials)
    trials = counted(first_trials, "trial")
    if not experiment.ready:
        lengths = len(experiment.grid.lengths)
        depths = len(experiment.grid.depths)
        axes = [counted(lengths, "length"), counted(depths, "depth"), str(settings.repeats)]
        # If cells share prompts, there are fewer trials than the product.
        is_product = lengths * depths * settings.repeats == first_trials
        trials = f"{' x '.join(axes)} {'=' if is_product else 'in'} {trials}"
    second_trials = len(experiment.trials) - first_trials
    if second_trials:
        trials = f"{trials}, {second_trials:,} of them asked twice"

    tokens = f"{experiment.tokens_asked:,} prompt tokens ({experiment.tokenizer.name})"
    own_tokens = experiment.tokens_fed
    if own_tokens is not None:
        tokens = f"{tokens}, {own_tokens:,} of the model's own"
    return f"{settings.model} · {experiment.task.name} · {trials} · {tokens}"


def _progress_lines(session: Session) -> Iterator[str]:
    """Yield when a run stops, and how much of it was measured before."""
    experiment = session.experiment
    unanswered = len(session.unanswered)
    answered = len(session.todo) - unanswered
    if experiment.settings.until:
        planned = PlannedPairs.of(experiment)
        yield f"until decided: {planned.goal.label}: {planned.cost(experiment).label}"
    if session.done or answered:
        yield f"{session.done} already scored, {unanswered} to ask"
    if answered:
        scorer = f"scorer {experiment.scorer.name}, rule {rule_of(experiment.scorer)}"
        yield f"{answered} answers are kept and scored anew: {scorer}"


def _warnings(session: Session) -> Iterator[str]:
    """Yield notes and warnings about what settings do not show by themselves."""
    experiment = session.experiment
    trials = experiment.trials
    for axis, count in zip(("lengths", "depths"), experiment.grid.duplicates, strict=True):
        if count:
            yield f"note: {axis} hold {counted(count, 'value')} twice (rounded): asked once"
    if any(trial.haystack_repeated for trial in trials):
        yield "warning: the haystack is shorter than the longest prompt and is repeated"
    collisions = sorted({word for trial in trials for word in trial.collisions})
    if collisions:
        yield f"warning: the haystack already holds {', '.join(map(repr, collisions))}"
    questions = experiment.given_away
    if questions:
        yield f"warning: the question gives its answer away: {questions[0]}"
    if experiment.traits.render is not None and begins_twice(trials[0].prompt):
        yield "warning: prompts begin with the same token twice: does the template spell it?"
    if not session.done and can_replace(session.folder, experiment):
        path = session.folder.path
        yield f"note: nothing was answered in the run that {path} held: it is replaced"
    misses = [abs(trial.prompt.off_by) for trial in trials if trial.prompt.off_by]
    if misses:
        largest = counted(max(misses), "token")
        yield f"warning: {len(misses)} prompts miss their length, by {largest} at most (recorded)"


def _limit_lines(session: Session) -> list[str]:
    """Return what the answers will cost at most, and whether a limit may stop the run early.

    Return no line if the model is on this machine, no price is due and no limit is set.
    """
    experiment = session.experiment
    settings = experiment.settings
    budget = session.spent()
    most = session.most_reserved(session.unanswered)
    judge_usd = most_judge_usd(experiment, session.todo)
    is_limited = settings.limit_usd is not None or settings.limit_tokens is not None
    if not (is_limited or experiment.traits.remote or judge_usd != 0):
        return []

    cost = f"at most {most.tokens:,} tokens, every answer using its whole budget"
    if budget.prices.usd(1, 0, 1) is None:
        cost = f"{cost}; no price is known"
    elif most.usd:
        cost = f"{cost}; ${most.usd:.4f} ({price_source(settings)})"
    if judge_usd is None:
        cost = f"{cost}; judge: no price is known"
    elif judge_usd != 0:
        cost = f"{cost}; judge: ${judge_usd:.4f} more"
    lines = [cost]
    if is_limited and budget.cuts(most + Reservation(tokens=0, usd=judge_usd or 0.0)):
        lines.append(
            f"note: a limit may cut this short ({budget.state()} used): "
            f"{_certain_trials(session, budget)} of {counted(len(session.todo), 'trial')} fit for "
            f"certain. Short lengths are asked first"
        )
    return lines


def _certain_trials(session: Session, budget: Budget) -> int:
    """Return how many trials, shortest first, fit into the limits with answers of full length."""
    judge_usd = most_judge_usd(session.experiment, session.todo[:1])
    judge = Reservation(tokens=0, usd=judge_usd or 0.0)
    total = Reservation(tokens=0, usd=0.0)
    certain = 0
    for trial in chain.from_iterable(by_length(session.todo)):
        total += session.most_reserved([trial]) + judge
        if budget.cuts(total):
            break
        certain += 1
    return certain


def tell_model_notes(model: Model | None) -> None:
    """Print the notes of a back end on its model, before the first request."""
    if model is None:
        return
    for note in model.notes:
        tell(f"note: {note}")


class Ending:
    """Run coroutines until they end, or until SIGINT or SIGTERM interrupts them.

    Attributes:
        code: The exit code of an interruption. It depends on the signal.
    """

    code = INTERRUPTED[0]
    _task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as `asyncio.run` does. Raises KeyboardInterrupt after either signal."""
        try:
            with asyncio.Runner() as runner:
                # The loop calls this before the first step of the coroutine's task.
                runner.get_loop().call_soon(self._note_task)
                return runner.run(coroutine)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._task = None

    def finish(self, coroutine: Coroutine[Any, Any, T], advice: str) -> T | None:
        """Return the result of a coroutine, or print that it was interrupted and return None.

        advice: what to type after an interruption, as a sentence.
        """
        try:
            return self.run(coroutine)
        except KeyboardInterrupt:
            tell(f"\nneedlemap: interrupted. {advice}")
            return None

    def _note_task(self) -> None:
        """Keep the only task that exists when the loop starts: the coroutine's."""
        (self._task,) = asyncio.all_tasks()

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM as Ctrl-C is handled at this moment.

        If Ctrl-C is ignored, as in a shell's background job, do what it would do otherwise.
        """
        self.code = INTERRUPTED[1]
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(number, frame)
        elif self._task is not None:
            self._task.cancel()
            # Any call wakes a loop that waits.
            self._task.get_loop().call_soon_threadsafe(int)
        else:
            signal.default_int_handler(number, frame)


@contextmanager
def terminable() -> Iterator[Ending]:
    """Let SIGTERM raise KeyboardInterrupt inside, as SIGINT does. Use it in the main thread."""
    ending = Ending()
    previous_handler = signal.signal(signal.SIGTERM, ending.terminate)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, previous_handler or signal.SIG_DFL)


def interrupted(settings: Settings, path: Path, code: int) -> int:
    """Print that a run was interrupted, and how to resume it. Return its exit code, `code`."""
    message = "needlemap: interrupted."
    if settings.save:
        message = f"{message} What was scored is kept; to go on: the same command with -o {path}"
    tell(message)
    return code


def going_on(path: Path) -> str:
    """Return how to resume what a folder holds."""
    return f"To go on: the same command with -o {path}"


def say_stopped(why: str, path: Path) -> None:
    """Print why not all prompts were sent, and how to resume. why: '' if all were sent."""
    if why:
        tell(f"needlemap: not all was asked: {why.rstrip('.')}. {going_on(path)}")


def show_finding(
    report: Report,
    typed: Shown,
    path: Path | None = None,
    *,
    brief: bool = False,
    interrupted_by: int | None = None,
) -> int:
    """Print a report, write it for CI, and return the exit code.

    typed: the flags that set how it is shown. path: the report's folder, if a page can be made of
    it. brief: print only the last line, unless JSON was typed. interrupted_by: the exit code if the
    command was interrupted.
    """
    code = code_of(report, typed) if interrupted_by is None else interrupted_by
    if typed.json:
        show_json(to_json(report) | {"exit_code": code})
    elif brief:
        show(report.last_line)
    else:
        # The path comes first, because the verdict is the last line.
        if path is not None:
            page = f"needlemap report {path} -o {report.kind}.html"
            tell(f"\n{report.kind}: {path}\npage: {page}\n")
        show_report(report)
    if typed.junit is not None and report.claims:
        write_junit(typed.junit, [report], typed.on_undecided)
    return code


def code_of(report: Report, typed: Shown) -> int:
    """Return the exit code of a report's verdict, or 0 if it has none."""
    if report.verdict is None:
        return 0
    return exit_code(report.verdict.word, typed.on_undecided, exit_zero=typed.exit_zero)


def ending_code(outcome: Outcome, session: Session, path: Path) -> int:
    """Print what stopped a family or failed in it, and return the exit code.

    path: the folder to type to resume.
    """
    for warning in outcome.warnings:
        tell(f"warning: {warning}")
    if outcome.canary:
        message = f"needlemap: stopped before spending more. {outcome.canary}"
        if _has_kept_answers(outcome, session):
            message = f"{message} Other settings want another folder than {path}: give one with -o."
        tell(message)
        return WRONG_SETTINGS
    if outcome.hopeless:
        reason = outcome.hopeless
        if _has_kept_answers(outcome, session):
            # A reason can end with a line to type, which has no full stop.
            if not reason.endswith((".", "!", "?")):
                reason = f"{reason}."
            reason = f"{reason} To go on once it is mended: the same command with -o {path}"
        tell(f"needlemap: stopped, every request would fail: {reason}")
        return WRONG_SETTINGS
    if outcome.refused_from:
        lengths = session.experiment.grid.lengths
        fitting = [length for length in lengths if length < outcome.refused_from]
        advice = f"Use --lengths up to {max(fitting):,}." if fitting else "Use shorter --lengths."
        tell(
            f"needlemap: the model refused prompts of {outcome.refused_from:,} tokens and more "
            f"({outcome.refusal}). {advice}"
        )
        return WRONG_SETTINGS

    verdict = _missing_verdict(outcome, session, path)
    if verdict is None:
        return exit_code(PASS)
    if not outcome.stopped:
        _tell_failures(outcome, session.experiment.settings)
    tell(verdict.line("run"))
    return exit_code(verdict.word)


def _has_kept_answers(outcome: Outcome, session: Session) -> bool:
    """Return True if the run's folder keeps answers, of this start or of an earlier one."""
    if not session.experiment.settings.save:
        return False
    if outcome.scored > 0:
        return True
    folder = RunFolder(session.folder.path)
    return folder.exists and not is_unanswered(folder)


def _tell_failures(outcome: Outcome, settings: Settings) -> None:
    """Print which prompts were set aside, and why others failed.

    Unless the run is quiet, the words of each failure were printed before.
    """
    for prompt in outcome.aside:
        tell(f"needlemap: set aside: {prompt}")
    if settings.quiet:
        for kind, words in outcome.words.items():
            tell(f"needlemap: {kind}: {words}")
    for kind in outcome.failures:
        advice = own_function_advice(kind, settings)
        if advice:
            tell(f"needlemap: {advice}")


def _missing_verdict(outcome: Outcome, session: Session, path: Path) -> Verdict | None:
    """Return the verdict on a run with missing trials, or None if all were measured."""
    if outcome.stopped:
        return Verdict(
            NO_RESULT,
            f"stopped by the budget: {outcome.stopped.rstrip('.')}",
            next=f"to go on: the same command with a higher limit and -o {path}",
        )
    if not outcome.failures:
        return None

    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.failures.items()))
    remedy = ""
    if set(outcome.failures) == {Failure.ORACLE}:
        remedy = "with this model that stays so"
    elif session.experiment.settings.save:
        remedy = f"to ask them again: the same command with -o {path}"
    return Verdict(NO_RESULT, f"not measured: {kinds}", next=remedy)
