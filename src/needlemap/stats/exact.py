"""Exact tails of counts, and the tests that they make: signs, Fisher, McNemar, Clopper-Pearson.

No other module sums a binomial or a hypergeometric tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb, exp, lgamma, log

import numpy as np


@lru_cache(maxsize=4096)
def binomial_tail(least: int, n: int, chance: float) -> float:
    """Return the chance of at least so many of n, each with this chance.

    >>> round(binomial_tail(3, 10, 0.05), 4)
    0.0115
    """
    terms = (comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(least, n + 1))
    return min(1.0, sum(terms))


def lost_by_chance(lost: int, gained: int) -> float:
    """Return the exact one-sided p that so many of all pairs or haystacks that changed are lost.

    Each is lost or gained with one half.

    >>> lost_by_chance(6, 0), lost_by_chance(0, 6), lost_by_chance(0, 0)
    (0.015625, 1.0, 1.0)
    """
    n, tail, ways = lost + gained, 0, 1
    for k in range(gained + 1):
        tail += ways
        # ways: of k + 1 out of n
        ways = ways * (n - k) // (k + 1)
    return float(tail / 2**n)


def mcnemar(lost: int, gained: int) -> float:
    """Return the exact two-sided p of so many pairs lost and gained, the others being equal.

    McNemar 1947, Psychometrika 12:153: twice the smaller tail of a binomial with one half, at
    most 1. Takes pairs as independent.

    >>> mcnemar(6, 0)
    0.03125
    """
    return min(1.0, 2 * lost_by_chance(max(lost, gained), min(lost, gained)))


def chance_of_more(count: int, n: int, others: int, of: int) -> float:
    """Return the chance of `count` or more of n, if the true rate is that of `others` of `of`.

    The test is exact and one-sided (Fisher 1935, Journal of the Royal Statistical Society 98:39).

    >>> round(chance_of_more(12, 60, 0, 36), 4)
    0.0022
    """
    return strata_tail([(n + of, n, count + others, count)])


def strata_tail(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Return the chance that the marked answers of some strata miss so often, if marks say nothing.

    Each stratum: answers, of them marked, misses, of them marked. Within one, the marked
    misses follow the hypergeometric distribution; their sum is its convolution (stratified
    Fisher test).

    >>> round(strata_tail([(16, 4, 4, 4)]), 5), strata_tail([(16, 4, 0, 0)])
    (0.00055, 1.0)
    """
    chances, marked_misses = np.ones(1), 0
    for n, marked, misses, both in strata:
        if not misses or not marked:
            continue
        chances = np.convolve(chances, _hypergeometric(n, marked, misses))
        marked_misses += both
    return min(1.0, float(chances[marked_misses:].sum()))


@lru_cache(maxsize=4096)
def _hypergeometric(
    n: int, marked: int, misses: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ways = [comb(marked, k) * comb(n - marked, misses - k) for k in range(min(marked, misses) + 1)]
    total = sum(ways)
    return np.array([way / total for way in ways])


def count_tail(chances: Iterable[float], least: int) -> float:
    """Return the chance that at least so many of some events happen, each with its own chance.

    >>> round(count_tail([0.5, 0.5, 0.1], 2), 3)
    0.3
    """
    counts = np.ones(1)
    for chance in chances:
        counts = np.convolve(counts, (1 - chance, chance))
    return min(1.0, float(counts[least:].sum()))


def poisson_tail(least: int, mean: float) -> float:
    """Return the chance of at least so many of some rare events.

    >>> round(poisson_tail(2, 0.5), 3), poisson_tail(0, 0.0), poisson_tail(1, 0.0)
    (0.09, 1.0, 0.0)
    """
    if not mean:
        return float(not least)
    chance_below = sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(least))
    return max(0.0, 1.0 - chance_below)


def lowest_rate(hits: int, n: int) -> float:
    """Return the lower end of a rate's exact 95 % interval.

    Clopper and Pearson 1934, Biometrika 26:404.

    >>> round(lowest_rate(20, 20), 3), round(lowest_rate(3, 20), 3), lowest_rate(0, 20)
    (0.832, 0.032, 0.0)
    """
    low, high = 0.0, hits / n if n else 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if binomial_tail(hits, n, middle) < 0.025:
            low = middle
        else:
            high = middle
    return low
