"""A run from start to end: one family after the other, with one model and one budget.

A family's prompts are built when its turn comes and let go of when it is done, so that many
families need no more memory, and their first request waits no longer, than few. What is wrong with
any of several is looked for before the first is asked.

Also from ordinary code, where a loop may run already, as in a notebook's cell: `run_coroutine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from needlemap.asking import Outcome, Watcher
from needlemap.asking.budget import Budget
from needlemap.asking.resume import GRID_MODES, check_same, is_unanswered, unscored
from needlemap.asking.session import Session, check_judge, check_price, make_model, open_session
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.grid import setting
from needlemap.maps import prompts_of
from needlemap.models import Model, find_backend
from needlemap.records.families import Families, begin_families
from needlemap.records.folder import RunFolder
from needlemap.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.trials.build import prepare
from needlemap.trials.resolve import Resolved, model_options, resolve

MakeModel = Callable[[Settings], Model]
T = TypeVar("T")


class Face:
    """Hears how the asking goes, family by family, named '' in a run with one; this one shows
    nothing."""

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """A family is about to be asked. model: None where all its answers are known."""

    def watch(self, name: str, session: Session) -> AbstractContextManager[Watcher]:
        """What hears of each trial, entered while a family is asked."""
        return nullcontext(Watcher())

    def goes_on(self, name: str, session: Session) -> None:
        """A run that seeks has its next haystacks."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """A family was asked. What it raises ends the asking."""

    def whole(self, name: str, session: Session) -> None:
        """Nothing of a family is left to ask."""

    def left_out(self, name: str, error: NeedlemapError) -> None:
        """A family cannot be asked, for what only building all its prompts showed: the others
        can."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many trials a family has, and how many of them are scored; None where only its prompts
    tell."""

    trials: int | None
    scored: int | None


@dataclass(frozen=True, slots=True)
class Asking:
    """What is to be asked, when nothing is known to be wrong with any family.

    ahead: of several families what is known of each. opened, model: of a run with one, as its turn
    comes at once; no model where nothing is left to ask it.
    """

    families: Families
    settled: Mapping[str, Settings]
    ahead: tuple[Ahead, ...] = ()
    opened: Session | None = None
    model: Model | None = None

    @classmethod
    def of(cls, chosen: Chosen, path: Path, make: MakeModel = make_model) -> Asking:
        """Look at the folder, which may not be there yet. Raises NeedlemapError."""
        names = tuple(chosen.families)
        if not chosen.suite:
            session = open_session(chosen.first, path)
            model = make(chosen.first) if session.wanted and session.asks else None
            return cls(begin_families(path, "", names), chosen.families, (), session, model)
        if any(settings.until for settings in chosen.families.values()):
            whole = f"run it whole, then: needlemap compare REFERENCE {path} --sequential"
            both = f"needlemap ab suite:{chosen.suite}"
            raise SettingsError(
                f"--until stops one family. Of a suite {whole}. Or {both}, which stops."
            )
        ahead = []
        for name, settings in chosen.families.items():
            try:
                ahead.append(look_ahead(settings, path / name))
            except NeedlemapError as error:
                raise NeedlemapError(f"Family '{name}': {error}") from None
        return cls(begin_families(path, chosen.suite, names), chosen.families, tuple(ahead))


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several runs may use of limits that hold for all of them: an equal part of what
    is left.

    beside: the folders of the others' families. of: how many runs are not whole yet, from this one
    on. started_s: since when time counts, by the monotonic clock.
    """

    beside: tuple[Path, ...]
    of: int
    started_s: float


def share_out(each: Mapping[str, Chosen], path: Path, started_s: float) -> dict[str, Share]:
    """The shares of runs of several models, by the names of their folders in `path`.

    Finds what is wrong with any of them before the first is asked. Raises NeedlemapError.
    """
    waiting, folders = list[str](), dict[str, list[Path]]()
    for name, chosen in each.items():
        folders[name] = [path / name / family for family in chosen.families]
        try:
            check_price(chosen.first)
            ahead = [
                look_ahead(settings, path / name / family)
                for family, settings in chosen.families.items()
            ]
        except NeedlemapError as error:
            raise NeedlemapError(f"Model '{chosen.first.model}': {error}") from None
        if any(part.trials is None or part.trials != part.scored for part in ahead):
            waiting.append(name)
    shares = {}
    for name in each:
        beside = [folder for other in each if other != name for folder in folders[other]]
        shares[name] = Share(tuple(beside), max(1, len(waiting)), started_s)
        waiting = [other for other in waiting if other != name]
    return shares


async def try_servers(each: Iterable[Chosen]) -> None:
    """Reach for every model that a server has, so far as no request is needed. Raises
    NeedlemapError, as for a key that is missing."""
    for chosen in each:
        settings = chosen.first
        if (
            find_backend(settings.backend)
            .traits(settings.model_name, model_options(settings))
            .remote
        ):
            await make_model(settings).close()


async def ask_families(
    asking: Asking, face: Face, make: MakeModel = make_model, share: Share | None = None
) -> dict[str, Outcome]:
    """Ask the families that are not whole yet, in their order, until one ends as all others would;
    how the asking of each ended. share: of a run beside others. Raises NeedlemapError."""
    folder = asking.families
    paths = [folder.folder(name) for name in folder.names]
    turns = Turns(face, paths, make, asking.model, share)
    outcomes: dict[str, Outcome] = {}
    try:
        for name, settings in asking.settled.items():
            if (outcome := await _turn(asking, name, settings, turns)) is not None:
                outcomes[name] = outcome
                if outcome.over:
                    break
    finally:
        await turns.close()
    return outcomes


async def _turn(asking: Asking, name: str, settings: Settings, turns: Turns) -> Outcome | None:
    """Prepare a family, ask it, and let go of its prompts."""
    try:
        session = asking.opened or open_session(settings, asking.families.folder(name))
    except NeedlemapError as error:
        turns.face.left_out(name, error)
        return None
    return await turns.take(name, session)


class Turns:
    """Asks one experiment after the other of one model, which is made when the first of them needs
    it.

    paths: the folders of all that share the limits; what the others have spent counts.
    """

    def __init__(
        self,
        face: Face,
        paths: Sequence[Path],
        make: MakeModel,
        model: Model | None = None,
        share: Share | None = None,
    ) -> None:
        self.paths, self.model = list(paths), model
        self.face, self._make, self._share = face, make, share or Share((), 1, monotonic())

    async def take(self, name: str, session: Session) -> Outcome | None:
        """Ask what is left of an experiment; None where nothing is."""
        if not session.wanted:
            session.relabel()
            self.face.whole(name, session)
            return None
        if self.model is None and session.asks:
            self.model = self._make(session.experiment.settings)
        session = self._budgeted(session)
        self.face.begins(name, session, self.model)
        outcome, scored = await self._asked(name, session), 0
        again = session.policy.asks_again
        while (
            not outcome.over
            and (again or outcome.scored > scored)
            and (more := session.next()) is not None
        ):
            session, scored = self._budgeted(more), outcome.scored
            self.face.goes_on(name, session)
            outcome += await self._asked(name, session)
        self.face.ended(name, session, outcome)
        return outcome

    def _budgeted(self, session: Session) -> Session:
        """With its part of what the others leave of the limits."""
        settings, share = session.experiment.settings, self._share
        limited = settings.limit_usd is not None or settings.limit_tokens is not None
        others = [
            path for path in (*self.paths, *share.beside) if limited and path != session.folder.path
        ]
        return replace(session, budget=spent_in(settings, others, share.started_s).part(share.of))

    async def _asked(self, name: str, session: Session) -> Outcome:
        with self.face.watch(name, session) as watcher:
            return await session.run(self.model, watcher, close=False)

    async def close(self) -> None:
        """Let go of the model."""
        if self.model is not None:
            await self.model.close()


def spent_in(settings: Settings, folders: Iterable[Path], started_s: float | None = None) -> Budget:
    """The limits of several runs, and what all their starts have spent together; of the time, since
    then."""
    budget = Budget.of(settings, started_s)
    for folder in folders:
        budget.read(RunFolder(folder))
    return budget


def look_ahead(settings: Settings, path: Path) -> Ahead:
    """Find what is wrong by building one prompt of the shortest length and one of the longest.

    That much finds a source that is missing or too short, a question that does not fit, a word that
    the haystack holds, and a folder of another run. Raises NeedlemapError.
    """
    resolved, folder = resolve(settings), RunFolder(path)
    if folder.exists and not is_unanswered(folder):
        check_same(folder, resolved)
    sample = prepare(_sampled(resolved))
    check_judge(sample)
    if resolved.ready:
        return Ahead(len(sample.trials), len(sample.trials) - len(unscored(folder, sample)))
    if settings.mode not in GRID_MODES:
        unscored(folder, sample)  # says whether the folder holds answers to other prompts
    return _counted(resolved, folder)


def _sampled(resolved: Resolved) -> Settings:
    """Settings of a run's corners, at their places in the whole; prompts that exist already are all
    read."""
    settings, grid = resolved.settings, resolved.grid
    if resolved.ready:
        return settings
    mode = "exact" if settings.mode in GRID_MODES else settings.mode
    lengths, depths = sorted({min(grid.lengths), max(grid.lengths)}), [setting(grid.depths[0])]
    corners = {
        "lengths": lengths,
        "depths": depths,
        "repeats": 1,
        "depth_rounding": "none",
        "mode": mode,
    }
    corners |= {"seek": None}
    return settings.model_copy(update=corners)


def _counted(resolved: Resolved, folder: RunFolder) -> Ahead:
    """By the grid; a seek chooses its own lengths and depths."""
    settings, grid = resolved.settings, resolved.grid
    if settings.seek is not None:
        return Ahead(None, None)
    asked = {
        (repeat, cell.length_tokens, cell.depth)
        for cell in grid.cells
        for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats)
    }
    about = folder.about() if folder.exists else {}
    prompts = prompts_of(folder.records(), about.get("cells", ()), about.get("shared"))
    done = {place for prompt in prompts if prompt.score is not None for place in prompt.places}
    return Ahead(len(asked), len(asked & done))


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result. Where a loop runs in this thread, the coroutine gets a loop in a thread of its
    own."""
    loop = None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    # Not in an except clause: what fails inside would have its error as a cause.
    return asyncio.run(coroutine) if loop is None else _run_in_thread(coroutine)


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """An interrupt here cancels it there, and waits until it has put its things away."""
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        finally:
            future.cancel()
            asyncio.run_coroutine_threadsafe(_settle_loop(), loop).result()


async def await_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result, while the loop that waits for it is free. Who is cancelled here cancels it there,
    and waits until it has put its things away."""
    with _other_loop() as loop:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return await asyncio.wrap_future(future)
        finally:
            future.cancel()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settle_loop(), loop))


@contextmanager
def _other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="needlemap", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _settle_loop() -> None:
    """Wait for what still runs on this loop, then for its generators and threads."""
    loop = asyncio.get_running_loop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
