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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.asking import Outcome, Runner, TrialObserver, raised
from needlemap.asking.budget import Budget, Reserved
from needlemap.asking.canary import ask, send, unasked
from needlemap.asking.resume import (
    GRID_MODES,
    answers_in,
    check_reused,
    is_replaced,
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
from needlemap.records.origin import is_ours, signed
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile, RunHaystack, RunTokenizer
from needlemap.scorers import Scorer
from needlemap.settings import Settings, written
from needlemap.settings.prices import Prices
from needlemap.text import counted
from needlemap.trials import requests, run_hash
from needlemap.trials.build import Experiment
from needlemap.trials.resolve import model_options
from needlemap.version import SCHEMA, __version__

if TYPE_CHECKING:
    from needlemap.trials import Trial

_MUCH = 0.1
_PACKAGES = ("httpx", "quicktok-v1", "tokenizers", "rapidfuzz", "numpy")


@dataclass(frozen=True)
class Session:
    """An experiment and the folder it fills. todo: trials to ask, in order; done: how many were
    scored.

    budget: what may be spent and, once it runs, what was. layers: parts of `todo`, by the trials'
    keys, each of which is asked before the next is begun; None where only limits part it. decides:
    whether a record that was just made is the last that is needed.
    """

    experiment: Experiment
    folder: RunFolder
    todo: tuple[Trial, ...]
    done: int
    budget: Budget
    layers: tuple[frozenset[str], ...] | None = None
    decides: Callable[[Record], bool] | None = None

    @classmethod
    def open(cls, experiment: Experiment, path: str | Path) -> Session:
        """Look at the folder, which may not be there yet: all that is left, in the order that
        shares most. Raises NeedlemapError when it holds another run, SettingsError when a limit in
        dollars cannot hold."""
        check_judge(experiment)
        check_reused(experiment)
        folder = RunFolder(path, Kept.OUTLINES)
        left = unscored(folder, experiment)
        todo = tuple(ordered(left, experiment.settings.mode, experiment.traits.side))
        done = len(experiment.trials) - len(left)
        return cls(experiment, folder, todo, done, Budget.of(experiment.settings))

    def in_layers(
        self, layers: Sequence[Sequence[Trial]], decides: Callable[[Record], bool]
    ) -> Session:
        """These trials alone, layer by layer, until a record decides."""
        keys = tuple(frozenset(trial.key for trial in layer) for layer in layers)
        todo = tuple(chain.from_iterable(layers))
        return replace(self, todo=todo, layers=keys, decides=decides)

    @cached_property
    def unanswered(self) -> tuple[Trial, ...]:
        """The trials of `todo` that the model must answer. The others have an answer, which is
        scored anew."""
        answers = answers_in(self.folder, self.todo)
        return tuple(trial for trial in self.todo if trial.asked not in answers)

    @property
    def asks(self) -> bool:
        """Whether any trial that is left needs the model."""
        closed_book = to_be_scored(closed_book_records(self.folder, texts=False))
        unknown = [
            trial
            for trial in unasked(self.experiment, self.folder)
            if trial.asked not in closed_book
        ]
        return bool(self.unanswered or unknown)

    @property
    def wanted(self) -> bool:
        """Whether anything is left to ask: trials, or questions without a haystack."""
        return bool(self.todo or unasked(self.experiment, self.folder))

    def relabel(self) -> None:
        """Keep a new label or step of a run that has nothing left to ask."""
        about = self.folder.about()
        kept = _kept_names(self.experiment.settings, about)
        if any(about.settings.get(name) != value for name, value in kept.items()):
            renamed = about.with_settings(kept)
            with closing(Writer(self.folder)) as writer:
                writer.describe(signed(renamed) if is_ours(about) else renamed)

    async def run(
        self, model: Model | None, watcher: TrialObserver, *, close: bool = True
    ) -> Outcome:
        """Ask the trials that are left. Records are on the disk before the watcher hears of
        them. Closes the model, unless it is wanted again; None where nothing is asked.

        Raises NeedlemapError when another run holds the folder, or scorer and task do not fit.
        """
        settings, scorer = self.experiment.settings, self.experiment.scorer
        async with AsyncExitStack() as stack:
            if close and model is not None:
                stack.push_async_callback(model.close)
            await make_ready(scorer, self.experiment.trials[0], stack)
            writer = stack.enter_context(closing(Writer(self.folder)))
            if is_replaced(self.folder, self.experiment):
                set_aside(self.folder)
            # Once more, now that nobody else writes: another run may have ended between `open` and
            # here.
            left = {trial.key for trial in unscored(self.folder, self.experiment)}
            if model is not None:
                with self.budget.waiting():
                    await model.open(len(left), watcher.show_standing, watcher.show_event)
                if note := check_context(self.experiment, self.todo, model):
                    watcher.show_event(note)
            writer.describe(about(self.experiment, self.folder, model))
            self.budget.read(self.folder)
            answers = answers_in(self.folder, self.todo)
            walk = self._walk([trial for trial in self.todo if trial.key in left])
            kept = self.budget, writer, watcher, self.done, answers
            runner = Runner(model, scorer, settings, *kept, self.decides)
            if settings.canary and self.experiment.traits.remote:
                grid = [each for each in walk if each.role == "whole"]
                unknown = [each for each in grid if each.asked not in answers]
                sent = await send(runner, unknown, self.folder.records())
                walk = [trial for trial in walk if trial.key not in sent]
            if not runner.outcome.over:
                await ask(self.experiment, self.folder, runner)
                side = getattr(
                    model, "side", self.experiment.traits.side
                )  # a model that was tried knows better
                lanes = self.experiment.workers * (model.replicas if model else 1)
                if model is not None and model.slots is not None and model.slots < lanes:
                    lanes = model.slots
                    watcher.show_event(
                        f"note: the server has {counted(lanes, 'slot')}, so that many prompts are "
                        f"sent at a time, not --concurrency {settings.concurrency}"
                    )
                walks = [laned(part, settings.mode, lanes, side) for part in self._parts(walk)]
                watcher.planned(
                    [trial for part, _ in walks for trial in part if trial.asked not in answers]
                )
                own = False
                if model is not None and shares_much(walks):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.budget.waits_s()):
                            own = await model.prepare(max(len(cut.bounds) for _, cut in walks))
                await runner.run(*walks, most=lanes, own_caches=own)
            if stopped := runner.outcome.stopped:
                ended = about(self.experiment, self.folder, model)
                writer.describe(ended.model_copy(update={"stopped": stopped}))
            return runner.outcome

    def spent(self) -> Budget:
        """The limits, with what earlier starts have spent of them."""
        budget = replace(self.budget)
        if self.done or not is_replaced(self.folder, self.experiment):
            budget.read(self.folder)
        return budget

    def most(self, trials: Iterable[Trial]) -> Reserved:
        """What trials may take at most, judges not counted. Likelihoods are read without an
        answer."""
        weighed = self.experiment.scorer.passes
        answer_tokens = 0 if weighed else self.experiment.settings.most_tokens
        sizes = (each.prompt.asked_tokens for each in requests(trials))
        return self.budget.most(sizes, answer_tokens)

    def _walk(self, trials: Sequence[Trial]) -> list[Trial]:
        """All requests of some trials, in the order that shares most."""
        walk, known = requests(trials), self.experiment
        if len(walk) > len(trials):
            walk = ordered(walk, known.settings.mode, known.traits.side)
        return marked(known, walk)

    def _parts(self, walk: list[Trial]) -> list[list[Trial]]:
        """A walk as it is asked: layer by layer, whole, or length by length where a limit may cut
        it short."""
        if self.layers is None:
            return by_length(walk) if self._limited(walk) else [walk]
        parts = [[trial for trial in walk if trial.key in layer] for layer in self.layers]
        return [part for part in parts if part]

    def _limited(self, walk: Iterable[Trial]) -> bool:
        """Whether a limit may cut a walk short. How far a time goes is unknown; modes that share
        across lengths keep to their walk under it."""
        settings = self.experiment.settings
        timed = settings.limit_time is not None and settings.mode not in GRID_MODES
        return timed or self.budget.cuts(self.most(walk))


async def make_ready(scorer: Scorer, trial: Trial, stack: AsyncExitStack) -> None:
    """Open what a scorer needs, until the stack is left. One that lacks something says so before
    anything is paid: it scores an empty answer to the trial. Raises NeedlemapError."""
    if scorer.asks:
        scorer.open()
        stack.push_async_callback(scorer.close)
    elif not scorer.passes:
        with suppress(Unmeasured):  # what is wrong with one answer is told trial by trial
            try:
                await scorer.score("", trial.item.reference)
            except Exception as error:
                raise raised(error, Failure.SCORER) from None


def shares_much(walks: Iterable[tuple[Sequence[Trial], Lanes]]) -> bool:
    """Whether prompts have a tenth of their tokens in common with the one before them: then it
    matters which cache a prompt finds."""
    trials = [trial for walk, _ in walks for trial in walk]
    planned = sum(trial.shared_tokens or 0 for trial in trials)
    return planned > _MUCH * sum(trial.prompt.asked_tokens for trial in trials)


def marked(experiment: Experiment, walk: list[Trial]) -> list[Trial]:
    """Trials whose prompts list where they part, for caches that need it."""
    traits = experiment.traits
    if not (traits.breakpoints or traits.serial) or experiment.settings.mode == ALONE:
        return walk
    told = with_breakpoints if traits.breakpoints else with_partings
    prompts = told([trial.prompt for trial in walk])
    return [replace(trial, prompt=prompt) for trial, prompt in zip(walk, prompts, strict=True)]


def make_model(settings: Settings) -> Model:
    """The back end that the settings name, bound to its model. Raises SettingsError."""
    check_price(settings)
    return find_backend(settings.backend)(settings.model_name, **options_of(settings))


def options_of(settings: Settings) -> dict[str, Any]:
    """Return what the back end that the settings name is built with."""
    address = {"base_url": settings.base_url} if settings.base_url else {}
    return model_options(settings) | address


def check_context(experiment: Experiment, trials: Sequence[Trial], model: Model) -> str:
    """Return what to say if prompts may be too long for the context that a server reports; '' if
    all fit.

    Raises SettingsError if prompts cannot fit, with the lengths that do. Counts of another
    vocabulary are estimates, and prompts that exist already have no lengths to choose: of these it
    is only said.
    """
    room, settings = model.context_tokens, experiment.settings
    if room is None or settings.seek is not None:
        return ""
    needs = {
        trial.cell.length_tokens: trial.prompt.asked_tokens + settings.most_tokens
        for trial in trials
    }
    long = sorted(length for length, tokens in needs.items() if tokens > room)
    if not long:
        return ""
    fitting = ",".join(f"{length}" for length in sorted(set(needs) - set(long)))
    advice = f"Use --lengths {fitting}." if fitting else f"Use --lengths below {room:,}."
    said = (
        f"The server reports a context of {room:,} tokens, prompt and answer: "
        f"{'length' if len(long) == 1 else 'lengths'} {', '.join(f'{each:,}' for each in long)} "
        f"{'does' if len(long) == 1 else 'do'} not fit."
    )
    if experiment.ready or not experiment.counts_own:
        return f"note: {said} Lengths here are not in its own tokens. {advice}"
    raise SettingsError(f"{said} {advice}")


def check_price(settings: Settings) -> None:
    """Raises SettingsError when dollars are limited and the model's price is unknown."""
    known = Prices.of(settings).usd(1000, 0, 1) is not None
    if settings.limit_usd is not None and not known:
        raise SettingsError(
            f"No price is known for '{settings.model}', so --limit-usd cannot hold. Give --prices "
            f"input=USD "
            f"--prices output=USD (per million tokens), or use --limit-tokens."
        )


def check_judge(experiment: Experiment) -> None:
    """Raises SettingsError when dollars are limited and a judge's price is unknown."""
    settings, scorer = experiment.settings, experiment.scorer
    if settings.limit_usd is None or not scorer.asks:
        return
    if scorer.most_usd(experiment.trials[0].item.reference, settings.max_answer_tokens) is None:
        raise SettingsError(
            "No price is known for the judge, so --limit-usd cannot hold. Give --scorer-options "
            "'prices={input: USD, output: USD}' (per million tokens; 0 where it costs nothing), or "
            "use "
            "--limit-tokens."
        )


def about(experiment: Experiment, folder: RunFolder, model: Model | None = None) -> RunFile:
    """run.json: the resolved settings, versions, hashes, and which repeats each cell is to have.

    Cells of earlier starts stay.
    """
    before = folder.run_file
    expected: dict[tuple[int, float], set[int]] = defaultdict(set)
    for repeat, cell in (place for trial in experiment.trials for place in trial.places):
        expected[cell.length_tokens, cell.depth].add(repeat)
    for length, depth, repeats in before.cells if before else ():
        expected[length, depth].update(repeats)
    where_known: dict[str, Any] = {
        "shared": _shared(experiment, folder, before),
        "notes": list(experiment.notes),
        "depthless": experiment.task.depthless,
        "model_notes": list(model.notes if model else ()) or (before and before.model_notes),
        "earlier_scorers": before and before.earlier_scorers,
    }
    made = RunFile(
        schema=SCHEMA,
        kind=kind_of(folder.path),
        needlemap=__version__,
        created=(before and before.created) or datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        packages=versions(),
        identity=run_hash(experiment.settings),
        settings=written(experiment.settings) | _kept_names(experiment.settings, before),
        tokenizer=RunTokenizer(
            name=experiment.tokenizer.name, fingerprint=experiment.tokenizer.fingerprint
        ),
        scorer=scorer_about(experiment.scorer),
        haystacks=[RunHaystack(name=name, sha256=sha256) for name, sha256 in experiment.haystacks],
        cells=[
            (length, depth, sorted(repeats))
            for (length, depth), repeats in sorted(expected.items())
        ],
        **{name: value for name, value in where_known.items() if value},
    )
    return signed(made)


def _kept_names(settings: Settings, before: RunFile | None) -> dict[str, Any]:
    """What a run is called and the step it is of; where none is given, as an earlier start had
    it."""
    label = settings.label or (before.named.label if before else "")
    step = before.named.step if settings.step is None and before else settings.step
    return {"label": label, "step": step}


def _shared(
    experiment: Experiment, folder: RunFolder, before: RunFile | None
) -> dict[str, list[tuple[int, float, int]]]:
    """By a trial's `asked` all that it stands for, where that is more than its record says: cells
    of earlier starts stay."""
    found = {asked: set(places) for asked, places in before.shared.items()} if before else {}
    for trial in experiment.trials:
        places = {(cell.length_tokens, cell.depth, repeat) for repeat, cell in trial.places}
        found.setdefault(trial.asked, set()).update(places)
    for record in folder.records(texts=False) if before else ():
        if record.asked in found:
            found[record.asked].add((record.length_tokens, record.depth, record.repeat))
    return {asked: sorted(places) for asked, places in found.items() if len(places) > 1}


def versions() -> dict[str, str]:
    """The versions of what may change prompts and requests, by name."""
    return {name: found for name in _PACKAGES if (found := _version(name))}


@cache  # a check opens hundreds of families
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
