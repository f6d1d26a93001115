"""Compute the paired difference of two runs on the same trials: its interval and its tests.

Exact tails of counts are in `exact.py`. The verdict on a difference is in `judging.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from needlemap.stats.exact import mcnemar
from needlemap.stats.intervals import (
    FEWEST,
    SEED,
    TAILS,
    Tails,
    robust_error,
    t_quantile,
    tango,
)

if TYPE_CHECKING:
    from needlemap.stats import Array

# All 4,096 sign patterns of so many clusters are counted; of more, PATTERNS random ones.
EXACT_UP_TO = 12
PATTERNS = 20_000
# Few haystacks show too little of how skewed their losses are (found by simulation).
SKEWED = 1.5
# Fewer clusters have so few sign patterns that p is never below 0.05.
FLIPPED = 6
# Differences smaller than this are rounding errors.
ROUNDING = 1e-12


def sign_flip(totals: Array) -> float:
    """Return the two-sided p of clusters' summed differences, by flipping their signs.

    Exact up to EXACT_UP_TO clusters. For more, PATTERNS seeded patterns are drawn, and the
    observed one is counted among them (Fisher 1935, The Design of Experiments, section 21;
    Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9:39). Whole clusters are flipped, so
    trials that share a haystack need not be independent.
    """
    totals = totals[totals != 0]
    if not len(totals):
        return 1.0
    observed = abs(totals.sum()) - 1e-9
    if len(totals) <= EXACT_UP_TO:
        bits = np.arange(2 ** len(totals))[:, None] >> np.arange(len(totals)) & 1
        return float((np.abs((1 - 2 * bits) @ totals) >= observed).mean())
    signs = np.random.default_rng(SEED).integers(0, 2, (PATTERNS, len(totals))) * 2 - 1
    return float(((np.abs(signs @ totals) >= observed).sum() + 1) / (PATTERNS + 1))


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values for their number, step down (Holm 1979, Scandinavian J. Statistics 6:65).

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return tuple(adjusted)


def missing_bounds(total: float, n: int, missing: int) -> tuple[float, float] | None:
    """Return the lowest and the highest mean of n known scores and `missing` unknown ones.

    Scores lie in [0, 1]; the known ones sum to total. These are the worst-case bounds of Manski
    1990, American Economic Review 80:319. None without any trial.

    >>> missing_bounds(9.0, 10, 2)
    (0.75, 0.9166666666666666)
    """
    count = n + missing
    return (total / count, (total + missing) / count) if count else None


Flipped = Literal["", "prompts", "haystacks"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference second - first of paired scores.

    Attributes:
        value: the mean difference, a share in [-1, 1].
        low, high: its 95 % interval, if no other tails were asked for.
        p: exact McNemar if all pairs have the same weight, and each is equal or differs by a
            whole score; else sign flips of whole clusters, or of pairs if there are too few
            clusters.
        n: pairs.
        clusters: haystacks that the pairs come from.
        first, second: the means of both over these pairs.
        lost, gained: pairs in which second scored less, or more.
        flipped: what was flipped for p.
        least_p: the smallest p that these counts could have had.
        size: how many equally weighted pairs would carry as much information.
        design_effect: how much more the clusters vary than independent pairs would. It is 1 for
            fewer than FEWEST clusters; the interval then holds for these haystacks only.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    clusters: int
    first: float
    second: float
    lost: int
    gained: int
    flipped: Flipped = ""
    least_p: float = 0.0
    size: float = 0.0
    design_effect: float = 1.0

    @property
    def of_these(self) -> bool:
        """Return True if it holds for these haystacks only, because there are too few of them."""
        return self.clusters < FEWEST

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Return both means, which are None without a pair."""
        return (self.first, self.second) if self.n else (None, None)


NO_PAIRS = Difference(
    value=nan,
    low=nan,
    high=nan,
    p=1.0,
    n=0,
    clusters=0,
    first=nan,
    second=nan,
    lost=0,
    gained=0,
    least_p=1.0,
)


def paired_difference(
    first: Array,
    second: Array,
    *,
    weights: Array | None = None,
    tails: Tails = TAILS,
) -> Difference | None:
    """Return the difference second - first of paired scores, None without any pair.

    The interval is that of pairs (`pair_interval`). From FEWEST clusters on it is that of whole
    clusters if that is wider (`_cluster_interval`).

    Args:
        first, second: scores, (clusters, trials), NaN if missing. Pairs with one score are left
            out.
        weights: of each pair, same shape; equal if None. Counts ignore them.
        tails: error rates of the interval's two ends.
    """
    is_pair = ~np.isnan(first - second)
    weights = np.ones(first.shape) if weights is None else weights
    rows = is_pair.any(axis=1)
    first, second, is_pair, weights = (array[rows] for array in (first, second, is_pair, weights))
    if not is_pair.any():
        return None

    differences = np.where(is_pair, second - first, 0.0)
    differences = np.where(np.abs(differences) < ROUNDING, 0.0, differences)
    weights = np.where(is_pair, weights, 0.0)
    sums, counts = (weights * differences).sum(axis=1), weights.sum(axis=1)
    pairs, pair_weights = differences[is_pair], weights[is_pair]
    low, high, size = pair_interval(pairs, pair_weights, tails=tails)
    effect = 1.0
    if len(sums) >= FEWEST:
        ends = _cluster_interval(sums, counts, tails)
        low, high = min(low, ends[0]), max(high, ends[1])
        effect = _design_effect(pairs, pair_weights, robust_error(sums, counts))

    lost, gained = int((differences < 0).sum()), int((differences > 0).sum())
    flipped: Flipped = ""
    equal_weights = bool(np.ptp(pair_weights) < ROUNDING)
    if equal_weights and bool(np.isin(pairs, (-1.0, 0.0, 1.0)).all()):
        p, least_p = mcnemar(lost, gained), mcnemar(lost + gained, 0)
    else:
        p, least_p, flipped = _flip_test(pairs * pair_weights, sums)
    value = float(sums.sum() / counts.sum())
    return Difference(
        value=value,
        # The mean of linearised scores may lie outside [-1, 1], and outside the interval.
        low=min(low, value),
        high=max(high, value),
        p=p,
        n=len(pairs),
        clusters=len(sums),
        first=float(np.average(first[is_pair], weights=pair_weights)),
        second=float(np.average(second[is_pair], weights=pair_weights)),
        lost=lost,
        gained=gained,
        flipped=flipped,
        least_p=least_p,
        size=size,
        design_effect=effect,
    )


def _flip_test(pairs: Array, sums: Array) -> tuple[float, float, Flipped]:
    """Return p, the smallest p that could have been, and what was flipped."""
    flips_haystacks = len(sums) >= FLIPPED
    units = sums if flips_haystacks else pairs
    least_p = min(1.0, 2 * 0.5 ** int((units != 0).sum()))
    return sign_flip(units), least_p, "haystacks" if flips_haystacks else "prompts"


def pair_interval(
    differences: Array, weights: Array, *, tails: Tails = TAILS
) -> tuple[float, float, float]:
    """Return the interval of pairs' mean difference, and the number of pairs it counts as.

    It reaches as far from the mean as Tango's interval of pass and fail does if each pair counts
    its squared difference as lost or gained. For differences of -1, 0 and 1 that is `tango`
    itself. Smaller ones vary less, and a few pairs without a difference are not a certainty: a
    loss of whole scores may be absent by chance. Weighted pairs count as many as the heaviest of
    them would need to make up the whole, since all that is lost may be lost there.
    """
    shares = weights / weights.sum()
    size = 1 / float(shares.max())
    value = float(shares @ differences)
    squares = size * shares * differences**2
    lost, gained = float(squares[differences < 0].sum()), float(squares[differences > 0].sum())
    low, high = tango(lost, gained, size, tails)
    counted = (gained - lost) / size
    return max(-1.0, value + low - counted), min(1.0, value + high - counted), size


def _design_effect(differences: Array, weights: Array, error: float) -> float:
    """Return the squared standard error of clusters over that of independent pairs, at least 1."""
    shares = weights / weights.sum()
    independent_variance = float(
        ((shares * (differences - float(shares @ differences))) ** 2).sum()
    )
    return max(1.0, error**2 / independent_variance) if independent_variance > 1e-15 else 1.0


def _cluster_interval(sums: Array, counts: Array, tails: Tails) -> tuple[float, float]:
    """Return the skewness-adjusted t interval of clusters.

    It is value + error (k (1 + 2 t^2) -+ t) with k = SKEWED skewness / (6 sqrt(G)): Johnson
    1978, J. American Statistical Association 73:536, as in Hesterberg 2015, The American
    Statistician 69:371. A few haystacks that lose most of their answers make the sums skewed.
    The plain t ends are kept if they are wider. t has the degrees of freedom of the haystacks
    with a difference, at least FEWEST: the others show little of how haystacks vary.
    """
    value, clusters = float(sums.sum() / counts.sum()), len(sums)
    error = robust_error(sums, counts)
    with_difference = max(FEWEST, int((sums != 0).sum()))
    freedom = min(with_difference, clusters) - 1
    low_quantile, high_quantile = (t_quantile(1 - tail, freedom) for tail in tails)
    residuals = sums - value * counts
    variance = float((residuals**2).mean())
    skewness = 0.0
    if variance > ROUNDING and clusters >= FEWEST:
        skewness = float((residuals**3).mean()) / variance**1.5
    bend = SKEWED * skewness / (6 * sqrt(clusters))
    low = min(bend * (1 + 2 * low_quantile * low_quantile) - low_quantile, -low_quantile)
    high = max(bend * (1 + 2 * high_quantile * high_quantile) + high_quantile, high_quantile)
    return value + error * low, value + error * high
