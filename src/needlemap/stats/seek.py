"""Effective length from haystacks asked where it matters: the result so far, and the next ask.

An *ask* is one fresh haystack at one length, with PLACES depths, one drawn in each equal part.
A smooth curve of the score over the logarithm of the length is fitted to all asks (a Gaussian
process on the logit, Laplace's approximation: Rasmussen and Williams 2006, section 3.4); no
fall is assumed, so that a dip stays a dip. Curves drawn from it cross the threshold first
somewhere: that is what is known. Pure; all arrays may have leading axes, one entry a map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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

PLACES = 8  # depths of an ask
SPACING = 1 / 8  # octaves between lengths
_SCALE, _SPREAD = (
    4.0,
    3.0,
)  # of the curve: octaves over which it is alike, and its spread on the logit
_RANK = 24
LEAST_EFFECT, _PRIOR_EFFECT, _PRIOR_ASKS = 1.4, 2.0, 8.0
_DRAWS, _SEED = 300, 0
_STEPS = 6
_GROWTH, _CHUNKS = 5, 4
_NEAR = 0.08  # of the threshold: where a score crawls through it
GRIDS = 4.0  # plain grids of 15 x 15 whose tokens a seek takes at most
_GRID = 15
_KEPT = 1.0  # of these grids, for a last look between the asked lengths
_GAP = 3  # spacings between asked lengths at most: no hole of half an octave lies between
_DOUBTS = 4  # haystacks at a length whose own score contradicts the curve
_SURE = 3.0  # standard deviations: that length's score is then below, whatever the curve says


@dataclass(frozen=True)
class LengthAxis:
    """Lengths in tokens, an eighth of an octave apart from the shortest to the longest."""

    lengths: tuple[int, ...]

    @classmethod
    def between(cls, low: int, high: int) -> LengthAxis:
        """From the shortest to the longest, both included."""
        count = max(2, round(log2(high / low) / SPACING) + 1)
        return cls(tuple(sorted({round(each) for each in np.geomspace(low, high, count).tolist()})))

    @cached_property
    def logs(self) -> Array:
        """Octaves."""
        return np.log2(np.array(self.lengths, dtype=np.float64))

    @cached_property
    def basis(self) -> Array:
        """(lengths, rank): curves of which the process's are sums with standard normal
        weights."""
        return matern_curves(self.logs, _SCALE, _SPREAD, _RANK)

    def nearest(self, length: int) -> int:
        """The number of the nearest length."""
        return int(np.abs(self.logs - log2(length)).argmin())

    def first(self) -> NDArray[np.int64]:
        """Haystacks to begin with, by length: one at the shortest, the middle, three quarters
        of the way."""
        last = len(self.lengths) - 1
        asks = np.zeros(len(self.lengths), dtype=np.int64)
        asks[[0, round(last / 2), round(0.75 * last)]] = 1
        return asks


@dataclass(frozen=True)
class LengthAsks:
    """What was asked so far, by length: (..., lengths). asks: haystacks; trials: scored
    prompts; hits: their scores' sum. Sums over asks: squares, of their hits squared; sizes, of
    their trials squared; crosses, of the product of both."""

    asks: Array
    trials: Array
    hits: Array
    squares: Array
    sizes: Array
    crosses: Array

    @classmethod
    def nothing(cls, *shape: int) -> LengthAsks:
        """Before the first ask: shape is (..., lengths)."""
        return cls(*(np.zeros(shape) for _ in range(6)))

    @classmethod
    def of(cls, axis: LengthAxis, asks: Iterable[tuple[int, float, int]]) -> LengthAsks:
        """Of one map, from each ask's length in tokens, hits and trials; at the axis' nearest
        length."""
        made = cls.nothing(len(axis.lengths))
        for length, hits, trials in asks:
            made.add((axis.nearest(length),), np.array(hits), np.array(trials))
        return made

    def add(self, at: Any, hits: Array, trials: Array) -> None:
        """Count asks, each with its hits of so many trials, at their places."""
        counts: list[Any] = [1, trials, hits, hits**2, trials**2, hits * trials]
        for each, count in zip(fields(self), counts, strict=True):
            np.add.at(getattr(self, each.name), at, count)

    def part(self, chosen: NDArray[np.int64]) -> LengthAsks:
        """Of some of the maps."""
        return LengthAsks(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def design_effect(self) -> Array:
        """By how much haystacks differ more than chance: the variance of asks of one length
        over that of independent trials, pooled over lengths, drawn to _PRIOR_EFFECT while
        little is asked, at least LEAST_EFFECT (Kish 1965, Survey Sampling, section 8.2):
        (...)."""
        trials = np.maximum(self.trials, 1)
        rates = self.hits / trials
        seen = np.maximum(self.squares - 2 * rates * self.crosses + rates**2 * self.sizes, 0)
        expected = rates * (1 - rates) * (self.trials - self.sizes / trials)
        prior = _PRIOR_ASKS * PLACES * 0.85 * 0.15
        pooled = (seen.sum(-1) + prior * _PRIOR_EFFECT) / (expected.sum(-1) + prior)
        return np.asarray(np.maximum(LEAST_EFFECT, pooled))


def axis_of(lengths: Lengths | None) -> LengthAxis:
    """Return the axis from the shortest to the longest length. Raises SettingsError for fewer
    than two lengths."""
    sizes = set(lengths.tokens) if lengths else set()
    if len(sizes) < 2:
        raise SettingsError("--seek needs a shortest and a longest length, as --lengths 1k,128k.")
    return LengthAxis.between(min(sizes), max(sizes))


def asked_in(records: Iterable[Record], axis: LengthAxis) -> LengthAsks:
    """What a run's records say, haystack by haystack."""
    scores: dict[tuple[int, int], list[float]] = defaultdict(list)
    for record in records:
        if record.score is not None:
            scores[record.repeat, record.length_tokens].append(record.score)
    return LengthAsks.of(
        axis, ((length, sum(each), len(each)) for (_, length), each in scores.items())
    )


def cells_in(records: Iterable[Record], axis: LengthAxis) -> tuple[Array, Array]:
    """Hits and trials by length and whole percent of depth."""
    hits, trials = np.zeros((2, len(axis.lengths), DEPTH_CELLS))
    for record in records:
        if record.score is not None:
            at = axis.nearest(record.length_tokens), round(100 * record.depth)
            hits[at] += record.score
            trials[at] += 1
    return hits, trials


@dataclass(frozen=True)
class Posterior:
    """What is known: (..., draws) crossings in octaves, of which those off the axis lie one
    spacing beyond.

    mode: (..., rank) weights of the likeliest curve; precision: (..., rank, rank) of the
    weights; effect: the design effect; curves: (..., draws, rank) drawn weights.
    """

    axis: LengthAxis
    crossings: Array
    mode: Array
    precision: Array
    effect: Array
    curves: Array

    @property
    def interval(self) -> tuple[Array, Array]:
        """2.5 and 97.5 % of the crossings, in octaves."""
        low, high = np.quantile(self.crossings, [0.025, 0.975], axis=-1)
        return low, high

    @property
    def point(self) -> Array:
        """Their median, in octaves."""
        return np.median(self.crossings, axis=-1)


def learn(
    axis: LengthAxis, asked: LengthAsks, threshold: float, mode: Array | None = None
) -> Posterior:
    """Fit and draw. threshold: a share. mode: of an earlier fit, to begin with."""
    effect = asked.design_effect()
    mode = np.zeros((*effect.shape, axis.basis.shape[1])) if mode is None else mode
    trials, hits = asked.trials / effect[..., None], asked.hits / effect[..., None]
    for _ in range(_STEPS):
        mode, precision, _ = newton(axis.basis, trials, hits, mode)
    noise = np.random.default_rng(_SEED).standard_normal((_DRAWS, axis.basis.shape[1]))
    root = np.linalg.inv(np.linalg.cholesky(precision))
    curves = mode[..., None, :] + noise @ root
    crossings = _first_below(axis, curves @ axis.basis.T, log(threshold / (1 - threshold)))
    return Posterior(axis, crossings, mode, precision, effect, curves)


def _first_below(axis: LengthAxis, values: Array, threshold: float) -> Array:
    """Where curves (..., lengths) first fall below, in octaves, straight between lengths."""
    below = values < threshold
    at = below.argmax(axis=-1)
    before = np.maximum(at - 1, 0)
    upper = np.take_along_axis(values, before[..., None], axis=-1)[..., 0]
    lower = np.take_along_axis(values, at[..., None], axis=-1)[..., 0]
    share = np.clip((upper - threshold) / np.maximum(upper - lower, 1e-12), 0, 1)
    found = axis.logs[before] + share * (axis.logs[at] - axis.logs[before])
    found = np.where(below[..., 0], axis.logs[0] - SPACING, found)
    return np.asarray(np.where(below.any(axis=-1), found, axis.logs[-1] + SPACING))


def next_asks(known: Posterior, count: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many haystacks to ask at each length, of so many in all: (..., lengths).

    In up to _CHUNKS parts, each where the crossing's variance shrinks most per token, those
    before it taken as answered: with P the weights' covariance and c theirs with the crossing,
    n asks of length x bring (x c)^2 / (x P x + 1 / (n w)), w being what one ask weighs.
    """
    basis, lengths = known.axis.basis, np.array(known.axis.lengths)
    spread = np.linalg.inv(known.precision)
    apart = known.crossings - known.crossings.mean(axis=-1, keepdims=True)
    common = (apart[..., None, :] @ (known.curves - known.mode[..., None, :]))[..., 0, :] / _DRAWS
    chance = 1 / (1 + np.exp(-known.mode @ basis.T))
    heft = PLACES * np.maximum(chance * (1 - chance), 0.01) / known.effect[..., None]
    asks = np.zeros(chance.shape, dtype=np.int64)
    part = np.maximum(1, -(-count // _CHUNKS))
    for _ in range(_CHUNKS):
        size = np.minimum(part, count - asks.sum(axis=-1))
        reach = spread @ basis.T  # (..., rank, lengths)
        noise = (basis.T * reach).sum(axis=-2) + 1 / (np.maximum(size, 1)[..., None] * heft)
        gain = (common @ basis.T) ** 2 / noise / lengths
        best = gain.argmax(axis=-1)[..., None]
        np.put_along_axis(asks, best, np.take_along_axis(asks, best, -1) + size[..., None], -1)
        along = np.take_along_axis(reach, best[..., None, :], -1)[..., 0]
        weight = along / np.take_along_axis(noise, best, -1)
        common = common - weight * np.take_along_axis(common @ basis.T, best, -1)
        spread = spread - weight[..., :, None] * along[..., None, :]
    return asks


def batch_size(asks: int, lanes: int = 1) -> int:
    """Haystacks of the next batch: a fifth of those asked, and enough for all lanes."""
    return max(1, asks // _GROWTH, ceil(lanes / PLACES))


def is_close(known: Posterior, within: float) -> NDArray[np.bool_]:
    """Whether half of the interval, before its ends move, is no more than a share, as .3:
    (...)."""
    low, high = known.interval
    return np.asarray((high - low) / 2 <= log2(1 + within))


def unseen_ends(known: Posterior, asked: LengthAsks) -> NDArray[np.int64]:
    """One haystack at the lengths next outside the interval's ends, where none was asked:
    (..., lengths).

    So an end has not far to move, and nothing is said of a longest length that nobody
    asked."""
    logs, (low, high) = known.axis.logs, known.interval
    below = np.maximum((logs <= low[..., None] + 1e-9).sum(axis=-1) - 1, 0)
    above = np.minimum((logs < high[..., None] - 1e-9).sum(axis=-1), len(logs) - 1)
    asks = np.zeros(asked.asks.shape, dtype=np.int64)
    for at in (below, above):
        np.put_along_axis(asks, at[..., None], 1, axis=-1)
    return np.where(asked.asks > 0, 0, asks)


def plain_grid(axis: LengthAxis) -> float:
    """Tokens of a grid of 15 lengths, spread by logarithm, and 15 depths."""
    return float(_GRID * np.geomspace(axis.lengths[0], axis.lengths[-1], _GRID).sum())


def is_spent(axis: LengthAxis, asked: LengthAsks) -> NDArray[np.bool_]:
    """Whether what may be asked is, except for a last look between the asked lengths:
    (...)."""
    return np.asarray(tokens_of(axis, asked) >= (GRIDS - _KEPT) * plain_grid(axis))


def tokens_of(axis: LengthAxis, asked: LengthAsks) -> Array:
    """Prompt tokens that were asked: (...)."""
    return np.asarray((asked.trials * np.array(axis.lengths)).sum(axis=-1))


def next_batch(
    known: Posterior, asked: LengthAsks, within: float, counts: NDArray[np.int64], threshold: float
) -> NDArray[np.int64]:
    """Haystacks to ask next at each length, so many in all; where the interval is close, or no
    more may be asked, its ends, between the asked lengths below it, and again where a length's
    own score contradicts the curve; none where that is done: (..., lengths)."""
    axis = known.axis
    over = (is_close(known, within) | is_spent(axis, asked))[..., None]
    last = np.maximum(unseen_ends(known, asked), _unseen(known, asked, threshold))
    asks = np.where(over, last, next_asks(known, counts))
    left = GRIDS * plain_grid(axis) - tokens_of(axis, asked)
    cost = PLACES * np.array(axis.lengths)
    fits = np.cumsum(asks * cost, axis=-1) <= left[..., None]
    return np.where(fits, asks, 0)


def holes(known: Posterior, asked: LengthAsks, threshold: float) -> NDArray[np.bool_]:
    """Lengths below the interval whose own score is surely below the threshold, in two
    haystacks and more: the curve is too smooth for them: (..., lengths).

    The score's upper end is Wilson's, trials divided by the design effect.
    """
    n = asked.trials / known.effect[..., None]
    rate, z = asked.hits / np.maximum(asked.trials, 1), _SURE
    part = z * z / np.maximum(n, 1e-9)
    upper = (rate + part / 2 + np.sqrt(part * (rate * (1 - rate) + part / 4))) / (1 + part)
    below = known.axis.logs < known.interval[0][..., None]
    return np.asarray((asked.asks > 1) & (upper < threshold) & below)


def _unseen(known: Posterior, asked: LengthAsks, threshold: float) -> NDArray[np.int64]:
    """One haystack in each gap between asked lengths below the interval, or the first hole;
    one more where a length's own score is below the threshold, and not surely so: (...,
    lengths)."""
    logs, size = known.axis.logs, len(known.axis.lengths)
    found = holes(known, asked, threshold)
    first = np.where(found.any(axis=-1), found.argmax(axis=-1), size - 1)
    held = (logs <= known.interval[0][..., None] + 1e-9).sum(axis=-1) - 1
    top = np.minimum(first, held)
    places = np.arange(size)
    rate = asked.hits / np.maximum(asked.trials, 1)
    again = (asked.asks > 0) & (asked.asks < _DOUBTS) & (rate < threshold) & ~found
    asks = (again & (places <= top[..., None])).astype(np.int64)
    flat, rows = asks.reshape(-1, size), asked.asks.reshape(-1, size)
    for row, seen, last in zip(flat, rows, top.reshape(-1).tolist(), strict=True):
        known_at = [-1, *np.flatnonzero(seen[: last + 1]).tolist(), last + 1]
        for left, right in pairwise(known_at):
            parts = ceil((right - left) / _GAP)
            row[[left + (right - left) * at // parts for at in range(1, parts)]] += 1
    return np.asarray(flat.reshape(asks.shape))


def ends(known: Posterior, asked: LengthAsks, threshold: float) -> tuple[Array, Array]:
    """The interval's ends in octaves, -inf below the shortest length and inf beyond the
    longest: (...).

    Each is moved outward to the next asked length whose own score lies on that side: nothing
    was asked between. A hole in what the curve holds ends it.
    """
    logs, (low, high) = known.axis.logs, known.interval
    rates = np.where(asked.trials > 0, asked.hits / np.maximum(asked.trials, 1), np.nan)
    hole = np.where(holes(known, asked, threshold), logs, inf).min(axis=-1)
    holds = (rates >= threshold) & (logs <= np.minimum(low + 1e-9, hole)[..., None])
    falls = (rates < threshold) & (logs >= high[..., None] - 1e-9)
    lower = np.where(holds, logs, -inf).max(axis=-1)
    upper = np.minimum(np.where(falls, logs, inf).min(axis=-1), hole)
    beyond, below = (low > logs[-1] + 1e-9) & (hole == inf), high < logs[0] - 1e-9
    return np.where(beyond, inf, lower), np.where(below, -inf, upper)


@dataclass(frozen=True)
class Sought:
    """The result for one map, in tokens: 0 is below the shortest length, infinite beyond the
    longest.

    point: None where the interval spans more than an octave, or it crawls. crawls: the
    likeliest curve is near the threshold all along such an interval, or it is rough: hits and
    misses repeat cell by cell. close: whether the interval is as narrow as wished. effect: the
    design effect. curve: (3, lengths) the fitted chances, and 95 % of those drawn. spent:
    plain grids whose tokens were asked, where these are all that may be, and the interval is
    not close; 0 else.
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
        """Prompt tokens asked."""
        return int(tokens_of(self.axis, self.asked))


def sought(
    axis: LengthAxis, asked: LengthAsks, threshold: float, within: float, *, rough: bool = False
) -> Sought:
    """The result for one map so far. threshold, within: shares. rough: as `is_rough` finds."""
    known, lengths = learn(axis, asked, threshold), axis.lengths
    low, high = (in_tokens(axis, float(end)) for end in ends(known, asked, threshold))
    inside = np.clip([low, high], lengths[0], lengths[-1])
    wide = bool(inside[1] > 2 * inside[0])
    chance, drawn = (1 / (1 + np.exp(-each @ axis.basis.T)) for each in (known.mode, known.curves))
    curve = np.stack([chance, *np.quantile(drawn, [0.025, 0.975], axis=0)])
    along = (axis.logs >= np.log2(inside[0])) & (axis.logs <= np.log2(inside[1]))
    crawls = rough or (wide and bool(np.abs(chance[along] - threshold).max() < _NEAR))
    hole = bool(holes(known, asked, threshold).any())
    point = None if wide or rough or hole else in_tokens(axis, float(known.point))
    close = hole or bool(is_close(known, within))
    spent = 0.0 if close or not is_spent(axis, asked) else GRIDS
    return Sought(
        axis,
        asked,
        threshold,
        point,
        low,
        high,
        crawls and not hole,
        close,
        float(known.effect),
        curve,
        rough,
        spent,
    )


def sought_in(about: RunFile, records: Iterable[Record]) -> Sought | None:
    """What a run that seeks knows by now; None for another, and before anything is scored."""
    named, records = about.named, list(records)
    if named.seek is None:
        return None
    axis = axis_of(named.lengths)
    asked = asked_in(records, axis)
    if not asked.asks.any():
        return None
    rough = bool(is_rough(*cells_in(records, axis)))
    return sought(axis, asked, named.seek / 100, named.within / 100, rough=rough)


def in_tokens(axis: LengthAxis, octaves: float) -> float:
    """A length from its octaves; 0 below the axis, infinite beyond it."""
    if octaves < axis.logs[0] - 1e-9:
        return 0.0
    return inf if octaves > axis.logs[-1] + 1e-9 else float(2**octaves)
