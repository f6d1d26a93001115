"""Where a run can be logged: `wandb:PROJECT` and `tensorboard:FOLDER`, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from needlemap.errors import SettingsError, did_you_mean
from needlemap.maps.effective import RULES
from needlemap.reports.labels import told_apart
from needlemap.reports.log_tensorboard import log_tensorboard
from needlemap.reports.log_wandb import log_wandb
from needlemap.reports.logged import Logged, logged
from needlemap.runs.loaded import Loaded

TRACKERS: dict[str, Callable[[Sequence[Logged], str, int], list[str]]] = {
    "tensorboard": log_tensorboard,
    "wandb": log_wandb,
}
WRITTEN = "--log wandb:PROJECT or --log tensorboard:FOLDER"


@dataclass(frozen=True, slots=True)
class Tracker:
    """kind: a name of TRACKERS; place: the project, or the folder."""

    kind: str
    place: str


def parse_tracker(text: str) -> Tracker:
    """From KIND:PLACE. Raises SettingsError.

    >>> parse_tracker("wandb:team/needles")
    Tracker(kind='wandb', place='team/needles')
    """
    kind, _, place = text.partition(":")
    if kind not in TRACKERS:
        raise SettingsError(f"Cannot log to '{kind}'. {did_you_mean(kind, TRACKERS)} Write {WRITTEN}.")
    if not place:
        raise SettingsError(
            f"Log to which {'folder' if kind == 'tensorboard' else 'project'}? Write {WRITTEN}."
        )
    return Tracker(kind, place)


def log_runs(
    runs: Sequence[Loaded],
    tracker: Tracker,
    step: int,
    *,
    title: str | None = None,
    palette: str = "amber",
    rules: tuple[str, ...] = RULES,
) -> list[str]:
    """Log runs, each by its model's name; where they are, or what to type to see them."""
    names = told_apart([run.map.model for run in runs], [Path(run.path) for run in runs])
    told = [logged(run, name, title, palette, rules) for run, name in zip(runs, names, strict=True)]
    return TRACKERS[tracker.kind](told, tracker.place, step)
