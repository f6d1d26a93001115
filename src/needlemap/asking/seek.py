"""`run --seek 85`: effective length by asking where it matters; which haystacks come next.

An ask is a repeat of its own: its number fixes its documents, its needle and its depths, so that the same
command goes on where another start ended. Records are ordinary ones. What is known follows from them alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log
from random import Random
from typing import Any

import numpy as np

from needlemap.asking.resume import is_unanswered
from needlemap.errors import SettingsError
from needlemap.maps import Array, latest_records
from needlemap.maps.asked import PLACES, Axis, asked_in, axis_of
from needlemap.maps.seek import batch_size, learn, next_batch, rehearse
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings import Settings, lender_of
from needlemap.settings.grid import Cell, Grid
from needlemap.trials.build import Experiment, prepare_haystacks
from needlemap.trials.resolve import resolve

_STEPS = 100  # of the depths
Asks = Mapping[int, Sequence[Cell]]  # by repeat, the cells of its haystack


class Seeker:
    """What a run that seeks is to ask, batch by batch. Raises SettingsError where it cannot."""

    def __init__(self, settings: Settings) -> None:
        check_seek(settings)
        self.settings, self._resolved = settings, resolve(settings)
        if self._resolved.ready or lender_of(settings) is not None:
            raise SettingsError("--seek makes its own prompts, and these exist already. Leave --seek out.")
        self.axis = axis_of(settings.lengths, settings.depths)
        self._resumed = False

    def batch(self, folder: RunFolder) -> Experiment | None:
        """The next haystacks: first those that an earlier start left unfinished; None when it is known."""
        known = folder.exists and not is_unanswered(folder)
        records = latest_records(folder.records()) if known else []
        asks = _asks_of(folder.about()["cells"]) if known else {}
        if not self._resumed:
            self._resumed = True
            scored = {(each.repeat, each.length_tokens, each.depth) for each in records if each.scored}
            left = {
                number: cells
                for number, cells in asks.items()
                if any((number, cell.length_tokens, cell.depth) not in scored for cell in cells)
            }
            if left:
                return self._experiment(left)
        return self._next(records, max(asks, default=-1) + 1)

    def _next(self, records: Sequence[Record], number: int) -> Experiment | None:
        """Of haystacks that nobody asked yet, from this number on."""
        asked, settings = asked_in(records, self.axis), self.settings
        counts = self.axis.first()
        if asked.asks.any():
            assert settings.seek is not None  # it seeks
            known = learn(self.axis, asked, settings.seek / 100)
            size = batch_size(int(asked.asks.sum()), self._resolved.workers)
            counts = next_batch(known, asked, settings.within / 100, np.array(size))
        if not counts.any():
            return None
        lengths = np.repeat(self.axis.lengths, counts).tolist()
        return self._experiment(
            {number + at: self._cells(number + at, length) for at, length in enumerate(lengths)}
        )

    def finished(self, folder: RunFolder) -> Experiment:
        """Of a run that is known, its first haystack: all of it is scored."""
        asks = _asks_of(folder.about()["cells"])
        return self._experiment({min(asks): asks[min(asks)]})

    def _cells(self, number: int, length: int) -> list[Cell]:
        """One depth in each part of the depths, whole hundredths of them: so cells come again, and it is seen
        whether their hits and misses do."""
        random, depths = Random(f"{self.settings.seed}:{number}"), self._resolved.grid.depths
        low, wide = depths[0], depths[-1] - depths[0]
        steps = [round((at + random.random()) * _STEPS / PLACES) for at in range(PLACES)]
        shares = (round(low + wide * step / _STEPS, 2) for step in steps)
        return [Cell(length, share) for share in sorted(set(shares))]

    def _experiment(self, asks: Asks) -> Experiment:
        each = [
            (number, Grid((cells[0].length_tokens,), tuple(cell.depth for cell in cells)))
            for number, cells in asks.items()
        ]
        made = prepare_haystacks(self._resolved, each)
        return replace(made, grid=Grid(self.axis.lengths, self._resolved.grid.depths))


def check_seek(settings: Settings) -> None:
    """Raises SettingsError for what does not go with seeking."""
    if settings.mode not in ("exact", "single"):
        raise SettingsError(f"--seek asks haystacks one by one: leave --mode {settings.mode} out.")
    if settings.until:
        raise SettingsError("--seek and --until both choose what is asked. Give one.")


def _asks_of(cells: Iterable[Sequence[Any]]) -> dict[int, list[Cell]]:
    """By repeat, from run.json's cells."""
    asks: dict[int, list[Cell]] = defaultdict(list)
    for length, depth, repeats in cells:
        for number in repeats:
            asks[number].append(Cell(length, depth))
    return dict(sorted(asks.items()))


_MODELS = 12  # made-up ones of each kind that a plan is reckoned with
_ALIKE = 0.1  # intraclass correlation of a haystack's answers in a plan
_MOST = 400  # times the longest length, asked PLACES times: where a plan's models give up


def rehearsed(settings: Settings) -> dict[str, tuple[float, float, float]]:
    """What a seek would ask of made-up models, in prompt tokens: 10 %, median and 90 % by kind of model."""
    seeker, found = Seeker(settings), {}
    axis, threshold = seeker.axis, float(settings.seek or 0) / 100
    for name, curve in _curves(axis, threshold).items():
        answer = partial(_answers, np.random.default_rng(0), curve)
        most = _MOST * PLACES * axis.lengths[-1]
        asked, _ = rehearse(
            axis, answer, _MODELS, threshold=threshold, within=settings.within / 100, most_tokens=most
        )
        tokens = (asked.trials * np.array(axis.lengths)).sum(axis=-1)
        low, middle, high = np.quantile(tokens, [0.1, 0.5, 0.9]).tolist()
        found[name] = low, middle, high
    return found


def _curves(axis: Axis, threshold: float) -> dict[str, Array]:
    """Chances by length: falls through the threshold at a place, by so many logits an octave, or none."""
    octaves, level = axis.logs - axis.logs[0], log(threshold / (1 - threshold))
    falls = {
        "fails at the shortest lengths": (-0.2, 2.0),
        "falls steeply in the first half": (0.35, 3.0),
        "falls steeply in the second half": (0.7, 3.0),
        "falls slowly in the middle": (0.5, 0.8),
    }
    found = {
        name: np.asarray(1 / (1 + np.exp(slope * (octaves - share * octaves[-1]) - level)))
        for name, (share, slope) in falls.items()
    }
    return found | {"holds to the end": np.full(octaves.shape, (3 + threshold) / 4)}


def _answers(random: np.random.Generator, curve: Array, _: Array, at: Array) -> Array:
    chance, heft = curve[at], 1 / _ALIKE - 1
    return np.asarray(random.binomial(PLACES, random.beta(heft * chance, heft * (1 - chance))))
