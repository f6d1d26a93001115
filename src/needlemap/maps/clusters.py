"""Means of trials that share haystacks: cluster-robust standard error, design effect, interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from needlemap.maps.bootstrap import FEWEST
from needlemap.maps.cube import Array
from needlemap.maps.intervals import wilson
from needlemap.maps.student import t_quantile

Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean in [0, 1] over n trials in so many clusters (haystacks).

    standard_error, design_effect: None with fewer than FEWEST clusters: too few to see how haystacks
    differ. low, high: 95 %, then as of independent trials; None where nobody knows how many answers n stands
    for.
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
    low, high = effective_wilson(score, n, effect or 1.0, clusters)
    return ClusterMean(score, n, clusters, error, effect, low, high)


def effective_wilson(score: float, n: int, design_effect: float, clusters: int) -> tuple[float, float]:
    """Wilson interval as of n / design_effect independent trials; clusters give t's degrees of freedom.

    A design effect of 1 shows no clustering: then it is the plain Wilson interval.
    """
    z = t_quantile(0.975, clusters - 1) if design_effect > 1 else Z
    effective = n / design_effect
    interval = wilson(score * effective, effective, z)
    assert interval is not None  # n is at least 1
    return interval
