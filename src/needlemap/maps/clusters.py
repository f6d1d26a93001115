"""Trials that share a haystack stay together: cluster-robust errors, the bootstrap, the noise floor.

Means have a cluster-robust standard error, a design effect and an interval. The bootstrap draws whole
repeats again. The noise floor is how much answers to the same prompt differ (A/A), which no comparison can
go below: seen where a run was made twice, and where one run asked a prompt more than once (`Cube.again`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from needlemap.maps.intervals import NORMAL, Z, t_quantile, wilson

if TYPE_CHECKING:
    from needlemap.maps.cube import Array

DRAWS = 2_000
SEED = 0
FEWEST = 5  # haystacks: fewer have so few different draws that their interval means little
ASSUMED = 0.05  # correlation of trials of one haystack, where too few show it; see docs/statistics.md


def weights(clusters: int, draws: int = DRAWS, seed: int = SEED) -> Array:
    """How often each cluster is drawn: (draws, clusters), each row summing to clusters.

    Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 6; Field and Welsh 2007, JRSS B
    69:369, for whole clusters. The same seed gives the same draws.
    """
    share = np.full(clusters, 1 / clusters)
    return np.random.default_rng(seed).multinomial(clusters, share, size=draws).astype(np.float64)


def expanded_interval(values: Array, clusters: int, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile interval of bootstrapped values, widened for few clusters; None for fewer than FEWEST.

    The tails are cut at Phi(-sqrt(G/(G-1)) t), t being Student's quantile with G-1 degrees of freedom: the
    plain percentile interval is too narrow for small G (Hesterberg 2015, The American Statistician 69:371).
    values may hold infinities; NaN (a draw that measured nothing) is left out.
    """
    values = values[~np.isnan(values)]
    if clusters < FEWEST or not len(values):
        return None
    wide = sqrt(clusters / (clusters - 1)) * t_quantile((1 + level) / 2, clusters - 1)
    tail = NORMAL.cdf(-wide)
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean in [0, 1] over n trials in so many clusters (haystacks).

    standard_error, design_effect: None with fewer than FEWEST clusters: too few to see how haystacks
    differ. low, high: 95 %, then with a correlation of ASSUMED within a haystack; None where nobody knows how
    many answers n stands for.
    """

    score: float
    n: int
    clusters: int
    standard_error: float | None
    design_effect: float | None
    low: float | None
    high: float | None


def robust_error(sums: Array, counts: Array) -> float:
    """Standard error of sum(sums) / sum(counts), sums and counts being per cluster.

    sqrt(G/(G-1) sum_g (S_g - p N_g)^2) / N: the linearised ratio estimator (Cochran 1977, Sampling
    Techniques, section 9A), the same as CR1 of an intercept-only regression (Cameron and Miller 2015, J.
    Human Resources 50:317); for evaluations Miller 2024, arXiv:2411.00640.
    """
    clusters, n = len(sums), counts.sum()
    left = sums - sums.sum() / n * counts
    return float(sqrt(clusters / (clusters - 1) * (left**2).sum()) / n)


def cluster_mean(scores: Array) -> ClusterMean | None:
    """Mean and interval of scores (clusters, trials), NaN where missing; None when all are.

    The Wilson interval with the effective sample size n / deff, scaled by (z/t)^2 for G-1 degrees of freedom
    (Korn and Graubard 1998, Survey Methodology 24:193; Franco et al. 2019, J. Survey Statistics and
    Methodology 7:334, for Wilson). deff is taken to be at least 1, and 1 where all trials agree.
    """
    scores = scores[~np.isnan(scores).all(axis=1)]
    counts = (~np.isnan(scores)).sum(axis=1).astype(np.float64)
    n, clusters = int(counts.sum()), len(counts)
    if not n:
        return None
    sums = np.nansum(scores, axis=1)
    score = min(1.0, max(0.0, float(sums.sum() / n)))
    error = robust_error(sums, counts) if clusters >= FEWEST else None
    plain = score * (1 - score) / n
    effect = None if error is None else max(1.0, error**2 / plain) if plain > 1e-12 else 1.0
    low, high = effective_wilson(score, n, effect or assumed_effect(counts), clusters)
    return ClusterMean(score, n, clusters, error, effect, low, high)


def rate_of(scored: Iterable[tuple[int, float]]) -> ClusterMean | None:
    """The mean of scores, each with the number of its haystack; None without any."""
    found: dict[int, list[float]] = defaultdict(list)
    for haystack, score in scored:
        found[haystack].append(score)
    if not found:
        return None
    most = max(map(len, found.values()))
    return cluster_mean(np.array([[*each, *[np.nan] * (most - len(each))] for each in found.values()]))


def assumed_effect(counts: Array, correlation: float = ASSUMED) -> float:
    """1 + (m - 1) correlation, m being the number of trials of a haystack, in the mean over trials.

    Kish 1965, Survey Sampling, section 5.4, for clusters of one size.

    >>> round(assumed_effect(np.array([88.0])), 2)
    5.35
    """
    return 1 + (float((counts**2).sum() / counts.sum()) - 1) * correlation


def effective_wilson(score: float, n: int, design_effect: float, clusters: int) -> tuple[float, float]:
    """Wilson interval as of n / design_effect independent trials; clusters give t's degrees of freedom.

    A design effect of 1 shows no clustering, and that of fewer than FEWEST clusters is assumed and not seen:
    then it is Wilson's with 1.96.
    """
    z = t_quantile(0.975, clusters - 1) if design_effect > 1 and clusters >= FEWEST else Z
    effective = n / design_effect
    interval = wilson(score * effective, effective, z)
    assert interval is not None  # n is at least 1
    return interval


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """differing of n pairs had another score; low, high: 95 % Wilson interval of their share.

    mean_square: mean square of the change of a score.
    """

    n: int
    differing: int
    low: float
    high: float
    mean_square: float

    def smallest(self, prompts: int) -> float:
        """The least difference of two runs' means over so many prompts that is more than noise, a share."""
        return Z * sqrt(self.mean_square / prompts)


def noise_floor(pairs: Iterable[tuple[float, float]]) -> NoiseFloor | None:
    """From scores of the same prompts asked twice; None without pairs.

    The spread of a difference of zero mean is the root of its mean square (Bland and Altman 1986, Lancet
    327:307, repeatability).
    """
    apart = [second - first for first, second in pairs]
    n, differing = len(apart), sum(abs(change) > 1e-12 for change in apart)
    interval = wilson(differing, n)
    if interval is None:
        return None
    square = sum(change * change for change in apart) / n
    return NoiseFloor(n, differing, *interval, square)
