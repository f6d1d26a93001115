"""Compute ratios of sums and their intervals, over clusters that share a haystack.

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

# Fewer clusters do not show how they differ.
LEAST = 3


def ratio_interval(scores: Array) -> tuple[float, float, float] | None:
    """Return the value and the 95 % interval of linearised scores, or None if there are none.

    Scores are (clusters, trials), NaN where missing. Of fewer than LEAST clusters the ends are
    infinite.

    The interval is Student's t with the cluster-robust error, after one cluster more, half of it
    at 0 and half at 1 (as Agresti and Min 2005, Biometrics 61:515, do with pairs): where nearly
    all trials recover nothing, or everything, those seen do not show how they spread. Its ends are
    moved by the skewness of the clusters' sums where that widens them (Johnson 1978, J. American
    Statistical Association 73:536). tests/stats/test_ratio.py simulates how often it holds the
    truth.
    """
    measured = scores[~np.isnan(scores).all(axis=1)]
    if not measured.size:
        return None
    sums = np.nansum(measured, axis=1)
    counts = (~np.isnan(measured)).sum(axis=1).astype(np.float64)
    clusters = len(sums)
    value = float(sums.sum() / counts.sum())
    if clusters < LEAST:
        return value, -np.inf, np.inf

    # One cluster more of the mean size, half of it at 0 and half at 1.
    size = float(counts.mean())
    total = float(counts.sum()) + size
    centre = (float(sums.sum()) + size / 2) / total
    residuals = np.array([*(sums - centre * counts), -size * centre, size * (1 - centre)])
    weights = np.array([*np.ones(clusters), 0.5, 0.5])
    spread = float(weights @ residuals**2) / (clusters + 1)
    t = t_quantile(0.975, clusters - 1)
    error = sqrt(spread / clusters) * (clusters + 1) / total

    # The skewness is that of the clusters that were seen.
    seen = residuals[:clusters]
    deviations = seen - seen.mean()
    skewness = float((deviations**3).mean()) / spread**1.5
    bend = skewness / (6 * sqrt(clusters)) * (1 + 2 * t * t)
    low = centre + error * min(bend - t, -t)
    high = centre + error * max(bend + t, t)
    return value, min(value, low), max(value, high)


def ratio_mean(scores: Array) -> ClusterMean | None:
    """Return the same as a map has it, within [0, 1], or None if there is no score.

    There is no interval of fewer than LEAST clusters.
    """
    interval = ratio_interval(scores)
    if interval is None:
        return None
    clusters = int((~np.isnan(scores).all(axis=1)).sum())
    value, low, high = (min(1.0, max(0.0, share)) for share in interval)
    return ClusterMean(
        score=value,
        n=int((~np.isnan(scores)).sum()),
        clusters=clusters,
        standard_error=None,
        design_effect=None,
        low=low if clusters >= LEAST else None,
        high=high if clusters >= LEAST else None,
    )
