"""The bootstrap over haystacks: whole repeats are drawn again, so what shares a haystack stays together."""

from __future__ import annotations

from math import sqrt

import numpy as np

from needlemap.maps.cube import Array
from needlemap.maps.student import NORMAL, t_quantile

DRAWS = 2_000
SEED = 0
FEWEST = 5  # haystacks: fewer have so few different draws that their interval means little


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
