"""What a run that seeks has asked, counted by length: haystacks, trials, hits, and by cell.

All arrays may have leading axes, one entry a map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError
from needlemap.maps import Array
from needlemap.maps.smooth import DEPTH_CELLS, matern_curves
from needlemap.settings.grid import make_grid

if TYPE_CHECKING:
    from needlemap.records.record import Record

PLACES = 8  # depths of an ask
SPACING = 1 / 8  # octaves between lengths
_SCALE, _SPREAD = 4.0, 3.0  # of the curve: octaves over which it is alike, and its spread on the logit
_RANK = 24
LEAST_EFFECT, _PRIOR_EFFECT, _PRIOR_ASKS = 1.4, 2.0, 8.0


@dataclass(frozen=True)
class Axis:
    """Lengths in tokens, an eighth of an octave apart from the shortest to the longest."""

    lengths: tuple[int, ...]

    @classmethod
    def between(cls, low: int, high: int) -> Axis:
        """From the shortest to the longest, both included."""
        count = max(2, round(log2(high / low) / SPACING) + 1)
        return cls(tuple(sorted({round(each) for each in np.geomspace(low, high, count).tolist()})))

    @cached_property
    def logs(self) -> Array:
        """Octaves."""
        return np.log2(np.array(self.lengths, dtype=np.float64))

    @cached_property
    def basis(self) -> Array:
        """(lengths, rank): curves of which the process's are sums with standard normal weights."""
        return matern_curves(self.logs, _SCALE, _SPREAD, _RANK)

    def place(self, length: int) -> int:
        """The number of the nearest length."""
        return int(np.abs(self.logs - log2(length)).argmin())

    def first(self) -> NDArray[np.int64]:
        """Haystacks to begin with, by length: one at the shortest, the middle, three quarters of the way."""
        last = len(self.lengths) - 1
        asks = np.zeros(len(self.lengths), dtype=np.int64)
        asks[[0, round(last / 2), round(0.75 * last)]] = 1
        return asks


@dataclass(frozen=True)
class Asked:
    """What was asked so far, by length: (..., lengths). asks: haystacks; trials: scored prompts; hits: their
    scores' sum. Sums over asks: squares, of their hits squared; sizes, of their trials squared; crosses, of
    the product of both."""

    asks: Array
    trials: Array
    hits: Array
    squares: Array
    sizes: Array
    crosses: Array

    @classmethod
    def nothing(cls, *shape: int) -> Asked:
        """Before the first ask: shape is (..., lengths)."""
        return cls(*(np.zeros(shape) for _ in range(6)))

    @classmethod
    def of(cls, axis: Axis, asks: Iterable[tuple[int, float, int]]) -> Asked:
        """Of one map, from each ask's length in tokens, hits and trials; at the axis' nearest length."""
        made = cls.nothing(len(axis.lengths))
        for length, hits, trials in asks:
            made.add((axis.place(length),), np.array(hits), np.array(trials))
        return made

    def add(self, at: Any, hits: Array, trials: Array) -> None:
        """Count asks, each with its hits of so many trials, at their places."""
        for array, values in (
            (self.asks, 1),
            (self.trials, trials),
            (self.hits, hits),
            (self.squares, hits**2),
            (self.sizes, trials**2),
            (self.crosses, hits * trials),
        ):
            np.add.at(array, at, values)

    def part(self, chosen: NDArray[np.int64]) -> Asked:
        """Of some of the maps."""
        return Asked(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def design_effect(self) -> Array:
        """By how much haystacks differ more than chance: the variance of asks of one length over that of
        independent trials, pooled over lengths, drawn to _PRIOR_EFFECT while little is asked, at least
        LEAST_EFFECT (Kish 1965, Survey Sampling, section 8.2): (...)."""
        trials = np.maximum(self.trials, 1)
        rates = self.hits / trials
        seen = np.maximum(self.squares - 2 * rates * self.crosses + rates**2 * self.sizes, 0)
        expected = rates * (1 - rates) * (self.trials - self.sizes / trials)
        prior = _PRIOR_ASKS * PLACES * 0.85 * 0.15
        pooled = (seen.sum(-1) + prior * _PRIOR_EFFECT) / (expected.sum(-1) + prior)
        return np.asarray(np.maximum(LEAST_EFFECT, pooled))


def axis_of(lengths: Any, depths: Any) -> Axis:
    """Of settings as they are typed or kept. Raises SettingsError."""
    found = make_grid(lengths, depths).lengths
    if len(found) < 2:
        raise SettingsError("--seek needs a shortest and a longest length, as --lengths 1k,128k.")
    return Axis.between(found[0], found[-1])


def asked_in(records: Iterable[Record], axis: Axis) -> Asked:
    """What a run's records say, haystack by haystack."""
    scores: dict[tuple[int, int], list[float]] = defaultdict(list)
    for record in records:
        if record.score is not None:
            scores[record.repeat, record.length_tokens].append(record.score)
    return Asked.of(axis, ((length, sum(each), len(each)) for (_, length), each in scores.items()))


def cells_in(records: Iterable[Record], axis: Axis) -> tuple[Array, Array]:
    """Hits and trials by length and whole percent of depth."""
    hits, trials = np.zeros((2, len(axis.lengths), DEPTH_CELLS))
    for record in records:
        if record.score is not None:
            at = axis.place(record.length_tokens), round(100 * record.depth)
            hits[at] += record.score
            trials[at] += 1
    return hits, trials
