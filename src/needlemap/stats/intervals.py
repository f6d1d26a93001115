"""Compute intervals of rates and means, and the number of trials that shows a drop.

Trials of one haystack are not independent, so they stay together: means have a cluster-robust
standard error and a design effect, few haystacks take Student's t, and the bootstrap draws whole
haystacks. The noise floor is how much answers to the same prompt differ (A/A); no comparison can
see less. It is known if a run was made twice, or if a run sent a prompt more than once
(`Cube.again`). No other module computes the interval of a rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, ceil, cos, floor, hypot, inf, isnan, pi, sin, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from needlemap.stats.exact import binomial_tail
from needlemap.stats.verdicts import LOW_ALPHA

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from needlemap.stats import Array

Z = 1.959963984540054
NORMAL = NormalDist()
# From so many degrees of freedom on t is normal to 1 part in 1,000.
MANY = 1_000
# Of seven answers that change under a real drop, about one is a gain.
LOST_TO_GAINED = 6.0
POWER = 0.8
DRAWS = 2_000
SEED = 0
# Fewer haystacks have so few different draws that their interval means little.
FEWEST = 5
# Correlation of trials of one haystack if too few haystacks show it; see docs/statistics.md.
ASSUMED = 0.05
# How often the truth may lie below an interval, and above it.
Tails = tuple[float, float]
TAILS = (0.025, 0.025)


def wilson(hits: float, n: float, z: float = Z) -> tuple[float, float] | None:
    """Return the Wilson score interval of hits/n, or None if n is 0 (Wilson 1927, JASA 22:209).

    Graded scores may be summed into hits: their variance is at most that of pass or fail, so
    the interval is then too wide rather than too narrow. n may be an effective number of
    trials, which need not be whole.

    >>> [round(x, 2) for x in wilson(17, 20)]
    [0.64, 0.95]
    """
    if not 0 <= hits <= n + 1e-9:
        raise ValueError(f"hits must lie in 0..{n}, got {hits}")
    if n == 0:
        return None
    p, w = min(hits / n, 1.0), z * z / n
    half = z * sqrt(p * (1 - p) / n + w / (4 * n))
    return max(0.0, (p + w / 2 - half) / (1 + w)), min(1.0, (p + w / 2 + half) / (1 + w))


def newcombe(hits: int, n: int, others: int, of: int) -> tuple[float, float] | None:
    """Return the hybrid score interval of hits/n - others/of, or None if either has no trials.

    Newcombe 1998, Statistics in Medicine 17:873, method 10.

    >>> [round(x, 4) for x in newcombe(56, 70, 48, 80)]
    [0.0524, 0.3339]
    """
    first, second = wilson(hits, n), wilson(others, of)
    if first is None or second is None:
        return None
    rate, other_rate = hits / n, others / of
    below = hypot(rate - first[0], second[1] - other_rate)
    above = hypot(first[1] - rate, other_rate - second[0])
    return rate - other_rate - below, rate - other_rate + above


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the order statistics that hold the median in 95 % of samples, or None without values.

    If there are too few values, the smallest and the largest are returned.

    >>> median_interval([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0, 8.0]), median_interval([1.0, 3.0])
    ((1.0, 8.0), (1.0, 3.0))
    """
    if not values:
        return None
    sorted_values, n = sorted(values), len(values)
    cut = max((k for k in range(n // 2) if binomial_tail(n - k, n, 0.5) <= 0.025), default=0)
    return sorted_values[cut], sorted_values[n - 1 - cut]


def t_cdf(t: float, dof: int) -> float:
    """Return P(T <= t) for whole degrees of freedom.

    Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.

    >>> round(t_cdf(2.262157, 9), 6)
    0.975
    """
    angle = atan(t / sqrt(dof))
    is_odd = dof % 2
    term = total = 0.0 if dof == 1 else cos(angle) if is_odd else 1.0
    for k in range(2 + is_odd, dof - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    probability = 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total
    return 0.5 + probability / 2


@lru_cache(maxsize=1_000)
def t_quantile(share: float, dof: int) -> float:
    """Return the t below which a share of the distribution lies, by bisection.

    It is infinite without degrees of freedom.

    >>> round(t_quantile(0.975, 4), 4)
    2.7764
    """
    if not 0.5 <= share < 1:
        raise ValueError(f"share must lie in [0.5, 1), got {share}")
    if dof < 1:
        return inf
    if dof > MANY:
        return NORMAL.inv_cdf(share)
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, dof) < share else (low, middle)
    return (low + high) / 2


def tango(lost: float, gained: float, n: float, tails: Tails = TAILS) -> tuple[float, float]:
    """Return the score interval of (gained - lost) / n over n pairs.

    Tango 1998, Statistics in Medicine 17:891. Each end is the difference that the score test
    just rejects, so a claim that less than the margin is lost is wrong in at most 2.5 % of runs,
    however few pairs differ; Wald intervals do not keep that. Counts may be weighted, and need
    not be whole.

    >>> [round(x, 4) for x in tango(0, 0, 189)]
    [-0.0199, 0.0199]
    """
    below, above = (NORMAL.inv_cdf(1 - tail) for tail in tails)
    return -_largest_loss(lost, gained, n, below), _largest_loss(gained, lost, n, above)


def _largest_loss(lost: float, gained: float, n: float, z: float) -> float:
    """Return the largest share of net losses that the score test does not reject."""
    low, high = (lost - gained) / n, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _tango_statistic(lost, gained, n, middle) > -z else (low, middle)
        )
    return high


def _tango_statistic(lost: float, gained: float, n: float, loss: float) -> float:
    """Return Tango's statistic for a net loss, with the variance of its likeliest shares."""
    b = (2 * n - lost + gained) * loss - lost - gained
    share = (sqrt(max(0.0, b * b + 8 * n * gained * loss * (1 - loss))) - b) / (4 * n)
    variance = n * (2 * share + loss * (1 - loss))
    return (lost - gained - n * loss) / sqrt(variance) if variance > 0 else -inf


def least_pairs(margin: float) -> int:
    """Return the number of pairs below which not even equal answers can pass the margin.

    >>> least_pairs(0.02), least_pairs(0.05)
    (189, 73)
    """
    return floor(Z * Z * (1 - margin) / margin) + 1


def trials_needed(
    drop: float,
    discordant: float | None = None,
    design_effect: float = 1.0,
    clusters: int | None = None,
    beyond: float = 0.0,
) -> int:
    """Return the paired trials that show a drop as a loss of more than `beyond`.

    They do with POWER, at the one-sided 1 % level of a verdict.
    n = deff (t_a sqrt(D - beyond^2) + t_b sqrt(D - drop^2))^2 / (drop - beyond)^2, D being the
    share of pairs that differ (McNemar's test: Connor 1987, Biometrics 43:207; Miettinen
    1968).

    Args:
        drop: the true loss, a share.
        discordant: D, which is at least the drop. If None, six answers are lost for each one
            that is gained.
        design_effect: of the differences.
        clusters: haystacks, if the verdict's interval is that of haystacks: it takes Student's
            t, and 1.5 / clusters more trials since the wider of two intervals decides (found by
            simulation). None if it is that of pairs.
        beyond: the loss that is to be exceeded, a share.

    Raises ValueError unless 0 <= beyond < drop <= 1.

    >>> trials_needed(0.05), trials_needed(0.05, clusters=5), trials_needed(0.1, beyond=0.05)
    (279, 795, 544)
    """
    if not 0 <= beyond < drop <= 1:
        raise ValueError(f"drop must lie in (0, 1] and above beyond, got {drop} and {beyond}")
    share = drop * (LOST_TO_GAINED + 1) / (LOST_TO_GAINED - 1) if discordant is None else discordant
    share = min(1.0, max(share, drop))
    freedom = clusters - 1 if clusters else MANY + 1
    level, chance = t_quantile(1 - LOW_ALPHA, freedom), t_quantile(POWER, freedom)
    root = level * sqrt(share - beyond**2) + chance * sqrt(max(0.0, share - drop**2))
    wider = 1 + 1.5 / clusters if clusters else 1.0
    return ceil(design_effect * wider * (root / (drop - beyond)) ** 2)


def weights(clusters: int, draws: int = DRAWS, seed: int = SEED) -> Array:
    """Draw how often each cluster counts: (draws, clusters), each row summing to clusters.

    Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 6; Field and Welsh
    2007, JRSS B 69:369, for whole clusters. The same seed gives the same draws.
    """
    share = np.full(clusters, 1 / clusters)
    return np.random.default_rng(seed).multinomial(clusters, share, size=draws).astype(np.float64)


def expanded_interval(
    values: Array, clusters: int, tails: Tails = TAILS
) -> tuple[float, float] | None:
    """Return the percentile interval of bootstrapped values, widened for few clusters.

    The tails are cut at Phi(-sqrt(G/(G-1)) t), t being Student's quantile with G-1 degrees of
    freedom: the plain percentile interval is too narrow for small G (Hesterberg 2015, The
    American Statistician 69:371). values may hold infinities; NaN (a draw that measured
    nothing) is left out. None for fewer than FEWEST clusters.
    """
    values = values[~np.isnan(values)]
    if clusters < FEWEST or not len(values):
        return None
    root = sqrt(clusters / (clusters - 1))
    below, above = (NORMAL.cdf(-root * t_quantile(1 - tail, clusters - 1)) for tail in tails)
    low, high = np.quantile(values, [below, 1 - above], method="inverted_cdf")
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean score in [0, 1] with its interval.

    Attributes:
        score: the mean.
        n: trials.
        clusters: haystacks that they come from.
        standard_error, design_effect: None for fewer than FEWEST clusters, which are too few to
            show how haystacks differ.
        low, high: 95 %. Fewer than FEWEST clusters are taken to have a correlation of ASSUMED
            within a haystack. None if a trial stands for an unknown number of answers.
    """

    score: float
    n: int
    clusters: int
    standard_error: float | None
    design_effect: float | None
    low: float | None
    high: float | None


def robust_error(sums: Array, counts: Array) -> float:
    """Return the standard error of sum(sums) / sum(counts); both are per cluster.

    sqrt(G/(G-1) sum_g (S_g - p N_g)^2) / N: the linearised ratio estimator (Cochran 1977,
    Sampling Techniques, section 9A), the same as CR1 of an intercept-only regression (Cameron
    and Miller 2015, J. Human Resources 50:317); for evaluations Miller 2024, arXiv:2411.00640.
    """
    clusters, n = len(sums), counts.sum()
    residuals = sums - sums.sum() / n * counts
    return float(sqrt(clusters / (clusters - 1) * (residuals**2).sum()) / n)


def t_interval(values: Array, share: float = 0.95) -> tuple[float, float, float] | None:
    """Return the mean of values, and the ends of its two-sided interval.

    values: (clusters, trials) of any size, NaN if missing. Student's t with the cluster-robust
    error. None for fewer than two clusters.

    >>> [round(x, 2) for x in t_interval(np.array([[1.0, 2.0], [3.0, 4.0], [2.0, np.nan]]))]
    [2.4, -0.63, 5.43]
    """
    clusters = values[~np.isnan(values).all(axis=1)]
    if len(clusters) < 2:
        return None
    sums, counts = np.nansum(clusters, axis=1), (~np.isnan(clusters)).sum(axis=1).astype(np.float64)
    mean = float(sums.sum() / counts.sum())
    reach = t_quantile((1 + share) / 2, len(clusters) - 1) * robust_error(sums, counts)
    return mean, mean - reach, mean + reach


def cluster_mean(scores: Array) -> ClusterMean | None:
    """Return the mean and interval of scores (clusters, trials), NaN if missing.

    The Wilson interval with the effective sample size n / deff, scaled by (z/t)^2 for G-1
    degrees of freedom (Korn and Graubard 1998, Survey Methodology 24:193; Franco et al. 2019,
    J. Survey Statistics and Methodology 7:334, for Wilson). deff is taken to be at least 1,
    and 1 if all trials agree. None if all scores are missing.
    """
    scores = scores[~np.isnan(scores).all(axis=1)]
    counts = (~np.isnan(scores)).sum(axis=1).astype(np.float64)
    n, clusters = int(counts.sum()), len(counts)
    if not n:
        return None
    sums = np.nansum(scores, axis=1)
    score = min(1.0, max(0.0, float(sums.sum() / n)))
    error = robust_error(sums, counts) if clusters >= FEWEST else None
    independent = score * (1 - score) / n
    effect = None
    if error is not None:
        effect = max(1.0, error**2 / independent) if independent > 1e-12 else 1.0
    low, high = effective_wilson(score, n, effect or assumed_effect(counts), clusters)
    return ClusterMean(
        score=score,
        n=n,
        clusters=clusters,
        standard_error=error,
        design_effect=effect,
        low=low,
        high=high,
    )


def rate_of(pairs: Iterable[tuple[int, float]]) -> ClusterMean | None:
    """Return the mean of (haystack, score) pairs, or None if there are none."""
    all_pairs = list(pairs)
    return cluster_mean(grid_by_haystack(all_pairs)) if all_pairs else None


def grid_by_haystack(items: Iterable[tuple[int, ArrayLike]]) -> Array:
    """Return items, at least one, as an array (haystacks, items of one, ...).

    items: each with the number of its haystack; all are numbers or rows of one size. Haystacks are
    in the order in which they come. If one has fewer items than another, its row ends with NaN.

    >>> grid_by_haystack([(7, 1.0), (2, 0.5), (7, 0.0)]).tolist()
    [[1.0, 0.0], [0.5, nan]]
    """
    items_by_haystack: dict[int, list[ArrayLike]] = defaultdict(list)
    for haystack, item in items:
        items_by_haystack[haystack].append(item)
    rows = [np.array(row, dtype=np.float64) for row in items_by_haystack.values()]
    grid = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), np.nan)
    for index, row in enumerate(rows):
        grid[index, : len(row)] = row
    return grid


def assumed_effect(counts: Array) -> float:
    """Return 1 + (m - 1) ASSUMED, m being the mean size of a trial's haystack.

    Kish 1965, Survey Sampling, section 5.4, for clusters of one size.

    >>> round(assumed_effect(np.array([88.0])), 2)
    5.35
    """
    return 1 + (float((counts**2).sum() / counts.sum()) - 1) * ASSUMED


def effective_wilson(
    score: float, n: int, design_effect: float, clusters: int
) -> tuple[float, float]:
    """Return the Wilson interval of n / design_effect independent trials.

    Clusters give t's degrees of freedom. A design effect of 1 shows no clustering, and that of
    fewer than FEWEST clusters is only assumed: then z is 1.96.
    """
    z = t_quantile(0.975, clusters - 1) if design_effect > 1 and clusters >= FEWEST else Z
    effective = n / design_effect
    interval = wilson(score * effective, effective, z)
    # n is at least 1.
    assert interval is not None
    return interval


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """How much the scores of the same prompts differ.

    Attributes:
        n: pairs of answers to the same prompt.
        differing: pairs with different scores.
        low, high: 95 % Wilson interval of their share.
        mean_square: the mean squared change of a score.
    """

    n: int
    differing: int
    low: float
    high: float
    mean_square: float

    def smallest(self, prompts: int) -> float:
        """Return the smallest difference of two runs' means that is more than noise, a share."""
        return Z * sqrt(self.mean_square / prompts)


def noise_floor(pairs: Iterable[tuple[float, float]]) -> NoiseFloor | None:
    """Return the noise of scores of prompts that were sent twice, or None without pairs.

    The spread of a difference of zero mean is the root of its mean square (Bland and Altman
    1986, Lancet 327:307, repeatability).
    """
    changes = [second - first for first, second in pairs]
    n, differing = len(changes), sum(abs(change) > 1e-12 for change in changes)
    interval = wilson(differing, n)
    if interval is None:
        return None
    return NoiseFloor(
        n=n,
        differing=differing,
        low=interval[0],
        high=interval[1],
        mean_square=sum(change * change for change in changes) / n,
    )


def move_outward(low: float, high: float, lengths: Array) -> tuple[float, float]:
    """Move both ends outward to tested lengths, since nothing between them was measured.

    >>> move_outward(1_500.0, 3_000.0, np.array([1_000.0, 2_000.0, 4_000.0]))
    (1000.0, 4000.0)
    """
    if 0 < low < inf:
        low = float(lengths[lengths <= low].max())
    if 0 < high < inf:
        high = float(lengths[lengths >= high].min())
    return low, high


def include_point(
    point: float, low: float | None, high: float | None
) -> tuple[float | None, float | None]:
    """Return the interval, widened to include the point."""
    if low is None or high is None or isnan(point):
        return None, None
    return min(low, point), max(high, point)
