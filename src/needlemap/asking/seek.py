"""A run that seeks the effective length by asking where that matters: `run --seek 85`.

An ask is a repeat of its own: its number fixes its documents, its needle and its depths, so
that the same command goes on where another start ended. Records are ordinary ones. The result
follows from them alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from needlemap.asking.campaign import FullGrid
from needlemap.asking.resume import is_unanswered
from needlemap.asking.session import Session
from needlemap.errors import SettingsError
from needlemap.grid import Grid
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings import Settings, prompt_source_of
from needlemap.stats import Place, latest_records, place_of
from needlemap.stats.rehearsal import tokens_by_kind
from needlemap.stats.seek import PLACES, asked_in, axis_of, batch_size, learn, next_batch
from needlemap.trials.build import Experiment, prepare_haystacks
from needlemap.trials.resolve import Resolved, resolve

_STEPS = 100  # of the depths


class Seek(FullGrid):
    """Haystacks where they matter, batch by batch, until the length is known. Raises
    SettingsError where settings cannot be sought."""

    def __init__(self, settings: Settings, path: Path) -> None:
        self.settings, self._resolved = settings, resolve_sought(settings)
        self.axis = axis_of(settings.lengths)
        folder = RunFolder(path)
        first = self._unfinished(folder) or self._following(folder) or self._finished(folder)
        super().__init__(Session.open(first, path))
        if not self.session.todo:
            self.session = self._after(folder) or self.session

    def next(self, scored: int) -> Session | None:
        """The next haystacks, None when it is known, or when nothing came of the last."""
        return self._after(RunFolder(self.session.folder.path)) if scored else None

    def _after(self, folder: RunFolder) -> Session | None:
        found = self._following(folder)
        return None if found is None else Session.open(found, folder.path)

    def _unfinished(self, folder: RunFolder) -> Experiment | None:
        """Haystacks that an earlier start left unfinished."""
        records, asks = _known(folder)
        scored = {place_of(each) for each in records if each.scored}
        left = {number: grid for number, grid in asks.items() if not _cells(number, grid) <= scored}
        return self._experiment(left) if left else None

    def _following(self, folder: RunFolder) -> Experiment | None:
        """Haystacks of new numbers; None when the length is known."""
        (records, asks), settings = _known(folder), self.settings
        asked, number = asked_in(records, self.axis), max(asks, default=-1) + 1
        counts = self.axis.first()
        if asked.asks.any():
            assert settings.seek is not None  # it seeks
            threshold = settings.seek / 100
            known = learn(self.axis, asked, threshold)
            size = np.array(batch_size(int(asked.asks.sum()), self._resolved.workers))
            counts = next_batch(known, asked, settings.within / 100, size, threshold)
        if not counts.any():
            return None
        lengths = np.repeat(self.axis.lengths, counts).tolist()
        return self._experiment(
            {at: self._grid(at, length) for at, length in enumerate(lengths, number)}
        )

    def _finished(self, folder: RunFolder) -> Experiment:
        """The first haystack of a run that has its result: all its trials are scored."""
        asks = asks_of(folder.about().cells)
        return self._experiment({min(asks): asks[min(asks)]})

    def _grid(self, number: int, length: int) -> Grid:
        """One depth in each part of the depths, whole hundredths of them: so cells come again,
        and it is seen whether their hits and misses do."""
        random, depths = Random(f"{self.settings.seed}:{number}"), self._resolved.grid.depths
        low, wide = depths[0], depths[-1] - depths[0]
        steps = [round((at + random.random()) * _STEPS / PLACES) for at in range(PLACES)]
        shares = (round(low + wide * step / _STEPS, 2) for step in steps)
        return Grid((length,), tuple(sorted(set(shares))))

    def _experiment(self, asks: Mapping[int, Grid]) -> Experiment:
        made = prepare_haystacks(self._resolved, list(asks.items()))
        return replace(made, grid=Grid(self.axis.lengths, self._resolved.grid.depths))


def resolve_sought(settings: Settings) -> Resolved:
    """What the settings of a run that seeks come to. Raises SettingsError where they
    cannot."""
    if settings.mode not in ("exact", "single"):
        raise SettingsError(f"--seek asks haystacks one by one: leave --mode {settings.mode} out.")
    if settings.until:
        raise SettingsError("--seek and --until both choose what is asked. Give one.")
    resolved = resolve(settings)
    if resolved.ready or prompt_source_of(settings) is not None:
        raise SettingsError(
            "--seek makes its own prompts, and these exist already. Leave --seek out."
        )
    return resolved


def _known(folder: RunFolder) -> tuple[list[Record], dict[int, Grid]]:
    """A folder's records, and what was asked; nothing of one that is to be taken over."""
    if not folder.exists or is_unanswered(folder):
        return [], {}
    return latest_records(folder.records()), asks_of(folder.about().cells)


def asks_of(cells: Iterable[Sequence[Any]]) -> dict[int, Grid]:
    """By repeat the length and the depths of its haystack, from run.json's cells."""
    depths: dict[tuple[int, int], list[float]] = defaultdict(list)
    for length, depth, repeats in cells:
        for number in repeats:
            depths[number, length].append(depth)
    return {
        number: Grid((length,), tuple(each)) for (number, length), each in sorted(depths.items())
    }


def _cells(number: int, grid: Grid) -> set[Place]:
    return {(number, cell.length_tokens, cell.depth) for cell in grid.cells}


def rehearsed(settings: Settings) -> dict[str, tuple[float, float, float]]:
    """What a seek would ask of made-up models, in prompt tokens: 10 %, median and 90 % by kind
    of model."""
    resolve_sought(settings)
    axis, threshold = axis_of(settings.lengths), float(settings.seek or 0) / 100
    return tokens_by_kind(axis, threshold, settings.within / 100)
