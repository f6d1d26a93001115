"""A campaign asks batch by batch what a strategy chooses.

It makes each model when it is first needed and closes it at the end, shares the limits among
all folders, and shows how the asking goes. The strategy, a coroutine, decides which batch is next
and when to stop: all families of a run (`run.py`), the blocks of two arms (`ab`), the prompts of
a check. How one batch is asked is `session.py`'s and `single.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Self

from needlemap.asking import Outcome, TrialObserver, pacer_of
from needlemap.asking.budget import Budget
from needlemap.asking.pacer import Pacer
from needlemap.asking.session import Session, make_model
from needlemap.asking.single import OpenFamily, Step
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError
from needlemap.models import Model
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings import Settings
from needlemap.sync import together

MakeModel = Callable[[Settings], Model]


class RunObserver:
    """Observe a run, family by family. This one shows nothing.

    The only family of a run is named ''.
    """

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Start a family. model: None if all its answers are known."""

    def watch(self, name: str, session: Session) -> AbstractContextManager[TrialObserver]:
        """Return the observer of each trial, entered while a family is asked."""
        return nullcontext(TrialObserver())

    def goes_on(self, name: str, session: Session) -> None:
        """Show that a run that seeks has chosen its next haystacks."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Show the outcome of a family. An exception that is raised here stops the whole run."""

    def complete(self, name: str, session: Session) -> None:
        """Show that all prompts of a family were answered before."""

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """Show that a family is left out, because opening it or building its prompts failed.

        The other families are still asked, unless the error is LimitReached.
        """


class Campaign:
    """The models and the limits of one command, for a strategy that asks batch by batch.

    A strategy is a coroutine: it enters the campaign and awaits `ask`, `ask_together` and
    `release` in any order. What ends a batch with an error is raised there, so a strategy may go
    on with the next.

    folders: all that share the limits; their spending counts. make: how each model is made, by
    its name; '' is the name of a single one. models: those that were made and are open.
    """

    def __init__(
        self,
        folders: Iterable[Path] = (),
        make: Mapping[str, MakeModel] | None = None,
        observer: RunObserver | None = None,
    ) -> None:
        self.folders = list(folders)
        self.make = make or {}
        self.observer = observer or RunObserver()
        # Into how many parts the rest of the limits is divided. The next batch may spend one.
        self.sharing = 1
        self.models: dict[str, Model] = {}
        self._open: dict[str, OpenFamily] = {}
        # Of all open families, and of the models that answer them.
        self._budget: Budget | None = None
        self._pacers: dict[str, Pacer] = {}
        # What was noted of the models.
        self._notes = set[str]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the open families, then the models: each, even if another fails to close."""
        async with AsyncExitStack() as stack:
            for model in self.models.values():
                stack.push_async_callback(model.close)
            for family in self._open.values():
                stack.callback(family.close)

    async def ask(
        self, session: Session, family: str = "", model: str = "", *, goes_on: bool = False
    ) -> Outcome:
        """Ask the trials that a session has left, and return how that ended.

        Raises NeedlemapError if the session cannot run, for example because another process
        writes to its folder.

        family, model: their names, '' of a single one. goes_on: whether these trials follow from
        the answers to the batch before, which was of the same family.
        """
        session = replace(self._with_budget(session), notes=self._notes)
        open_model = None
        if model in self.models or session.asks:
            open_model = self._model(model, session.experiment.settings)
        if goes_on:
            self.observer.goes_on(family, session)
        else:
            self.observer.begins(family, session, open_model)
        with self.observer.watch(family, session) as watcher:
            return await session.run(open_model, watcher, close=False)

    async def ask_together(
        self, steps: Sequence[Step], *, at_a_time: int = 1, scored: int = 0
    ) -> tuple[Sequence[Record | None], Outcome]:
        """Ask trials at the same time, of families that stay open until the campaign ends.

        at_a_time: the most requests that any call of this campaign has open. scored: how many
        trials were scored before, or 1 for any number.

        Return each trial's record, and the outcome of these families so far. A record is None if a
        limit kept the trial from being sent, or if it was cancelled. The first trial that raises
        ends the others.
        """
        families = [self._open_family(step, at_a_time, scored) for step in steps]
        pairs = zip(families, steps, strict=True)
        records = await together(family.ask(step) for family, step in pairs)

        outcome = Outcome()
        # Several steps may be of one family.
        for family in {id(family): family for family in families}.values():
            outcome += family.runner.outcome
        return records, outcome

    async def release(self, model: str) -> None:
        """Close a model that is not wanted any more, before another takes its memory."""
        if model in self.models:
            await self.models.pop(model).close()

    def _model(self, name: str, settings: Settings) -> Model:
        """Return the model of that name, made when it is first needed."""
        if name not in self.models:
            self.models[name] = self.make.get(name, make_model)(settings)
        return self.models[name]

    def _open_family(self, step: Step, at_a_time: int, scored: int) -> OpenFamily:
        """Return the family of a step, which stays open until the campaign ends."""
        if step.family not in self._open:
            settings = step.resolved.settings
            self._budget = self._budget or spent_in(settings, self.folders)
            model = self._model(step.model, settings)
            if step.model not in self._pacers:
                say = TrialObserver().show_event
                self._pacers[step.model] = pacer_of(settings, self._budget, at_a_time, say)
            pacer = self._pacers[step.model]
            self._open[step.family] = OpenFamily.of(step, model, self._budget, pacer, scored)
        return self._open[step.family]

    def _with_budget(self, session: Session) -> Session:
        """Return a session with its part of what the others leave of the limits."""
        settings = session.experiment.settings
        limited = settings.limit_usd is not None or settings.limit_tokens is not None
        others = [path for path in self.folders if limited and path != session.folder.path]
        return replace(session, budget=spent_in(settings, others).part(self.sharing))


class FullGrid:
    """Ask all trials that one family has left.

    Override `next_session` if more trials depend on the answers. session: the present one.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def next_session(self, scored: int) -> Session | None:
        """Return the next session, or None at the end.

        scored: how many trials of the last batch were scored.
        """
        return None

    async def ask(self, campaign: Campaign, name: str = "", model: str = "") -> Outcome | None:
        """Ask batch by batch, unless one ends as every further one would.

        Return how that ended, or None if nothing was left to ask. name, model: as `Campaign.ask`
        takes them.
        """
        if not self.session.has_work:
            self.session.relabel()
            campaign.observer.complete(name, self.session)
            return None

        outcome = await campaign.ask(self.session, name, model)
        scored = outcome.scored
        try:
            while not outcome.over:
                session = self.next_session(scored)
                if session is None:
                    break
                self.session = session
                batch_outcome = await campaign.ask(session, name, model, goes_on=True)
                outcome, scored = outcome + batch_outcome, batch_outcome.scored
        except LimitReached as error:
            # The next prompts were not built in time.
            outcome += Outcome(stopped=str(error))
        campaign.observer.ended(name, self.session, outcome)
        return outcome


def spent_in(settings: Settings, folders: Iterable[Path]) -> Budget:
    """Return the limits of several runs, with what all their starts have spent together."""
    budget = Budget.of(settings)
    for folder in folders:
        budget.read(RunFolder(folder))
    return budget
