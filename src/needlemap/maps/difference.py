"""The paired difference of two runs on the same trials, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from needlemap.maps.bootstrap import FEWEST, expanded_interval
from needlemap.maps.bootstrap import weights as draws
from needlemap.maps.clusters import Z, robust_error
from needlemap.maps.cube import Array
from needlemap.maps.significance import mcnemar, sign_flip
from needlemap.maps.student import t_quantile


@dataclass(frozen=True, slots=True)
class Difference:
    """second - first over n pairs in so many clusters, a share in [-1, 1]; low, high: 95 %.

    first, second: their means over these pairs. lost, gained: pairs in which second scored less or more. p:
    exact McNemar for pass and fail that all count the same, else sign flips of whole clusters, or of pairs
    where there is one cluster. flipped: whether it is of sign flips.
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
    flipped: bool = False


def paired_difference(
    first: Array, second: Array, *, graded: bool, weights: Array | None = None
) -> Difference | None:
    """Difference of scores (clusters, trials), NaN where missing; pairs with one score are left out.

    None when no pair is left. Pass and fail: `adjusted_interval`. Graded: bootstrap over clusters. weights:
    of each pair, same shape; all the same if not given. The counts take no heed of them.
    """
    known = ~np.isnan(first - second)
    weights = np.ones(first.shape) if weights is None else weights
    rows = known.any(axis=1)
    first, second, known, weights = (array[rows] for array in (first, second, known, weights))
    n = int(known.sum())
    if not n:
        return None
    apart = np.where(known, second - first, 0.0)
    apart = np.where(np.abs(apart) < 1e-12, 0.0, apart)
    weights = np.where(known, weights, 0.0)
    sums, counts = (weights * apart).sum(axis=1), weights.sum(axis=1)
    lost, gained = int((apart < 0).sum()), int((apart > 0).sum())
    bootstrapped = graded and len(sums) >= FEWEST and bool(apart.any())
    each = apart[known], weights[known]
    low, high = _bootstrap(sums, counts) if bootstrapped else adjusted_interval(*each, sums, counts)
    units = sums if len(sums) > 1 else each[0] * each[1]
    alike = bool(np.ptp(each[1]) < 1e-12)
    flipped = graded or not alike
    p = sign_flip(units) if flipped else mcnemar(lost, gained)
    means = [float(np.average(scores[known], weights=each[1])) for scores in (first, second)]
    return Difference(
        *(float(sums.sum() / counts.sum()), low, high, p, n, len(sums), means[0], means[1], lost, gained),
        flipped,
    )


def adjusted_interval(apart: Array, weights: Array, sums: Array, counts: Array) -> tuple[float, float]:
    """Interval of a mean paired difference: adjusted Wald, or of whole clusters if wider.

    Half a pair is added to each of the four outcomes: n + 2 pairs, sum d, sum d^2 + 1 (Agresti and Min 2005,
    Biometrics 61:515), so that a few equal answers do not make a certainty. With weights n is Kish's
    effective size (1965, Survey Sampling), and what is added has the largest weight. apart,
    weights: of the pairs; sums, counts: per cluster, weighted.
    """
    shares = weights / weights.sum()
    n = 1 / float((shares**2).sum())
    centre = float((shares * apart).sum()) * n / (n + 2)
    squares = float(((shares * apart) ** 2).sum() + shares.max() ** 2) * (n / (n + 2)) ** 2
    half = Z * sqrt(max(0.0, squares - centre**2 / (n + 2)))
    low, high = _of_clusters(sums, counts) if len(sums) > 1 else (centre, centre)
    return max(-1.0, min(centre - half, low)), min(1.0, max(centre + half, high))


def _of_clusters(sums: Array, counts: Array) -> tuple[float, float]:
    """Skewness-adjusted t interval: value + error (k (1 + 2 t^2) -+ t), k = skewness / (6 sqrt(G)).

    Johnson 1978, J. American Statistical Association 73:536, as in Hesterberg 2015, The American Statistician
    69:371: a few haystacks that turn most answers make the sums skewed. The plain t ends are kept if wider.
    """
    value, clusters = float(sums.sum() / counts.sum()), len(sums)
    error, t = robust_error(sums, counts), t_quantile(0.975, len(sums) - 1)
    left = sums - value * counts
    spread = float((left**2).mean())
    skewness = float((left**3).mean()) / spread**1.5 if spread > 1e-12 and clusters >= FEWEST else 0.0
    shift = skewness / (6 * sqrt(clusters)) * (1 + 2 * t * t)
    return value + error * min(shift - t, -t), value + error * max(shift + t, t)


def _bootstrap(sums: Array, counts: Array) -> tuple[float, float]:
    drawn = draws(len(sums))
    interval = expanded_interval((drawn @ sums) / (drawn @ counts), len(sums))
    assert interval is not None  # there are FEWEST clusters
    return interval
