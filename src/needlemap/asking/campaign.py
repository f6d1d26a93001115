"""A campaign is the one loop over batches, for every strategy.

It makes each model when it is first needed and closes it at the end, shares the limits among
all folders, and shows how the asking goes. The strategy decides which batch is next and when
to stop: all families of a run (`run.py`), the blocks of two arms (`ab.py`), the prompts of a
check. How one batch is asked is `session.py`'s and `single.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from needlemap.asking import Outcome, TrialObserver, pacer_of
from needlemap.asking.budget import Budget
from needlemap.asking.pacer import Pacer
from needlemap.asking.session import Session, make_model
from needlemap.asking.single import OpenFamily, Step, Steps
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError
from needlemap.models import Model
from needlemap.records.folder import RunFolder
from needlemap.settings import Settings
from needlemap.sync import together

MakeModel = Callable[[Settings], Model]
Found = TypeVar("Found")


class RunObserver:
    """Hears how the asking goes, family by family, named '' in a run with one; this one shows
    nothing."""

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """A family is about to be asked. model: None where all its answers are known."""

    def watch(self, name: str, session: Session) -> AbstractContextManager[TrialObserver]:
        """What hears of each trial, entered while a family is asked."""
        return nullcontext(TrialObserver())

    def goes_on(self, name: str, session: Session) -> None:
        """A run that seeks has its next haystacks."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """A family was asked. What it raises ends the asking."""

    def whole(self, name: str, session: Session) -> None:
        """Nothing of a family is left to ask."""

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """A family cannot be asked, for what only building all its prompts showed: the others
        can, unless a limit was reached (LimitReached)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The next trials to ask: those that a session has left. family: its name, '' of a single
    one. model: the name of the model that answers, '' of a single one. goes_on: whether the
    batch before it was of the same family, and this one follows from its answers."""

    family: str
    session: Session
    model: str = ""
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Asks nothing: a model is not wanted any more, and is closed before another takes its
    memory."""

    model: str


Batches = Generator[Batch | Steps | Release, Outcome, Found]


class Strategy(Generic[Found]):
    """The choice of batches for a campaign. Override `batches`.

    folders: all that share the limits; their spending counts. sharing: into how many parts the
    rest of the limits is divided. The next batch may spend one of them.
    """

    sharing = 1

    def __init__(self, observer: RunObserver, folders: Iterable[Path]) -> None:
        self.observer, self.folders = observer, list(folders)

    def batches(self) -> Batches[Found]:
        """Yields the batches. Each `yield` returns how asking the batch ended (for steps: how
        their families are asked), or raises the error that ended it. Returns the strategy's
        result. Raises NeedlemapError."""
        raise NotImplementedError


class FullGrid(Strategy[Outcome | None]):
    """All trials that one family has left. Its result is how asking them ended, None if none
    was left. Override `next` if further trials depend on the answers.

    session: the present one. name: the family's, '' of a single one. model: as a batch names
    it.
    """

    def __init__(
        self, session: Session, observer: RunObserver | None = None, name: str = "", model: str = ""
    ) -> None:
        super().__init__(observer or RunObserver(), [session.folder.path])
        self.session, self.name, self.model = session, name, model

    def next(self, scored: int) -> Session | None:
        """The next session, or None at the end. scored: how many trials of the last batch were
        scored."""
        return None

    def batches(self) -> Batches[Outcome | None]:
        """Batch by batch, unless one ends as every further one would."""
        if not self.session.wanted:
            self.session.relabel()
            self.observer.whole(self.name, self.session)
            return None
        outcome = yield Batch(self.name, self.session, self.model)
        scored = outcome.scored
        try:
            while not outcome.over and (session := self.next(scored)) is not None:
                self.session = session
                more = yield Batch(self.name, session, self.model, goes_on=True)
                outcome, scored = outcome + more, more.scored
        except LimitReached as error:  # while the next prompts were built
            outcome += Outcome(stopped=str(error))
        self.observer.ended(self.name, self.session, outcome)
        return outcome


@dataclass
class Campaign:
    """make: how each model is made, by its name among the batches. models: those that were
    made."""

    make: Mapping[str, MakeModel] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    _open: dict[str, OpenFamily] = field(default_factory=dict)
    _budget: Budget | None = None  # of all open families
    _pacers: dict[str, Pacer] = field(default_factory=dict)  # of their models

    async def run(self, strategy: Strategy[Found]) -> Found:
        """Ask batch by batch until the strategy ends, and let go of the models. Returns what
        it found. Raises NeedlemapError as the strategy, a model or a folder does."""
        batches = strategy.batches()
        try:
            batch = next(batches)
            while True:
                try:
                    if isinstance(batch, Steps):
                        outcome = await self._ask_steps(batch, strategy.folders)
                    elif isinstance(batch, Release):
                        outcome = await self._release(batch.model)
                    else:
                        session, model = self._ready(batch, strategy)
                        with strategy.observer.watch(batch.family, session) as watcher:
                            outcome = await session.run(model, watcher, close=False)
                        del session, model, watcher  # before the next are built and loaded
                except NeedlemapError as error:
                    batch = batches.throw(error)
                else:
                    del batch
                    batch = batches.send(outcome)
        except StopIteration as done:
            found: Found = done.value
            return found
        finally:
            async with AsyncExitStack() as stack:  # from the last to the first, whatever fails
                for model in self.models.values():
                    stack.push_async_callback(model.close)
                stack.callback(batches.close)
                for family in self._open.values():
                    stack.callback(family.close)

    def _ready(self, batch: Batch, strategy: Strategy[Found]) -> tuple[Session, Model | None]:
        """What a batch asks within the limits, and of which model, once that is shown."""
        session = self._with_budget(batch.session, strategy)
        needed = batch.model in self.models or session.asks
        model = self._model(batch.model, session.experiment.settings) if needed else None
        if batch.goes_on:
            strategy.observer.goes_on(batch.family, session)
        else:
            strategy.observer.begins(batch.family, session, model)
        return session, model

    async def _release(self, name: str) -> Outcome:
        """Let go of a model, if it was made."""
        if name in self.models:
            await self.models.pop(name).close()
        return Outcome()

    def _model(self, name: str, settings: Settings) -> Model:
        """The model of that name, made when it is first needed."""
        if name not in self.models:
            self.models[name] = self.make.get(name, make_model)(settings)
        return self.models[name]

    async def _ask_steps(self, batch: Steps, folders: Iterable[Path]) -> Outcome:
        """Ask trials of families that stay open, all at the same time. The first that raises
        ends the others."""
        opened = [self._open_family(step, batch, folders) for step in batch.steps]
        pairs = zip(opened, batch.steps, strict=True)
        batch.records = await together(each.ask(step) for each, step in pairs)
        outcome = Outcome()
        for each in {id(family): family for family in opened}.values():
            outcome += each.runner.outcome
        return outcome

    def _open_family(self, step: Step, batch: Steps, folders: Iterable[Path]) -> OpenFamily:
        """The family of a step, which stays open until the campaign ends."""
        if step.family not in self._open:
            settings = step.resolved.settings
            self._budget = self._budget or spent_in(settings, folders)
            budget, model = self._budget, self._model(step.model, settings)
            if step.model not in self._pacers:
                say = TrialObserver().show_event
                self._pacers[step.model] = pacer_of(settings, budget, batch.at_a_time, say)
            pacer = self._pacers[step.model]
            self._open[step.family] = OpenFamily.of(step, model, budget, pacer, batch.scored)
        return self._open[step.family]

    def _with_budget(self, session: Session, strategy: Strategy[Found]) -> Session:
        """A session with its part of what the others leave of the limits."""
        settings = session.experiment.settings
        limited = settings.limit_usd is not None or settings.limit_tokens is not None
        others = [path for path in strategy.folders if limited and path != session.folder.path]
        return replace(session, budget=spent_in(settings, others).part(strategy.sharing))


def spent_in(settings: Settings, folders: Iterable[Path]) -> Budget:
    """The limits of several runs, and what all their starts have spent together."""
    budget = Budget.of(settings)
    for folder in folders:
        budget.read(RunFolder(folder))
    return budget
