"""How large a finding is, with its interval.

All levels of tests are shares of one alpha of 1 % over all probes, sizes and looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal

from needlemap.stats.intervals import median_interval, newcombe, tango, wilson

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
    """By how much one share exceeds another, with Newcombe's interval; None where either has no
    trials.

    >>> rates_apart(56, 70, 48, 80).label
    '+20 [+5, +33]'
    """
    ends = newcombe(found, n, others, of)
    return Effect(found / n - others / of, *ends) if ends else None


@lru_cache(maxsize=4096)
def net_loss(lost: float, gained: float, n: float) -> Effect | None:
    """The net loss of n pairs with Tango's interval; None without any. Counts may be weighted.

    >>> net_loss(0, 0, 24).label
    '+0 [-14, +14]'
    """
    return Effect((lost - gained) / n, *tango(gained, lost, n)) if n else None


def middle(nats: Sequence[float]) -> Effect | None:
    """The median with its interval, the ends where there are few; None without any."""
    ends = median_interval(nats)
    return Effect(median(nats), *ends, "nats") if ends else None
