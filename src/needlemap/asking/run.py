"""A run from start to end: one family after the other, with one model and one budget.

A family's prompts are built when its turn comes and freed when it is done. So many families
need no more memory than few, and the first request waits no longer. All families are checked
for errors before the first is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from needlemap.asking import Outcome
from needlemap.asking.campaign import Campaign, FullGrid, MakeModel, RunObserver
from needlemap.asking.resume import GRID_MODES, check_same, is_unanswered, unscored
from needlemap.asking.seek import Seek
from needlemap.asking.session import Session, check_judge, check_price, make_model
from needlemap.asking.until import UntilDecided
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError, SettingsError, naming, naming_family
from needlemap.grid import Depths, Lengths, setting
from needlemap.models import find_backend
from needlemap.records.families import Families, begin_families
from needlemap.records.folder import Kept, RunFolder
from needlemap.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.stats import prompts_of
from needlemap.trials.build import prepare
from needlemap.trials.resolve import Resolved, model_options, resolve


@dataclass(frozen=True, slots=True)
class Ahead:
    """The trials of a family, and those that are scored; None if only its prompts show it."""

    trials: int | None
    scored: int | None


@dataclass(frozen=True, slots=True)
class FamiliesToAsk:
    """The families to ask one model, after all were checked.

    ahead: for several families, what the check found of each. opened: for a single family, its
    strategy, since its turn comes at once.
    """

    families: Families
    settled: Mapping[str, Settings]
    ahead: tuple[Ahead, ...] = ()
    opened: FullGrid | None = None

    @classmethod
    def of(cls, chosen: Chosen, path: Path) -> FamiliesToAsk:
        """Look at the folder, which may not be there yet.

        Raise NeedlemapError if its run or the settings do not fit.
        """
        names = tuple(chosen.families)
        if not chosen.suite:
            opened = open_family(chosen.first, path)
            families = begin_families(path, "", names)
            return cls(families, settled=chosen.families, opened=opened)
        if any(settings.until for settings in chosen.families.values()):
            raise SettingsError(
                f"--until stops one family. Of a suite run it whole, then: needlemap compare "
                f"REFERENCE {path} --sequential. Or needlemap ab suite:{chosen.suite}, which stops."
            )

        ahead = []
        for name, settings in chosen.families.items():
            with naming_family(name):
                ahead.append(look_ahead(settings, path / name))
        families = begin_families(path, chosen.suite, names, scores=chosen.scores)
        return cls(families, settled=chosen.families, ahead=tuple(ahead))


def open_family(settings: Settings, path: Path) -> FullGrid:
    """Return the strategy that a family's settings name, ready to ask.

    Raise NeedlemapError if its prompts cannot be built, or if the folder holds another run.
    """
    if settings.seek is not None:
        return Seek(settings, path)
    if settings.until:
        return UntilDecided(prepare(settings), path)
    return FullGrid(Session.open(prepare(settings), path))


def unfinished(chosen_by_model: Mapping[str, Chosen], path: Path) -> list[str]:
    """Check all models, and return those that are not complete, by their folders in `path`.

    Raises NeedlemapError.
    """
    names = []
    for name, chosen in chosen_by_model.items():
        with naming(f"Model '{chosen.first.model}'"):
            check_price(chosen.first)
            ahead = [
                look_ahead(settings, path / name / family)
                for family, settings in chosen.families.items()
            ]
        if any(
            family_ahead.trials is None or family_ahead.trials != family_ahead.scored
            for family_ahead in ahead
        ):
            names.append(name)
    return names


async def try_servers(chosen_by_model: Mapping[str, Chosen]) -> None:
    """Make each of several models behind a server, as far as no request is needed.

    Raises NeedlemapError, e.g. for a key that is missing.
    """
    if "" in chosen_by_model:
        return
    for chosen in chosen_by_model.values():
        settings = chosen.first
        backend = find_backend(settings.backend)
        if backend.traits(settings.model_name, model_options(settings)).remote:
            await make_model(settings).close()


async def ask_families(
    campaign: Campaign, asking: FamiliesToAsk, model: str = ""
) -> dict[str, Outcome]:
    """Ask the families of one model that are not whole yet, in their order.

    Stops at one that ends as all others would. Returns how the asking of each ended.
    """
    outcomes: dict[str, Outcome] = {}
    for name, settings in asking.settled.items():
        try:
            family = asking.opened or open_family(settings, asking.families.folder(name))
        except LimitReached as error:
            campaign.observer.left_out(name, error)
            outcomes[name] = Outcome(stopped=str(error))
            break
        except NeedlemapError as error:
            campaign.observer.left_out(name, error)
            continue
        outcome = await family.ask(campaign, name, model)
        # Its prompts are freed before the next family's are built.
        del family
        if outcome is not None:
            outcomes[name] = outcome
            if outcome.over:
                break
    return outcomes


class ModelsObserver(RunObserver):
    """Observe the runs of several models. If there is only one, its name is ''."""

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """Start a model's families."""

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """Show how a model's families ended. An exception raised here ends the asking."""

    def leaves_model(self, name: str, error: NeedlemapError) -> None:
        """Raise the error of a model that cannot be asked, unless the others are to be asked."""
        raise error


class ModelsInTurn:
    """All families of each model, one model after the other.

    Each model gets an equal part of the remaining limits. A model that its part stopped is asked
    once more, if the others leave something. chosen_by_model: the families of each model, by the
    name of its folder in `path` ('' of a single one, which is opened at once). make: how each model
    is made, by that name. The only one is made now, if it is to be asked: what it lacks is reported
    before anything is shown. Raises NeedlemapError for what is wrong with any.
    """

    def __init__(
        self,
        chosen_by_model: Mapping[str, Chosen],
        path: Path,
        observer: ModelsObserver,
        make: Mapping[str, MakeModel] | None = None,
    ) -> None:
        folders = [
            path / name / family
            for name, chosen in chosen_by_model.items()
            for family in chosen.families
        ]
        self._chosen = chosen_by_model
        self._path = path
        self._observer = observer
        self._campaign = Campaign(folders, make, observer)
        self.only = FamiliesToAsk.of(chosen_by_model[""], path) if "" in chosen_by_model else None
        self._waiting = unfinished(chosen_by_model, path) if self.only is None else []
        if self.only is not None and self.only.opened is not None:
            session = self.only.opened.session
            if session.has_work and session.asks:
                model = self._campaign.make.get("", make_model)(session.experiment.settings)
                self._campaign.models[""] = model

    async def run(self) -> dict[str, dict[str, Outcome]]:
        """Ask model by model. Return how each family ended, by the models' names."""
        outcomes: dict[str, dict[str, Outcome]] = {}
        names = list(self._chosen)
        remaining = names
        async with self._campaign:
            while remaining:
                for name in remaining:
                    following = names[names.index(name) :]
                    self._campaign.sharing = max(1, len(set(following) & set(self._waiting)))
                    outcomes[name] = await self._ask(name)
                cut_short = [
                    name
                    for name in remaining
                    if any(outcome.stopped for outcome in outcomes[name].values())
                ]
                # A model that its part stopped gets what the others left, unless all were stopped.
                remaining = cut_short if len(cut_short) < len(remaining) else []
                self._waiting = unfinished(self._chosen, self._path) if remaining else []
        return outcomes

    async def _ask(self, name: str) -> dict[str, Outcome]:
        """Ask one model, and release it."""
        outcomes = dict[str, Outcome]()
        try:
            asking = self.only or FamiliesToAsk.of(self._chosen[name], self._path / name)
            self._observer.begins_model(name, asking)
            outcomes = await ask_families(self._campaign, asking, name)
        except NeedlemapError as error:
            await self._campaign.release(name)
            self._observer.leaves_model(name, error)
        else:
            await self._campaign.release(name)
            self._observer.ends_model(name, outcomes)
        return outcomes


def look_ahead(settings: Settings, path: Path) -> Ahead:
    """Find errors early, by building one prompt of the shortest length and one of the longest.

    Raise NeedlemapError if a source is missing or too short, if a question does not fit, if the
    haystack holds a word of the answer, or if the folder holds another run.
    """
    resolved, folder = resolve(settings), RunFolder(path, Kept.OUTLINES)
    if folder.exists and not is_unanswered(folder):
        check_same(folder, resolved)
    sample = prepare(_sampled(resolved))
    check_judge(sample)
    if resolved.ready:
        trials = len(sample.trials)
        return Ahead(trials, trials - len(unscored(folder, sample)))
    if settings.seek is not None:
        # A seek chooses its own lengths and depths.
        return Ahead(None, None)
    if settings.mode not in GRID_MODES:
        # Raises if the folder holds answers to other prompts.
        unscored(folder, sample)
    return _counted(resolved, folder)


def _sampled(resolved: Resolved) -> Settings:
    """Return settings of a run's corners, at their places in the whole.

    Prompts that exist already are all read.
    """
    settings, grid = resolved.settings, resolved.grid
    if resolved.ready:
        return settings
    mode = "exact" if settings.mode in GRID_MODES else settings.mode
    corners = {
        "lengths": Lengths.of(sorted({min(grid.lengths), max(grid.lengths)})),
        "depths": Depths.of([setting(grid.depths[0])]),
        "repeats": 1,
        "depth_rounding": "none",
        "mode": mode,
        "seek": None,
    }
    return settings.model_copy(update=corners)


def _counted(resolved: Resolved, folder: RunFolder) -> Ahead:
    """Count trials by the grid."""
    settings, grid = resolved.settings, resolved.grid
    places = {
        (repeat, cell.length_tokens, cell.depth)
        for cell in grid.cells
        for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats)
    }
    run_file = folder.run_file
    cells = run_file.cells if run_file else ()
    shared = run_file.shared if run_file else {}
    prompts = prompts_of(folder.records(), cells, shared)
    scored_places = {
        place for prompt in prompts if prompt.score is not None for place in prompt.places
    }
    return Ahead(len(places), len(places & scored_places))
