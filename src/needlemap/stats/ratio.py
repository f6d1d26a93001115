"""Ratios of sums: their value and interval, over clusters that share a haystack.

A ratio R = sum(g) / sum(o) is no mean of the trials' own ratios, in which a trial with a tiny
o would count as much as any. It is the mean of R + (g - R o) / mean(o): these linearised
scores have the ratio as their mean, and the error of that mean is the ratio's to first order
(Cochran 1977, Sampling Techniques, section 6.3; Woodruff 1971, J. American Statistical
Association 66:411). So everything that takes means of scores (intervals, paired differences,
bootstraps) takes them.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from needlemap.stats.intervals import ClusterMean, t_quantile

if TYPE_CHECKING:
    from needlemap.stats import Array

LEAST = 3  # clusters: fewer do not show how they differ


def ratio_interval(scores: Array) -> tuple[float, float, float] | None:
    """Value and 95 % interval of linearised scores (clusters, trials), NaN where missing; None
    without any. Of fewer than LEAST clusters the ends are infinite.

    Student's t with the cluster-robust error, after one cluster more, half of it at 0 and half
    at 1 (as Agresti and Min 2005, Biometrics 61:515, do with pairs): where nearly all trials
    recover nothing, or everything, those seen do not show how they spread. Its ends are moved
    by the skewness of the clusters' sums where that widens them (Johnson 1978, J. American
    Statistical Association 73:536). tests/stats/test_ratio.py simulates how often it holds the
    truth.
    """
    known = scores[~np.isnan(scores).all(axis=1)]
    if not known.size:
        return None
    sums, counts = np.nansum(known, axis=1), (~np.isnan(known)).sum(axis=1).astype(np.float64)
    clusters, value = len(sums), float(sums.sum() / counts.sum())
    if clusters < LEAST:
        return value, -np.inf, np.inf
    size = float(counts.mean())
    whole = float(counts.sum()) + size
    centre = (float(sums.sum()) + size / 2) / whole
    left = np.array([*(sums - centre * counts), -size * centre, size * (1 - centre)])
    weights = np.array([*np.ones(clusters), 0.5, 0.5])
    spread = float(weights @ left**2) / (clusters + 1)
    t, error = t_quantile(0.975, clusters - 1), sqrt(spread / clusters) * (clusters + 1) / whole
    own = left[:clusters]  # the skewness of what was seen
    deviation = own - own.mean()
    skewness = float((deviation**3).mean()) / spread**1.5
    bend = skewness / (6 * sqrt(clusters)) * (1 + 2 * t * t)
    low, high = centre + error * min(bend - t, -t), centre + error * max(bend + t, t)
    return value, min(value, low), max(value, high)


def ratio_mean(scores: Array) -> ClusterMean | None:
    """The same as a map has it: within [0, 1], and without an interval where there are fewer
    than LEAST clusters."""
    found = ratio_interval(scores)
    if found is None:
        return None
    clusters = int((~np.isnan(scores).all(axis=1)).sum())
    value, low, high = (min(1.0, max(0.0, each)) for each in found)
    n, ends = int((~np.isnan(scores)).sum()), (low, high) if clusters >= LEAST else (None, None)
    return ClusterMean(value, n, clusters, None, None, *ends)
