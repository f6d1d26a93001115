"""Tests of a paired difference, and their correction for many. No other module computes a p-value."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from needlemap.maps.bootstrap import SEED
from needlemap.maps.cube import Array

EXACT_UP_TO = 12  # clusters, whose 4,096 sign patterns are all gone through
PATTERNS = 20_000


def mcnemar(lost: int, gained: int) -> float:
    """Exact two-sided p of so many pairs lost and gained, the others being equal.

    McNemar 1947, Psychometrika 12:153: twice the smaller tail of a binomial with one half, at most 1.
    Takes pairs as independent.

    >>> mcnemar(6, 0)
    0.03125
    """
    n = lost + gained
    tail = sum(comb(n, k) for k in range(min(lost, gained) + 1))
    return min(1.0, float(2 * tail / 2**n))


def sign_flip(totals: Array, seed: int = SEED) -> float:
    """Two-sided p that clusters' summed differences come from no difference, by flipping their signs.

    Exact up to EXACT_UP_TO clusters, else over PATTERNS seeded patterns, itself counted (Fisher 1935, The
    Design of Experiments, section 21; Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9:39). Whole
    clusters flip, so trials that share a haystack need not be independent.
    """
    totals = totals[totals != 0]
    if not len(totals):
        return 1.0
    observed = abs(totals.sum()) - 1e-9
    if len(totals) <= EXACT_UP_TO:
        bits = np.arange(2 ** len(totals))[:, None] >> np.arange(len(totals)) & 1
        return float((np.abs((1 - 2 * bits) @ totals) >= observed).mean())
    signs = np.random.default_rng(seed).integers(0, 2, (PATTERNS, len(totals))) * 2 - 1
    return float(((np.abs(signs @ totals) >= observed).sum() + 1) / (PATTERNS + 1))


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for their number, step down (Holm 1979, Scandinavian J. Statistics 6:65).

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = highest
    return tuple(adjusted)
