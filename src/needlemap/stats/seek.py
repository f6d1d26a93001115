"""Seek the effective length with haystacks asked where it matters.

An *ask* is one fresh haystack at one length, with PLACES depths, one drawn in each equal part.
A smooth curve of the score over the logarithm of the length is fitted to all asks (a Gaussian
process on the logit, Laplace's approximation: Rasmussen and Williams 2006, section 3.4); no
fall is assumed, so that a dip stays a dip. Curves drawn from it cross the threshold first
somewhere: that is what is known. Pure; all arrays may have leading axes, one entry a map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import ceil, inf, log, log2
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError
from needlemap.grid import Lengths
from needlemap.stats import Array
from needlemap.stats.gaussian import DEPTH_CELLS, is_rough, matern_curves, newton

if TYPE_CHECKING:
    from needlemap.records.record import Record
    from needlemap.records.run_file import RunFile

# Depths of an ask.
PLACES = 8
# Octaves between lengths.
SPACING = 1 / 8
# Octaves over which the curve is alike, and its spread on the logit.
_SCALE = 4.0
_SPREAD = 3.0
_RANK = 24
LEAST_DESIGN_EFFECT, _PRIOR_EFFECT, _PRIOR_ASKS = 1.4, 2.0, 8.0
_DRAWS, _SEED = 300, 0
_STEPS = 6
_GROWTH, _CHUNKS = 5, 4
# A score this near to the threshold crawls through it.
_NEAR = 0.08
# Plain grids of 15 x 15 whose tokens a seek takes at most.
GRIDS = 4.0
GRID = 15
# Of these grids, what is kept for a last look between the asked lengths.
_KEPT = 1.0
# Spacings between asked lengths at most: no hole of half an octave lies between.
_GAP = 3
# Haystacks at a length whose own score contradicts the curve.
_DOUBTS = 4
# Standard deviations from which that length's score is below, whatever the curve says.
_SURE = 3.0


@dataclass(frozen=True)
class LengthAxis:
    """Lengths in tokens, an eighth of an octave apart from the shortest to the longest."""

    lengths: tuple[int, ...]

    @classmethod
    def between(cls, low: int, high: int) -> LengthAxis:
        """Return the axis from the shortest to the longest length, both included."""
        count = max(2, round(log2(high / low) / SPACING) + 1)
        lengths = {round(length) for length in np.geomspace(low, high, count).tolist()}
        return cls(tuple(sorted(lengths)))

    @cached_property
    def logs(self) -> Array:
        """Return the lengths in octaves."""
        return np.log2(np.array(self.lengths, dtype=np.float64))

    @cached_property
    def basis(self) -> Array:
        """Return curves, (lengths, rank), whose sums with standard normal weights are drawn."""
        return matern_curves(self.logs, _SCALE, _SPREAD, _RANK)

    def nearest(self, length: int) -> int:
        """Return the index of the nearest length."""
        return int(np.abs(self.logs - log2(length)).argmin())

    def first(self) -> NDArray[np.int64]:
        """Return the number of haystacks to start with, by length.

        There is one at the shortest length, one at the middle, and one at three quarters.
        """
        last_index = len(self.lengths) - 1
        asks = np.zeros(len(self.lengths), dtype=np.int64)
        asks[[0, round(last_index / 2), round(0.75 * last_index)]] = 1
        return asks


@dataclass(frozen=True)
class LengthAsks:
    """What was asked so far, by length: (..., lengths).

    Attributes:
        asks: haystacks.
        trials: scored prompts.
        hits: the sum of their scores.
        squares: the sum over asks of their hits squared.
        sizes: the sum over asks of their trials squared.
        crosses: the sum over asks of the product of both.
    """

    asks: Array
    trials: Array
    hits: Array
    squares: Array
    sizes: Array
    crosses: Array

    @classmethod
    def nothing(cls, *shape: int) -> LengthAsks:
        """Return what is known before the first ask; the shape is (..., lengths)."""
        return cls(*(np.zeros(shape) for _ in range(6)))

    @classmethod
    def of(cls, axis: LengthAxis, asks: Iterable[tuple[int, float, int]]) -> LengthAsks:
        """Count the asks of one map, each with its length in tokens, hits and trials.

        Each counts at the axis' nearest length.
        """
        tally = cls.nothing(len(axis.lengths))
        for length, hits, trials in asks:
            tally.add((axis.nearest(length),), np.array(hits), np.array(trials))
        return tally

    def add(self, at: Any, hits: Array, trials: Array) -> None:
        """Count asks, each with its hits of so many trials, at their places."""
        np.add.at(self.asks, at, 1)
        np.add.at(self.trials, at, trials)
        np.add.at(self.hits, at, hits)
        np.add.at(self.squares, at, hits**2)
        np.add.at(self.sizes, at, trials**2)
        np.add.at(self.crosses, at, hits * trials)

    def part(self, chosen: NDArray[np.int64]) -> LengthAsks:
        """Return what was asked of some of the maps."""
        return LengthAsks(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def design_effect(self) -> Array:
        """Return by how much haystacks differ more than chance: (...).

        It is the variance of asks of one length over that of independent trials, pooled over
        lengths, drawn to _PRIOR_EFFECT while little is asked, and at least LEAST_EFFECT (Kish
        1965, Survey Sampling, section 8.2).
        """
        trials = np.maximum(self.trials, 1)
        rates = self.hits / trials
        observed = np.maximum(self.squares - 2 * rates * self.crosses + rates**2 * self.sizes, 0)
        expected = rates * (1 - rates) * (self.trials - self.sizes / trials)
        prior = _PRIOR_ASKS * PLACES * 0.85 * 0.15
        pooled = (observed.sum(-1) + prior * _PRIOR_EFFECT) / (expected.sum(-1) + prior)
        return np.asarray(np.maximum(LEAST_DESIGN_EFFECT, pooled))


def axis_of(lengths: Lengths | None) -> LengthAxis:
    """Return the axis from the shortest to the longest length.

    If there are fewer than two lengths, SettingsError is raised.
    """
    sizes = set(lengths.tokens) if lengths else set()
    if len(sizes) < 2:
        raise SettingsError("--seek needs a shortest and a longest length, as --lengths 1k,128k.")
    return LengthAxis.between(min(sizes), max(sizes))


def asked_in(records: Iterable[Record], axis: LengthAxis) -> LengthAsks:
    """Count what a run's records say, haystack by haystack."""
    scores: dict[tuple[int, int], list[float]] = defaultdict(list)
    for record in records:
        if record.score is not None:
            scores[record.repeat, record.length_tokens].append(record.score)
    asks = [(length, sum(values), len(values)) for (_, length), values in scores.items()]
    return LengthAsks.of(axis, asks)


def cells_in(records: Iterable[Record], axis: LengthAxis) -> tuple[Array, Array]:
    """Count hits and trials by length and whole percent of depth."""
    hits, trials = np.zeros((2, len(axis.lengths), DEPTH_CELLS))
    for record in records:
        if record.score is not None:
            cell = axis.nearest(record.length_tokens), round(100 * record.depth)
            hits[cell] += record.score
            trials[cell] += 1
    return hits, trials


@dataclass(frozen=True)
class Posterior:
    """What is known of the curves.

    Attributes:
        axis: the lengths.
        crossings: (..., draws) in octaves; those off the axis lie one spacing beyond.
        mode: (..., rank) weights of the likeliest curve.
        precision: (..., rank, rank) of the weights.
        effect: the design effect.
        curves: (..., draws, rank) drawn weights.
    """

    axis: LengthAxis
    crossings: Array
    mode: Array
    precision: Array
    effect: Array
    curves: Array

    @property
    def interval(self) -> tuple[Array, Array]:
        """Return 2.5 and 97.5 % of the crossings, in octaves."""
        low, high = np.quantile(self.crossings, [0.025, 0.975], axis=-1)
        return low, high

    @property
    def point(self) -> Array:
        """Return the median of the crossings, in octaves."""
        return np.median(self.crossings, axis=-1)


def learn(
    axis: LengthAxis, tally: LengthAsks, threshold: float, mode: Array | None = None
) -> Posterior:
    """Fit a curve to what was asked, and draw others.

    `threshold` is a share; `mode` is that of an earlier fit, to begin with.
    """
    effect = tally.design_effect()
    mode = np.zeros((*effect.shape, axis.basis.shape[1])) if mode is None else mode
    trials, hits = tally.trials / effect[..., None], tally.hits / effect[..., None]
    for _ in range(_STEPS):
        mode, precision, _ = newton(axis.basis, trials, hits, mode)
    noise = np.random.default_rng(_SEED).standard_normal((_DRAWS, axis.basis.shape[1]))
    root = np.linalg.inv(np.linalg.cholesky(precision))
    curves = mode[..., None, :] + noise @ root
    crossings = _crossings(axis, curves @ axis.basis.T, log(threshold / (1 - threshold)))
    return Posterior(
        axis=axis,
        crossings=crossings,
        mode=mode,
        precision=precision,
        effect=effect,
        curves=curves,
    )


def _crossings(axis: LengthAxis, values: Array, threshold: float) -> Array:
    """Return the octaves at which curves (..., lengths) first fall below a threshold.

    Curves are straight between lengths. A crossing beyond the axis is one spacing beyond it.
    """
    below = values < threshold
    after = below.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    upper = np.take_along_axis(values, before[..., None], axis=-1)[..., 0]
    lower = np.take_along_axis(values, after[..., None], axis=-1)[..., 0]
    share = np.clip((upper - threshold) / np.maximum(upper - lower, 1e-12), 0, 1)
    crossings = axis.logs[before] + share * (axis.logs[after] - axis.logs[before])
    crossings = np.where(below[..., 0], axis.logs[0] - SPACING, crossings)
    return np.asarray(np.where(below.any(axis=-1), crossings, axis.logs[-1] + SPACING))


def next_asks(posterior: Posterior, count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many haystacks to ask at each length, of so many in all: (..., lengths).

    They come in up to _CHUNKS parts, each where the crossing's variance shrinks most per token,
    those before it taken as answered: with P the weights' covariance and c theirs with the
    crossing, n asks of length x bring (x c)^2 / (x P x + 1 / (n w)), w being what one ask weighs.
    """
    basis, lengths = posterior.axis.basis, np.array(posterior.axis.lengths)
    spread = np.linalg.inv(posterior.precision)
    deviations = posterior.crossings - posterior.crossings.mean(axis=-1, keepdims=True)
    crossing_covariance = (
        deviations[..., None, :] @ (posterior.curves - posterior.mode[..., None, :])
    )[..., 0, :] / _DRAWS
    chance = 1 / (1 + np.exp(-posterior.mode @ basis.T))
    heft = PLACES * np.maximum(chance * (1 - chance), 0.01) / posterior.effect[..., None]
    asks = np.zeros(chance.shape, dtype=np.int64)
    part = np.maximum(1, -(-count // _CHUNKS))
    for _ in range(_CHUNKS):
        size = np.minimum(part, count - asks.sum(axis=-1))
        # (..., rank, lengths)
        reach = spread @ basis.T
        noise = (basis.T * reach).sum(axis=-2) + 1 / (np.maximum(size, 1)[..., None] * heft)
        gain = (crossing_covariance @ basis.T) ** 2 / noise / lengths
        best_length = gain.argmax(axis=-1)[..., None]
        np.put_along_axis(
            asks, best_length, np.take_along_axis(asks, best_length, -1) + size[..., None], -1
        )
        reach_at_best = np.take_along_axis(reach, best_length[..., None, :], -1)[..., 0]
        weight = reach_at_best / np.take_along_axis(noise, best_length, -1)
        crossing_covariance = crossing_covariance - weight * np.take_along_axis(
            crossing_covariance @ basis.T, best_length, -1
        )
        spread = spread - weight[..., :, None] * reach_at_best[..., None, :]
    return asks


def batch_size(asks: int, lanes: int = 1) -> int:
    """Return the number of haystacks of the next batch: a fifth of all, or enough for all lanes."""
    return max(1, asks // _GROWTH, ceil(lanes / PLACES))


def is_close(posterior: Posterior, within: float) -> NDArray[np.bool_]:
    """Return True if half of the interval, before its ends move, is at most a share, (...)."""
    low, high = posterior.interval
    return np.asarray((high - low) / 2 <= log2(1 + within))


def end_asks(posterior: Posterior, tally: LengthAsks) -> NDArray[np.int64]:
    """Return a haystack for the next length outside each end of the interval, (..., lengths).

    If a length has a haystack already, it gets none. So an end does not move far, and nothing is
    claimed about a longest length without a haystack.
    """
    logs, (low, high) = posterior.axis.logs, posterior.interval
    below = np.maximum((logs <= low[..., None] + 1e-9).sum(axis=-1) - 1, 0)
    above = np.minimum((logs < high[..., None] - 1e-9).sum(axis=-1), len(logs) - 1)
    asks = np.zeros(tally.asks.shape, dtype=np.int64)
    np.put_along_axis(asks, below[..., None], 1, axis=-1)
    np.put_along_axis(asks, above[..., None], 1, axis=-1)
    return np.where(tally.asks > 0, 0, asks)


def plain_grid(lengths: Sequence[int]) -> float:
    """Return the tokens of a grid of GRID lengths, spread by logarithm, and GRID depths.

    lengths: the grid's lengths are between the first and the last of these.
    """
    return float(GRID * np.geomspace(lengths[0], lengths[-1], GRID).sum())


def is_spent(axis: LengthAxis, tally: LengthAsks) -> NDArray[np.bool_]:
    """Return True if the token limit is spent, except for a last look between lengths, (...)."""
    return np.asarray(tokens_of(axis, tally) >= (GRIDS - _KEPT) * plain_grid(axis.lengths))


def tokens_of(axis: LengthAxis, tally: LengthAsks) -> Array:
    """Return the prompt tokens that were asked: (...)."""
    return np.asarray((tally.trials * np.array(axis.lengths)).sum(axis=-1))


def next_batch(
    posterior: Posterior,
    tally: LengthAsks,
    within: float,
    counts: NDArray[np.int64],
    threshold: float,
) -> NDArray[np.int64]:
    """Return the number of haystacks to send next at each length, `counts` in all, (..., lengths).

    If the interval is close, or the token limit is spent, they are a last look: at the interval's
    ends, between the lengths below it, and again at lengths whose own score contradicts the curve.
    After the last look there are none.
    """
    axis = posterior.axis
    is_over = (is_close(posterior, within) | is_spent(axis, tally))[..., None]
    last_asks = np.maximum(end_asks(posterior, tally), _gap_asks(posterior, tally, threshold))
    asks = np.where(is_over, last_asks, next_asks(posterior, counts))
    remaining = GRIDS * plain_grid(axis.lengths) - tokens_of(axis, tally)
    tokens = PLACES * np.array(axis.lengths)
    fits = np.cumsum(asks * tokens, axis=-1) <= remaining[..., None]
    return np.where(fits, asks, 0)


def hole_mask(posterior: Posterior, tally: LengthAsks, threshold: float) -> NDArray[np.bool_]:
    """Return the lengths below the interval at which the curve is too smooth: (..., lengths).

    There a length's own score is surely below the threshold, in two haystacks and more. The
    score's upper end is Wilson's, trials divided by the design effect.
    """
    n = tally.trials / posterior.effect[..., None]
    rate = tally.hits / np.maximum(tally.trials, 1)
    part = _SURE * _SURE / np.maximum(n, 1e-9)
    upper = (rate + part / 2 + np.sqrt(part * (rate * (1 - rate) + part / 4))) / (1 + part)
    below = posterior.axis.logs < posterior.interval[0][..., None]
    return np.asarray((tally.asks > 1) & (upper < threshold) & below)


def _gap_asks(posterior: Posterior, tally: LengthAsks, threshold: float) -> NDArray[np.int64]:
    """Return a haystack for each gap between lengths that have one, (..., lengths).

    Only gaps below the interval, or below the first hole, count. If a length's own score is below
    the threshold, but not surely, it gets one more haystack.
    """
    logs, size = posterior.axis.logs, len(posterior.axis.lengths)
    is_hole = hole_mask(posterior, tally, threshold)
    first_hole = np.where(is_hole.any(axis=-1), is_hole.argmax(axis=-1), size - 1)
    end = (logs <= posterior.interval[0][..., None] + 1e-9).sum(axis=-1) - 1
    top = np.minimum(first_hole, end)
    rate = tally.hits / np.maximum(tally.trials, 1)
    is_doubted = (tally.asks > 0) & (tally.asks < _DOUBTS) & (rate < threshold) & ~is_hole
    asks = (is_doubted & (np.arange(size) <= top[..., None])).astype(np.int64)
    rows, asked_rows = asks.reshape(-1, size), tally.asks.reshape(-1, size)
    for row, asks_at, last_index in zip(rows, asked_rows, top.reshape(-1).tolist(), strict=True):
        asked_lengths = [-1, *np.flatnonzero(asks_at[: last_index + 1]).tolist(), last_index + 1]
        for left, right in pairwise(asked_lengths):
            parts = ceil((right - left) / _GAP)
            inner = [left + (right - left) * part // parts for part in range(1, parts)]
            row[inner] += 1
    return np.asarray(rows.reshape(asks.shape))


def moved_ends(posterior: Posterior, tally: LengthAsks, threshold: float) -> tuple[Array, Array]:
    """Return the interval's ends in octaves: (...).

    They are -inf below the shortest length and inf beyond the longest. Each is moved outward to
    the next asked length whose own score lies on that side: nothing was asked between. A hole in
    what the curve holds ends it.
    """
    logs, (low, high) = posterior.axis.logs, posterior.interval
    rates = np.where(tally.trials > 0, tally.hits / np.maximum(tally.trials, 1), np.nan)
    hole = np.where(hole_mask(posterior, tally, threshold), logs, inf).min(axis=-1)
    holds = (rates >= threshold) & (logs <= np.minimum(low + 1e-9, hole)[..., None])
    falls = (rates < threshold) & (logs >= high[..., None] - 1e-9)
    lower = np.where(holds, logs, -inf).max(axis=-1)
    upper = np.minimum(np.where(falls, logs, inf).min(axis=-1), hole)
    is_beyond = (low > logs[-1] + 1e-9) & (hole == inf)
    is_below = high < logs[0] - 1e-9
    return np.where(is_beyond, inf, lower), np.where(is_below, -inf, upper)


@dataclass(frozen=True)
class Sought:
    """The result for one map.

    Attributes:
        axis: the lengths.
        asked: what was asked.
        threshold: a share.
        point: tokens; None where the interval spans more than an octave, or it crawls.
        low, high: the interval in tokens; 0 is below the shortest length, infinite beyond the
            longest.
        crawls: whether the likeliest curve is near the threshold all along an interval of more
            than an octave, or it is rough.
        close: whether the interval is as narrow as wished.
        effect: the design effect.
        curve: (3, lengths) the fitted chances, and 95 % of those drawn.
        rough: whether hits and misses repeat cell by cell.
        spent: plain grids whose tokens were asked, where these are all that may be, and the
            interval is not close; 0 else.
    """

    axis: LengthAxis
    asked: LengthAsks
    threshold: float
    point: float | None
    low: float
    high: float
    crawls: bool
    close: bool
    effect: float
    curve: Array
    rough: bool = False
    spent: float = 0.0

    @property
    def tokens(self) -> int:
        """Return the prompt tokens that were asked."""
        return int(tokens_of(self.axis, self.asked))


def seek_result(
    axis: LengthAxis, tally: LengthAsks, threshold: float, within: float, *, rough: bool = False
) -> Sought:
    """Return the result of a seek in one map so far.

    threshold: the score that is sought, as a share. within: the share of a length by which the
    interval may reach to either side. rough: what `is_rough` returns for the map's records.
    """
    posterior = learn(axis, tally, threshold)
    low_octaves, high_octaves = moved_ends(posterior, tally, threshold)
    low, high = in_tokens(axis, float(low_octaves)), in_tokens(axis, float(high_octaves))
    inner_low, inner_high = np.clip([low, high], axis.lengths[0], axis.lengths[-1])
    is_wide = bool(inner_high > 2 * inner_low)
    has_hole = bool(hole_mask(posterior, tally, threshold).any())

    chance = 1 / (1 + np.exp(-posterior.mode @ axis.basis.T))
    drawn_chances = 1 / (1 + np.exp(-posterior.curves @ axis.basis.T))
    in_interval = (axis.logs >= np.log2(inner_low)) & (axis.logs <= np.log2(inner_high))
    is_flat = bool(np.abs(chance[in_interval] - threshold).max() < _NEAR) if is_wide else False
    close = has_hole or bool(is_close(posterior, within))

    point = None
    if not (is_wide or rough or has_hole):
        point = in_tokens(axis, float(posterior.point))

    return Sought(
        axis=axis,
        asked=tally,
        threshold=threshold,
        point=point,
        low=low,
        high=high,
        crawls=(rough or is_flat) and not has_hole,
        close=close,
        effect=float(posterior.effect),
        curve=np.stack([chance, *np.quantile(drawn_chances, [0.025, 0.975], axis=0)]),
        rough=rough,
        spent=GRIDS if not close and is_spent(axis, tally) else 0.0,
    )


def result_of_run(about: RunFile, records: Iterable[Record]) -> Sought | None:
    """Return the result so far of a run that seeks.

    If the run does not seek, or if nothing is scored yet, None is returned.
    """
    settings = about.named
    if settings.seek is None:
        return None

    records = list(records)
    axis = axis_of(settings.lengths)
    tally = asked_in(records, axis)
    if not tally.asks.any():
        return None

    rough = bool(is_rough(*cells_in(records, axis)))
    return seek_result(axis, tally, settings.seek / 100, settings.within / 100, rough=rough)


def in_tokens(axis: LengthAxis, octaves: float) -> float:
    """Return a length from its octaves. Below the axis it is 0, and beyond it infinite."""
    if octaves < axis.logs[0] - 1e-9:
        return 0.0
    if octaves > axis.logs[-1] + 1e-9:
        return inf
    return float(2**octaves)
