"""What the workers of a run share: the folder of one launch, and how its walk is cut into units.

RUN/launches/1, RUN/launches/2, ...: one for each, with units.json, the claims, the workers' presence files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import make_inside, read_regular
from needlemap.plan.order import ordered, shared
from needlemap.plan.units import Unit, make_units
from needlemap.runs.claims import Claims
from needlemap.runs.store import write_json
from needlemap.trials.build import Experiment
from needlemap.trials.repeat import Trial

_LAUNCHES = "launches"
_FILE = "units.json"


class _Units(BaseModel):
    """What units.json holds."""

    keys: str
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One launch's units. keys: hash of the keys of all the run's trials, in the order of its walk."""

    folder: Path
    units: tuple[Unit, ...]
    keys: str

    @property
    def claims(self) -> Claims:
        """Who does which."""
        return Claims(self.folder, len(self.units))


def lay_out(run: Path, experiment: Experiment, todo: Sequence[Trial], workers: int) -> Work:
    """Cut what is left to ask for so many workers, in a new folder of the run. todo: in the walk's order."""
    walk = ordered(experiment.trials, experiment.settings.mode, experiment.traits.side)
    cut = units_of(experiment, todo, workers)
    places = {trial.key: place for place, trial in enumerate(walk)}
    units = tuple(
        replace(unit, start=places[todo[unit.start].key], stop=places[todo[unit.stop - 1].key] + 1)
        for unit in cut
    )
    work = Work(next_folder(run), units, _hash(walk))
    make_inside(work.folder.parent)
    work.folder.mkdir(mode=0o700)
    write_json(work.folder / _FILE, {"keys": work.keys, "units": [asdict(unit) for unit in units]})
    return work


def units_of(experiment: Experiment, todo: Sequence[Trial], workers: int) -> tuple[Unit, ...]:
    """What is left to ask, cut for so many workers: ranges of todo, which is in the walk's order."""
    hands = workers * experiment.workers
    sizes = [trial.prompt.asked_tokens for trial in todo]
    return make_units(sizes, shared(todo, experiment.settings.mode), hands)


def load_work(folder: Path) -> Work:
    """The units of a launch."""
    try:
        found = _Units.model_validate_json(read_regular(folder / _FILE))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise NeedlemapError(f"'{folder / _FILE}' holds no units of this needlemap: {problem}.") from None
    return Work(folder, found.units, found.keys)


def unit_trials(work: Work, experiment: Experiment) -> list[tuple[Trial, ...]]:
    """The trials of each unit. Raises NeedlemapError when they are not those that the units were cut from."""
    walk = ordered(experiment.trials, experiment.settings.mode, experiment.traits.side)
    if _hash(walk) != work.keys:
        raise NeedlemapError(
            "This worker builds other prompts than the command that started it: haystack, tokenizer, model "
            "files or needlemap differ between the machines. Give paths that all see, and one environment."
        )
    return [tuple(walk[unit.start : unit.stop]) for unit in work.units]


def next_folder(run: Path) -> Path:
    """Where the next launch of a run lies."""
    number = 1 + max((int(folder.name) for folder in (run / _LAUNCHES).glob("[0-9]*")), default=0)
    return work_folder(run, number)


def work_folder(run: Path, number: int) -> Path:
    """Where a launch of a run lies."""
    return run / _LAUNCHES / str(number)


def _hash(walk: Iterable[Trial]) -> str:
    return hashlib.sha256("".join(trial.key for trial in walk).encode()).hexdigest()
