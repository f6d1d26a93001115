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
    """How many trials a family has, and how many of them are scored; None where only its
    prompts tell."""

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
        """Look at the folder, which may not be there yet. Raises NeedlemapError."""
        names = tuple(chosen.families)
        if not chosen.suite:
            opened = open_family(chosen.first, path)
            return cls(begin_families(path, "", names), chosen.families, (), opened)
        if any(settings.until for settings in chosen.families.values()):
            whole = f"run it whole, then: needlemap compare REFERENCE {path} --sequential"
            both = f"needlemap ab suite:{chosen.suite}"
            raise SettingsError(
                f"--until stops one family. Of a suite {whole}. Or {both}, which stops."
            )
        ahead = []
        for name, settings in chosen.families.items():
            with naming_family(name):
                ahead.append(look_ahead(settings, path / name))
        return cls(
            begin_families(path, chosen.suite, names, chosen.scores), chosen.families, tuple(ahead)
        )


def open_family(settings: Settings, path: Path) -> FullGrid:
    """What asks a family as its settings want, and what it asks first. Raises
    NeedlemapError."""
    if settings.seek is not None:
        return Seek(settings, path)
    if settings.until:
        return UntilDecided(prepare(settings), path)
    return FullGrid(Session.open(prepare(settings), path))


def unfinished(each: Mapping[str, Chosen], path: Path) -> list[str]:
    """The models that are not complete yet, by the names of their folders in `path`.

    Checks all of them first. Raises NeedlemapError.
    """
    found = []
    for name, chosen in each.items():
        with naming(f"Model '{chosen.first.model}'"):
            check_price(chosen.first)
            ahead = [
                look_ahead(settings, path / name / family)
                for family, settings in chosen.families.items()
            ]
        if any(part.trials is None or part.trials != part.scored for part in ahead):
            found.append(name)
    return found


async def try_servers(each: Mapping[str, Chosen]) -> None:
    """Reach for every one of several models that a server has, so far as no request is needed.
    Raises NeedlemapError, as for a key that is missing."""
    for chosen in each.values() if "" not in each else ():
        settings = chosen.first
        if (
            find_backend(settings.backend)
            .traits(settings.model_name, model_options(settings))
            .remote
        ):
            await make_model(settings).close()


async def ask_families(
    campaign: Campaign, asking: FamiliesToAsk, model: str = ""
) -> dict[str, Outcome]:
    """Ask the families of one model that are not whole yet, in their order, until one ends as all
    others would. Returns how the asking of each ended."""
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
    """Hears also how the asking of each model goes, named '' where there is one."""

    def begins_model(self, name: str, asking: FamiliesToAsk) -> None:
        """A model's families are about to be asked."""

    def ends_model(self, name: str, outcomes: Mapping[str, Outcome]) -> None:
        """A model's families were asked. What it raises ends the asking."""

    def leaves_model(self, name: str, error: NeedlemapError) -> None:
        """A model cannot be asked. Raises the error, unless the others are to be asked."""
        raise error


class ModelsInTurn:
    """All families of each model, one model after the other.

    Each model gets an equal part of the remaining limits. A model that its part stopped is
    asked once more, if the others leave something. each: the families of each model, by the
    name of its folder in `path` ('' of a single one, which is opened at once). make: how each
    model is made, by that name. The only one is made now, if it is to be asked: what it lacks is
    said before anything is shown. Raises NeedlemapError for what is wrong with any.
    """

    def __init__(
        self,
        each: Mapping[str, Chosen],
        path: Path,
        observer: ModelsObserver,
        make: Mapping[str, MakeModel] | None = None,
    ) -> None:
        folders = [path / name / family for name, of in each.items() for family in of.families]
        self._each, self._path, self._observer = each, path, observer
        self._campaign = Campaign(folders, make, observer)
        self.only = FamiliesToAsk.of(each[""], path) if "" in each else None
        self._waiting = unfinished(each, path) if self.only is None else []
        if self.only is not None and self.only.opened is not None:
            session = self.only.opened.session
            if session.wanted and session.asks:
                made = self._campaign.make.get("", make_model)(session.experiment.settings)
                self._campaign.models[""] = made

    async def run(self) -> dict[str, dict[str, Outcome]]:
        """Ask model by model. Returns how each family ended, by the models' names."""
        outcomes, left = dict[str, dict[str, Outcome]](), list(self._each)
        async with self._campaign:
            while left:
                for name in left:
                    behind = list(self._each)[list(self._each).index(name) :]
                    self._campaign.sharing = max(1, len(set(behind) & set(self._waiting)))
                    outcomes[name] = await self._ask(name)
                cut = [
                    name for name in left if any(each.stopped for each in outcomes[name].values())
                ]
                left = cut if len(cut) < len(left) else []
                self._waiting = unfinished(self._each, self._path) if left else []
        return outcomes

    async def _ask(self, name: str) -> dict[str, Outcome]:
        """Ask one model, and let go of it."""
        outcomes = dict[str, Outcome]()
        try:
            asking = self.only or FamiliesToAsk.of(self._each[name], self._path / name)
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

    This finds a source that is missing or too short, a question that does not fit, a word that
    the haystack holds, and a folder of another run. Raises NeedlemapError.
    """
    resolved, folder = resolve(settings), RunFolder(path, Kept.OUTLINES)
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
    """Settings of a run's corners, at their places in the whole; prompts that exist already
    are all read."""
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
    """By the grid; a seek chooses its own lengths and depths."""
    settings, grid = resolved.settings, resolved.grid
    if settings.seek is not None:
        return Ahead(None, None)
    asked = {
        (repeat, cell.length_tokens, cell.depth)
        for cell in grid.cells
        for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats)
    }
    begun = folder.run_file
    cells, shared = (begun.cells, begun.shared) if begun else ((), {})
    prompts = prompts_of(folder.records(), cells, shared)
    done = {place for prompt in prompts if prompt.score is not None for place in prompt.places}
    return Ahead(len(asked), len(asked & done))
