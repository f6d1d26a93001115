"""A run from start to end: one family after the other, with one model and one budget.

A family's prompts are built when its turn comes and let go of when it is done, so that many
families need no more memory, and their first request waits no longer, than few. What is wrong with
any of several is looked for before the first is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from needlemap.asking import Outcome
from needlemap.asking.campaign import (
    Batches,
    Campaign,
    Face,
    FullGrid,
    MakeModel,
    Share,
    Strategy,
)
from needlemap.asking.resume import GRID_MODES, check_same, is_unanswered, unscored
from needlemap.asking.seek import Seek
from needlemap.asking.session import Session, check_judge, check_price, make_model
from needlemap.asking.until import UntilDecided
from needlemap.deadline import LimitReached
from needlemap.errors import NeedlemapError, SettingsError, naming
from needlemap.grid import setting
from needlemap.maps import prompts_of
from needlemap.models import Model, find_backend
from needlemap.records.families import Families, begin_families
from needlemap.records.folder import RunFolder
from needlemap.settings import Settings
from needlemap.settings.suites import Chosen
from needlemap.trials.build import prepare
from needlemap.trials.resolve import Resolved, model_options, resolve


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
    opened: FullGrid | None = None
    model: Model | None = None

    @classmethod
    def of(cls, chosen: Chosen, path: Path, make: MakeModel = make_model) -> Asking:
        """Look at the folder, which may not be there yet. Raises NeedlemapError."""
        names = tuple(chosen.families)
        if not chosen.suite:
            opened = open_family(chosen.first, path)
            session = opened.session
            model = make(chosen.first) if session.wanted and session.asks else None
            return cls(begin_families(path, "", names), chosen.families, (), opened, model)
        if any(settings.until for settings in chosen.families.values()):
            whole = f"run it whole, then: needlemap compare REFERENCE {path} --sequential"
            both = f"needlemap ab suite:{chosen.suite}"
            raise SettingsError(
                f"--until stops one family. Of a suite {whole}. Or {both}, which stops."
            )
        ahead = []
        for name, settings in chosen.families.items():
            with naming(f"Family '{name}'"):
                ahead.append(look_ahead(settings, path / name))
        return cls(begin_families(path, chosen.suite, names), chosen.families, tuple(ahead))


def open_family(settings: Settings, path: Path) -> FullGrid:
    """What asks a family as its settings want, and what it asks first. Raises NeedlemapError."""
    if settings.seek is not None:
        return Seek(settings, path)
    if settings.until:
        return UntilDecided(prepare(settings), path)
    return FullGrid(Session.open(prepare(settings), path))


def share_out(each: Mapping[str, Chosen], path: Path) -> dict[str, Share]:
    """The shares of runs of several models, by the names of their folders in `path`.

    Finds what is wrong with any of them before the first is asked. Raises NeedlemapError.
    """
    waiting, folders = list[str](), dict[str, list[Path]]()
    for name, chosen in each.items():
        folders[name] = [path / name / family for family in chosen.families]
        with naming(f"Model '{chosen.first.model}'"):
            check_price(chosen.first)
            ahead = [
                look_ahead(settings, path / name / family)
                for family, settings in chosen.families.items()
            ]
        if any(part.trials is None or part.trials != part.scored for part in ahead):
            waiting.append(name)
    shares = {}
    for name in each:
        beside = [folder for other in each if other != name for folder in folders[other]]
        shares[name] = Share(tuple(beside), max(1, len(waiting)))
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


class FamiliesInTurn(Strategy[dict[str, Outcome]]):
    """The families that are not whole yet, in their order, until one ends as all others would.
    Finds how the asking of each ended."""

    def __init__(self, asking: Asking, face: Face) -> None:
        super().__init__(face, map(asking.families.folder, asking.families.names))
        self._asking = asking

    def batches(self) -> Batches[dict[str, Outcome]]:
        """Family by family."""
        outcomes: dict[str, Outcome] = {}
        for name, settings in self._asking.settled.items():
            if (outcome := (yield from self._turn(name, settings))) is not None:
                outcomes[name] = outcome
                if outcome.over:
                    break
        return outcomes

    def _turn(self, name: str, settings: Settings) -> Batches[Outcome | None]:
        """Prepare a family, ask it, and let go of its prompts."""
        asking = self._asking
        try:
            family = asking.opened or open_family(settings, asking.families.folder(name))
        except LimitReached as error:
            self.face.left_out(name, error)
            return Outcome(stopped=str(error))
        except NeedlemapError as error:
            self.face.left_out(name, error)
            return None
        family.face, family.name = self.face, name
        return (yield from family.batches())


def campaign_of(
    asking: Asking, make: MakeModel = make_model, share: Share | None = None
) -> Campaign:
    """The campaign of one model. share: where other models are asked beside it."""
    made = {} if asking.model is None else {"": asking.model}
    return Campaign({"": make}, made, share or Share((), 1))


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
    begun = folder.begun
    cells, shared = (begun.cells, begun.shared) if begun else ((), {})
    prompts = prompts_of(folder.records(), cells, shared)
    done = {place for prompt in prompts if prompt.score is not None for place in prompt.places}
    return Ahead(len(asked), len(asked & done))
