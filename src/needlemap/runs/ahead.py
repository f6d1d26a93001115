"""What a long command can know of a run before its turn comes: what is wrong with it, and what is left of it.

Nothing is kept: the run's prompts are built when it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from needlemap.runs.begun import GRID_MODES, check_same, is_unanswered, unscored
from needlemap.runs.session import check_judge
from needlemap.runs.store import RunFolder
from needlemap.settings.grid import setting
from needlemap.settings.settings import Settings
from needlemap.trials.build import prepare
from needlemap.trials.resolve import Resolved, resolve


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many trials a run has, and how many of them are scored; None where only its prompts tell."""

    trials: int | None
    scored: int | None


def look_ahead(settings: Settings, path: Path) -> Ahead:
    """Find what is wrong by building one prompt of the shortest length and one of the longest.

    That much finds a source that is missing or too short, a question that does not fit, a word that the
    haystack holds, and a folder of another run. Raises NeedlemapError.
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
    """Settings of a run's corners, at their places in the whole; prompts that exist already are all read."""
    settings, grid = resolved.settings, resolved.grid
    if resolved.ready:
        return settings
    mode = "exact" if settings.mode in GRID_MODES else settings.mode
    lengths, depths = sorted({min(grid.lengths), max(grid.lengths)}), [setting(grid.depths[0])]
    corners = {"lengths": lengths, "depths": depths, "repeats": 1, "depth_rounding": "none", "mode": mode}
    return settings.model_copy(update=corners)


def _counted(resolved: Resolved, folder: RunFolder) -> Ahead:
    """By the grid; a lattice chooses its own depths."""
    settings, grid = resolved.settings, resolved.grid
    if settings.mode == "lattice":
        return Ahead(None, None)
    asked = {
        (cell.length_tokens, cell.depth, repeat)
        for cell in grid.cells
        for repeat in range(settings.first_repeat, settings.first_repeat + settings.repeats)
    }
    done = {
        (record.length_tokens, record.depth, record.repeat) for record in folder.records() if record.scored
    }
    return Ahead(len(asked), len(asked & done))
