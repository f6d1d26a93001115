"""A run from start to end: prepare, skip what was scored before, ask the rest, keep
everything.

The same call again resumes: trials that were scored are not asked twice, those that failed are
asked again.
"""

from __future__ import annotations

import asyncio
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.asking import Outcome, Runner, TrialObserver, failure_of
from needlemap.asking.budget import Budget, Reservation
from needlemap.asking.canary import ask, send, unscored_questions
from needlemap.asking.resume import (
    GRID_MODES,
    answers_in,
    can_replace,
    check_reused,
    scorer_about,
    set_aside,
    to_be_scored,
    unscored,
)
from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Model, find_backend
from needlemap.plan import Lanes, by_length, laned, ordered, with_breakpoints, with_partings
from needlemap.plan.cover import ALONE
from needlemap.records.families import kind_of
from needlemap.records.folder import Kept, RunFolder, Writer
from needlemap.records.loaded import closed_book_records
from needlemap.records.origin import is_ours, sign
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile, RunHaystack, RunTokenizer
from needlemap.scorers import Scorer
from needlemap.settings import Settings, run_file_settings
from needlemap.settings.prices import Prices
from needlemap.text import counted
from needlemap.trials import requests, run_hash
from needlemap.trials.build import Experiment
from needlemap.trials.resolve import model_options
from needlemap.version import SCHEMA, __version__

if TYPE_CHECKING:
    from needlemap.trials import Trial

_MUCH_SHARED = 0.1
# Two vocabularies of one text count by a factor of 0.6 to 1.6 of each other.
FEWEST_TIMES = 0.6
_PACKAGES = ("httpx", "quicktok-v1", "tokenizers", "rapidfuzz", "numpy")


@dataclass(frozen=True)
class Session:
    """An experiment and the folder it fills.

    Attributes:
        todo: The trials to ask, in order.
        done: How many were scored.
        budget: What may be spent and, once it runs, what was.
        layers: Parts of `todo`, by the trials' keys, each of which is asked before the next is
            started; None if only limits part it.
        decides: Whether a record that was just made is the last that is needed.
        notes: The notes on models that were shown, by all sessions of a campaign.
    """

    experiment: Experiment
    folder: RunFolder
    todo: tuple[Trial, ...]
    done: int
    budget: Budget
    layers: tuple[frozenset[str], ...] | None = None
    decides: Callable[[Record], bool] | None = None
    notes: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, experiment: Experiment, path: str | Path) -> Session:
        """Read the folder, which may not be there yet, and order what is left to share most.

        Raises NeedlemapError if it holds another run, SettingsError if a limit in dollars cannot
        hold.
        """
        check_judge(experiment)
        check_reused(experiment)
        folder = RunFolder(path, Kept.OUTLINES)
        trials = unscored(folder, experiment)
        todo = tuple(ordered(trials, experiment.settings.mode, experiment.traits.side))
        done = len(experiment.trials) - len(trials)
        return cls(experiment, folder, todo, done, Budget.of(experiment.settings))

    def in_layers(
        self, layers: Sequence[Sequence[Trial]], decides: Callable[[Record], bool]
    ) -> Session:
        """Return a session of these trials alone, layer by layer, until a record decides."""
        keys = tuple(frozenset(trial.key for trial in layer) for layer in layers)
        todo = tuple(chain.from_iterable(layers))
        return replace(self, todo=todo, layers=keys, decides=decides)

    @cached_property
    def unanswered(self) -> tuple[Trial, ...]:
        """Return the trials of `todo` that the model must answer.

        The others have an answer, which is scored anew.
        """
        answers = answers_in(self.folder, self.todo)
        return tuple(trial for trial in self.todo if trial.asked not in answers)

    @property
    def asks(self) -> bool:
        """Return True if any trial that is left needs the model."""
        closed_book = to_be_scored(closed_book_records(self.folder, texts=False))
        unanswered_questions = [
            trial
            for trial in unscored_questions(self.experiment, self.folder)
            if trial.asked not in closed_book
        ]
        return bool(self.unanswered or unanswered_questions)

    @property
    def has_work(self) -> bool:
        """Return True if anything is left to ask: trials, or questions without a haystack."""
        return bool(self.todo or unscored_questions(self.experiment, self.folder))

    def relabel(self) -> None:
        """Keep a new label or step of a run that has nothing left to ask."""
        about = self.folder.about()
        names = _label_and_step(self.experiment.settings, about)
        if any(about.settings.get(name) != value for name, value in names.items()):
            renamed = about.with_settings(names)
            with closing(Writer(self.folder)) as writer:
                writer.describe(sign(renamed) if is_ours(about) else renamed)

    async def run(
        self, model: Model | None, watcher: TrialObserver, *, close: bool = True
    ) -> Outcome:
        """Ask the trials that are left, and return how that ended.

        Records are on the disk before the watcher hears of them. model: None if nothing is asked.
        close: whether to close the model at the end.

        Raises NeedlemapError if another run holds the folder, or scorer and task do not fit.
        """
        settings, scorer = self.experiment.settings, self.experiment.scorer
        async with AsyncExitStack() as stack:
            if close and model is not None:
                stack.push_async_callback(model.close)
            await make_ready(scorer, self.experiment.trials[0], stack)
            writer = stack.enter_context(closing(Writer(self.folder)))
            if can_replace(self.folder, self.experiment):
                set_aside(self.folder)
            # Look once more, now that nobody else writes: another run may have ended since `open`.
            waiting = {trial.key for trial in unscored(self.folder, self.experiment)}
            if model is not None:
                with self.budget.waiting():
                    await model.open(len(waiting), watcher.show_standing, watcher.show_event)
                if note := check_context(self.experiment, self.todo, model):
                    self._show_note(note, watcher)
            writer.describe(make_run_file(self.experiment, self.folder, model))
            self.budget.read(self.folder)
            answers = answers_in(self.folder, self.todo)
            walk = self._walk([trial for trial in self.todo if trial.key in waiting])
            runner = Runner(
                model=model,
                scorer=scorer,
                settings=settings,
                budget=self.budget,
                sink=writer,
                watcher=watcher,
                already=self.done,
                answers=answers,
                decides=self.decides,
            )
            if settings.canary and self.experiment.traits.remote:
                unanswered = [
                    trial for trial in walk if trial.role == "whole" and trial.asked not in answers
                ]
                sent = await send(runner, unanswered, self.folder.records())
                walk = [trial for trial in walk if trial.key not in sent]
            if not runner.outcome.over:
                await ask(self.experiment, self.folder, runner)
                walks, lanes = self._walks(runner, walk)
                own_caches = await self._prepare(model, walks)
                await runner.run(*walks, most=lanes, own_caches=own_caches)
            if stopped := runner.outcome.stopped:
                run_file = make_run_file(self.experiment, self.folder, model)
                writer.describe(run_file.model_copy(update={"stopped": stopped}))
            return runner.outcome

    def _walks(
        self, runner: Runner, walk: list[Trial]
    ) -> tuple[list[tuple[list[Trial], Lanes]], int]:
        """Return a walk cut into parts and lanes, and how many lanes the model serves."""
        model, watcher, settings = runner.model, runner.watcher, runner.settings
        # A model that was tried knows better.
        side = getattr(model, "side", self.experiment.traits.side)
        lanes = self.experiment.workers * (model.replicas if model else 1)
        if model is not None and model.slots is not None and model.slots < lanes:
            lanes = model.slots
            self._show_note(
                f"note: the server has {counted(lanes, 'slot')}, so that many prompts are "
                f"sent at a time, not --concurrency {settings.concurrency}",
                watcher,
            )

        walks = [laned(part, settings.mode, lanes, side) for part in self._parts(walk)]
        watcher.planned(
            [trial for part, _ in walks for trial in part if trial.asked not in runner.answers]
        )
        return walks, lanes

    def _show_note(self, note: str, watcher: TrialObserver) -> None:
        """Show a note on the model once, not again for each family, arm and block."""
        if note not in self.notes:
            self.notes.add(note)
            watcher.show_event(note)

    async def _prepare(
        self, model: Model | None, walks: Sequence[tuple[Sequence[Trial], Lanes]]
    ) -> bool:
        """Prepare a model for lanes that share much. Return True if each has its own cache."""
        if model is None or not shares_much(walks):
            return False
        most_lanes = max(len(cut.bounds) for _, cut in walks)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.budget.waits_s()):
                return await model.prepare(most_lanes)
        return False

    def spent(self) -> Budget:
        """Return the limits, with what earlier starts have spent of them."""
        budget = replace(self.budget)
        if self.done or not can_replace(self.folder, self.experiment):
            budget.read(self.folder)
        return budget

    def most_reserved(self, trials: Iterable[Trial]) -> Reservation:
        """Return what trials may take at most, judges not counted.

        Likelihoods are read without an answer.
        """
        has_passes = self.experiment.scorer.passes
        answer_tokens = 0 if has_passes else self.experiment.settings.most_tokens
        sizes = (request.prompt.asked_tokens for request in requests(trials))
        return self.budget.most_reserved(sizes, answer_tokens)

    def _walk(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return all requests of some trials, in the order that shares most."""
        walk, experiment = requests(trials), self.experiment
        if len(walk) > len(trials):
            walk = ordered(walk, experiment.settings.mode, experiment.traits.side)
        return marked(experiment, walk)

    def _parts(self, walk: list[Trial]) -> list[list[Trial]]:
        """Return a walk in the parts that are asked in turn.

        These are layers, the whole, or lengths if a limit may cut the walk short.
        """
        if self.layers is None:
            return by_length(walk) if self._limited(walk) else [walk]
        parts = [[trial for trial in walk if trial.key in layer] for layer in self.layers]
        return [part for part in parts if part]

    def _limited(self, walk: Iterable[Trial]) -> bool:
        """Return True if a limit may cut a walk short.

        How far a time goes is unknown; modes that share across lengths keep to their walk under it.
        """
        settings = self.experiment.settings
        timed = settings.limit_time is not None and settings.mode not in GRID_MODES
        return timed or self.budget.cuts(self.most_reserved(walk))


async def make_ready(scorer: Scorer, trial: Trial, stack: AsyncExitStack) -> None:
    """Open what a scorer needs, until the stack is left.

    The scorer scores an empty answer to the trial, so that it reports what it lacks before anything
    is paid. Raise NeedlemapError if it lacks something.
    """
    if scorer.asks:
        scorer.open()
        stack.push_async_callback(scorer.close)
    elif not scorer.passes:
        # What is wrong with one answer is reported trial by trial.
        with suppress(Unmeasured):
            try:
                await scorer.score("", trial.item.reference)
            except Exception as error:
                raise failure_of(error, Failure.SCORER) from None


def shares_much(walks: Iterable[tuple[Sequence[Trial], Lanes]]) -> bool:
    """Return True if prompts share a tenth of their tokens with the one before them.

    Then it matters which cache a prompt finds.
    """
    trials = [trial for walk, _ in walks for trial in walk]
    planned = sum(trial.shared_tokens or 0 for trial in trials)
    return planned > _MUCH_SHARED * sum(trial.prompt.asked_tokens for trial in trials)


def marked(experiment: Experiment, walk: list[Trial]) -> list[Trial]:
    """Return trials whose prompts list where they part, for caches that need it."""
    traits = experiment.traits
    if not (traits.breakpoints or traits.serial) or experiment.settings.mode == ALONE:
        return walk
    mark = with_breakpoints if traits.breakpoints else with_partings
    prompts = mark([trial.prompt for trial in walk])
    return [replace(trial, prompt=prompt) for trial, prompt in zip(walk, prompts, strict=True)]


def make_model(settings: Settings) -> Model:
    """Return the back end that the settings name, bound to its model.

    Raises SettingsError if the back end is unknown, or if dollars are limited and no price is
    known.
    """
    check_price(settings)
    return find_backend(settings.backend)(settings.model_name, **options_of(settings))


def options_of(settings: Settings) -> dict[str, Any]:
    """Return what the back end that the settings name is built with."""
    address = {"base_url": settings.base_url} if settings.base_url else {}
    return model_options(settings) | address


def check_context(experiment: Experiment, trials: Sequence[Trial], model: Model) -> str:
    """Return a note if prompts may be too long for the context that a server reports, or ''.

    Raises SettingsError if prompts cannot fit, with the lengths that do. Counts of another
    vocabulary are estimates: those that the widest ratio of two vocabularies would let fit have
    only the note. So have prompts that exist already, which have no lengths to choose.
    """
    context_tokens = model.context_tokens
    if context_tokens is None:
        return ""

    needed_tokens = _needed_tokens(experiment, trials)

    def lengths_beyond(times: float) -> list[int]:
        """Return the lengths that do not fit if the server counts so many times our tokens."""
        return sorted(
            length for length, tokens in needed_tokens.items() if times * tokens > context_tokens
        )

    too_long = lengths_beyond(1.0)
    if not too_long:
        return ""

    refused: list[int] = []
    if not experiment.ready:
        refused = lengths_beyond(1.0 if experiment.counts_own else FEWEST_TIMES)
    too_long = refused or too_long

    fitting_lengths = sorted(set(needed_tokens) - set(too_long))
    if experiment.settings.seek is not None and fitting_lengths:
        # A seek takes two ends, and the longest end that fits is the context itself.
        fitting_lengths = [fitting_lengths[0], context_tokens]
    fitting = ",".join(f"{length}" for length in fitting_lengths)
    advice = f"Use --lengths {fitting}." if fitting else f"Use --lengths below {context_tokens:,}."
    listed = ", ".join(f"{length:,}" for length in too_long)
    subject = f"length {listed} does" if len(too_long) == 1 else f"lengths {listed} do"
    finding = (
        f"The server reports a context of {context_tokens:,} tokens, prompt and answer: {subject} "
        f"not fit."
    )
    if experiment.ready or not experiment.counts_own:
        finding += " Lengths here are not in its own tokens."
    if refused:
        raise SettingsError(f"{finding} {advice}")
    return f"note: {finding} {advice}"


def _needed_tokens(experiment: Experiment, trials: Sequence[Trial]) -> dict[int, int]:
    """Return the tokens that a context must have for the prompts of each length, by length.

    A seek starts with two lengths, and sends the prompts of the longer one later, if at all.
    """
    settings = experiment.settings
    if settings.seek is not None:
        lengths = experiment.grid.lengths
        return {length: length for length in (min(lengths), max(lengths))}
    return {
        trial.cell.length_tokens: trial.prompt.asked_tokens + settings.most_tokens
        for trial in trials
    }


def check_price(settings: Settings) -> None:
    """Raise SettingsError if dollars are limited and the model's price is unknown."""
    is_known = Prices.of(settings).usd(1000, 0, 1) is not None
    if settings.limit_usd is not None and not is_known:
        raise SettingsError(
            f"No price is known for '{settings.model}', so --limit-usd cannot hold. Give --prices "
            f"input=USD --prices output=USD (per million tokens), or use --limit-tokens."
        )


def check_judge(experiment: Experiment) -> None:
    """Raise SettingsError if dollars are limited and a judge's price is unknown."""
    settings, scorer = experiment.settings, experiment.scorer
    if settings.limit_usd is None or not scorer.asks:
        return
    if scorer.most_usd(experiment.trials[0].item.reference, settings.max_answer_tokens) is None:
        raise SettingsError(
            "No price is known for the judge, so --limit-usd cannot hold. Give --scorer-options "
            "'prices={input: USD, output: USD}' (per million tokens; 0 where it costs nothing), or "
            "use --limit-tokens."
        )


def make_run_file(experiment: Experiment, folder: RunFolder, model: Model | None = None) -> RunFile:
    """Return the contents of run.json: settings, versions, hashes, and the repeats of each cell.

    Cells of earlier starts stay.
    """
    earlier = folder.run_file
    places = [place for trial in experiment.trials for place in trial.places]

    # Left out of run.json if they are empty.
    optional_fields: dict[str, Any] = {
        "shared": _shared(experiment, folder, earlier),
        "notes": list(experiment.notes),
        "depthless": experiment.task.depthless,
        "model_notes": list(model.notes if model else ()) or (earlier and earlier.model_notes),
        "earlier_scorers": earlier and earlier.earlier_scorers,
    }

    run_file = RunFile(
        schema=SCHEMA,
        kind=kind_of(folder.path),
        needlemap=__version__,
        created=(earlier and earlier.created) or datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        packages=versions(),
        identity=run_hash(experiment.settings),
        settings=run_file_settings(experiment.settings)
        | _label_and_step(experiment.settings, earlier),
        tokenizer=RunTokenizer(
            name=experiment.tokenizer.name, fingerprint=experiment.tokenizer.fingerprint
        ),
        scorer=scorer_about(experiment.scorer),
        haystacks=[RunHaystack(name=name, sha256=sha256) for name, sha256 in experiment.haystacks],
        cells=merged_cells(
            earlier.cells if earlier else (),
            ((cell.length_tokens, cell.depth, repeat) for repeat, cell in places),
        ),
        **{name: value for name, value in optional_fields.items() if value},
    )
    return sign(run_file)


def merged_cells(
    cells: Iterable[tuple[int, float, Sequence[int]]], places: Iterable[tuple[int, float, int]]
) -> list[tuple[int, float, list[int]]]:
    """Return run.json's cells with further trials, each a length, a depth and a repeat."""
    repeats_by_cell = defaultdict[tuple[int, float], set[int]](set)
    for length, depth, repeats in cells:
        repeats_by_cell[length, depth].update(repeats)
    for length, depth, repeat in places:
        repeats_by_cell[length, depth].add(repeat)
    return [
        (length, depth, sorted(repeats))
        for (length, depth), repeats in sorted(repeats_by_cell.items())
    ]


def _label_and_step(settings: Settings, earlier: RunFile | None) -> dict[str, Any]:
    """Return a run's label and step: those given, else those of an earlier start."""
    label = settings.label or (earlier.named.label if earlier else "")
    step = earlier.named.step if settings.step is None and earlier else settings.step
    return {"label": label, "step": step}


def _shared(
    experiment: Experiment, folder: RunFolder, earlier: RunFile | None
) -> dict[str, list[tuple[int, float, int]]]:
    """Return all that a trial stands for, by its `asked`, if that is more than its record shows.

    Cells of earlier starts stay.
    """
    places_by_hash = (
        {request_hash: set(places) for request_hash, places in earlier.shared.items()}
        if earlier
        else {}
    )
    for trial in experiment.trials:
        places = {(cell.length_tokens, cell.depth, repeat) for repeat, cell in trial.places}
        places_by_hash.setdefault(trial.asked, set()).update(places)
    for record in folder.records(texts=False) if earlier else ():
        if record.asked in places_by_hash:
            places_by_hash[record.asked].add((record.length_tokens, record.depth, record.repeat))
    return {
        request_hash: sorted(places)
        for request_hash, places in places_by_hash.items()
        if len(places) > 1
    }


def versions() -> dict[str, str]:
    """Return the versions of what may change prompts and requests, by name."""
    return {name: number for name in _PACKAGES if (number := _version(name))}


# A check opens hundreds of families.
@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
