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

# Into which the depths are divided.
_STEPS = 100


class Seek(FullGrid):
    """Haystacks at the lengths that matter, batch by batch, until the length is known.

    Raises SettingsError if settings cannot be sought.
    """

    def __init__(self, settings: Settings, path: Path) -> None:
        self.settings, self._resolved = settings, resolve_sought(settings)
        self.axis = axis_of(settings.lengths)
        folder = RunFolder(path)
        experiment = (
            self._unfinished_experiment(folder)
            or self._next_experiment(folder)
            or self._finished_experiment(folder)
        )
        super().__init__(Session.open(experiment, path))
        if not self.session.todo:
            self.session = self._next_session_of(folder) or self.session

    def next_session(self, scored: int) -> Session | None:
        """Return the next haystacks, or None if the length is known or nothing came of the last."""
        return self._next_session_of(RunFolder(self.session.folder.path)) if scored else None

    def _next_session_of(self, folder: RunFolder) -> Session | None:
        experiment = self._next_experiment(folder)
        return None if experiment is None else Session.open(experiment, folder.path)

    def _unfinished_experiment(self, folder: RunFolder) -> Experiment | None:
        """Return the haystacks that an earlier start left unfinished."""
        records, asks = _read_run(folder)
        scored = {place_of(record) for record in records if record.scored}
        unfinished = {
            number: grid for number, grid in asks.items() if not _cells(number, grid) <= scored
        }
        return self._experiment(unfinished) if unfinished else None

    def _next_experiment(self, folder: RunFolder) -> Experiment | None:
        """Return haystacks of new numbers, or None once the length is known."""
        (records, asks), settings = _read_run(folder), self.settings
        counts_by_length, first_number = asked_in(records, self.axis), max(asks, default=-1) + 1
        counts = self.axis.first()
        if counts_by_length.asks.any():
            # It seeks.
            assert settings.seek is not None
            threshold = settings.seek / 100
            posterior = learn(self.axis, counts_by_length, threshold)
            size = np.array(batch_size(int(counts_by_length.asks.sum()), self._resolved.workers))
            counts = next_batch(posterior, counts_by_length, settings.within / 100, size, threshold)
        if not counts.any():
            return None
        lengths = np.repeat(self.axis.lengths, counts).tolist()
        return self._experiment(
            {
                number_of_ask: self._grid(number_of_ask, length)
                for number_of_ask, length in enumerate(lengths, first_number)
            }
        )

    def _finished_experiment(self, folder: RunFolder) -> Experiment:
        """Return the first haystack of a run that has its result: all its trials are scored."""
        asks = asks_of(folder.about().cells)
        return self._experiment({min(asks): asks[min(asks)]})

    def _grid(self, number: int, length: int) -> Grid:
        """Return one depth in each part of the depths, in whole hundredths.

        Cells come again in this way, and it shows whether their hits and misses do.
        """
        random, depths = Random(f"{self.settings.seed}:{number}"), self._resolved.grid.depths
        lowest, width = depths[0], depths[-1] - depths[0]
        steps = [round((part + random.random()) * _STEPS / PLACES) for part in range(PLACES)]
        shares = (round(lowest + width * step / _STEPS, 2) for step in steps)
        return Grid((length,), tuple(sorted(set(shares))))

    def _experiment(self, asks: Mapping[int, Grid]) -> Experiment:
        experiment = prepare_haystacks(self._resolved, list(asks.items()))
        return replace(experiment, grid=Grid(self.axis.lengths, self._resolved.grid.depths))


def resolve_sought(settings: Settings) -> Resolved:
    """Resolve the settings of a run that seeks. Raises SettingsError if they cannot be sought."""
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


def _read_run(folder: RunFolder) -> tuple[list[Record], dict[int, Grid]]:
    """Return a folder's records and asks; nothing of one that is to be taken over."""
    if not folder.exists or is_unanswered(folder):
        return [], {}
    return latest_records(folder.records()), asks_of(folder.about().cells)


def asks_of(cells: Iterable[Sequence[Any]]) -> dict[int, Grid]:
    """Return the length and the depths of each haystack, by repeat, from run.json's cells."""
    depths: dict[tuple[int, int], list[float]] = defaultdict(list)
    for length, depth, repeats in cells:
        for number in repeats:
            depths[number, length].append(depth)
    return {
        number: Grid((length,), tuple(depths_of_ask))
        for (number, length), depths_of_ask in sorted(depths.items())
    }


def _cells(number: int, grid: Grid) -> set[Place]:
    return {(number, cell.length_tokens, cell.depth) for cell in grid.cells}


def rehearsed(settings: Settings) -> dict[str, tuple[float, float, float]]:
    """Return what a seek would ask of made-up models, in prompt tokens.

    These are the 10 %, median and 90 % by kind of model.
    """
    resolve_sought(settings)
    axis, threshold = axis_of(settings.lengths), float(settings.seek or 0) / 100
    return tokens_by_kind(axis, threshold, settings.within / 100)
