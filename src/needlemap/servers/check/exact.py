"""Exact one-sided tests and the intervals beside them. All levels are shares of one alpha of 1 %
over all probes, sizes and looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, hypot
from statistics import median
from typing import Literal

import numpy as np

from needlemap.stats.intervals import tango, wilson

ALPHA = 0.01  # of a whole check


@dataclass(frozen=True, slots=True)
class Effect:
    """How large a finding is, with its 95 % interval: a loss as a share in [-1, 1], or nats a
    token."""

    value: float
    low: float
    high: float
    unit: Literal["share", "nats"] = "share"

    @property
    def label(self) -> str:
        """In points or nats.

        >>> Effect(0.5, 0.25, 0.75).label, Effect(0.0012, 0.0, 0.0134, "nats").label
        ('+50 [+25, +75]', '0.0012 nats [0, 0.013]')
        """
        if self.unit == "nats":
            return f"{self.value:.2g} nats [{self.low:.2g}, {self.high:.2g}]"
        value, low, high = (f"{100 * each:+.0f}" for each in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


@lru_cache(maxsize=4096)
def rate(found: int, n: int) -> Effect | None:
    """A share of n with Wilson's interval; None without any."""
    ends = wilson(found, n)
    if ends is None:
        return None
    return Effect(found / n, min(ends[0], found / n), max(ends[1], found / n))  # 1e-18 is none


@lru_cache(maxsize=4096)
def rates_apart(found: int, n: int, others: int, of: int) -> Effect | None:
    """By how much one share exceeds another, with Newcombe's hybrid score interval (1998,
    Statistics in Medicine 17:873, method 10); None where either has no trials.

    >>> rates_apart(56, 70, 48, 80).label
    '+20 [+5, +33]'
    """
    one, two = rate(found, n), rate(others, of)
    if one is None or two is None:
        return None
    value = one.value - two.value
    below = hypot(one.value - one.low, two.high - two.value)
    above = hypot(one.high - one.value, two.value - two.low)
    return Effect(value, value - below, value + above)


@lru_cache(maxsize=4096)
def net_loss(lost: float, gained: float, n: float) -> Effect | None:
    """The net loss of n pairs with Tango's interval; None without any. Counts may be weighted.

    >>> net_loss(0, 0, 24).label
    '+0 [-14, +14]'
    """
    return Effect((lost - gained) / n, *tango(gained, lost, n)) if n else None


def middle(nats: Sequence[float]) -> Effect | None:
    """The median with the order statistics that hold it in 95 % of samples, the ends where
    there are few; None without any."""
    found, n = sorted(nats), len(nats)
    cut = max((k for k in range(n // 2) if upper_tail(n - k, n, 0.5) <= 0.025), default=0)
    return Effect(median(found), found[cut], found[n - 1 - cut], "nats") if found else None


def lost_tail(lost: int, gained: int) -> float:
    """Chance that of equal ways at least so many discordant pairs are lost: exact, one-sided.

    >>> round(lost_tail(5, 0), 4), lost_tail(0, 0)
    (0.0312, 1.0)
    """
    return upper_tail(lost, lost + gained, 0.5)


@lru_cache(maxsize=4096)
def upper_tail(found: int, n: int, chance: float) -> float:
    """Chance of at least so many of n, each with this chance.

    >>> round(upper_tail(3, 10, 0.05), 4)
    0.0115
    """
    terms = (comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(found, n + 1))
    return min(1.0, sum(terms))


def more_often(found: int, n: int, others: int, of: int) -> float:
    """Chance of at least so many of n, if they come as often as `others` of `of` did: exact,
    one-sided.

    >>> round(more_often(12, 60, 0, 36), 4)
    0.0022
    """
    return strata_tail([(n + of, n, found + others, found)])


def strata_tail(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Chance that the marked answers of some strata miss so often, if marks say nothing.
    Exact.

    Each stratum: answers, of them marked, misses, of them marked. Within one, the marked
    misses follow the hypergeometric distribution; their sum is its convolution (stratified
    Fisher test).

    >>> round(strata_tail([(16, 4, 4, 4)]), 5), strata_tail([(16, 4, 0, 0)])
    (0.00055, 1.0)
    """
    chances, seen = np.ones(1), 0
    for n, marked, misses, both in strata:
        if not misses or not marked:
            continue
        chances = np.convolve(chances, _hypergeometric(n, marked, misses))
        seen += both
    return min(1.0, float(chances[seen:].sum()))


@lru_cache(maxsize=4096)
def _hypergeometric(
    n: int, marked: int, misses: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ways = [comb(marked, k) * comb(n - marked, misses - k) for k in range(min(marked, misses) + 1)]
    total = sum(ways)
    return np.array([way / total for way in ways])
