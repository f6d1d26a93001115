"""Sizes of effects, with their intervals.

All levels of tests are shares of one alpha of 1 % over all probes, sizes and looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal

from needlemap.stats.intervals import median_interval, newcombe, tango, wilson

# The chance that a sound server fails a whole check.
ALPHA = 0.01


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
        """Return the effect in points or nats, with its interval.

        >>> Effect(0.5, 0.25, 0.75).label, Effect(0.0012, 0.0, 0.0134, "nats").label
        ('+50 [+25, +75]', '0.0012 nats [0, 0.013]')
        """
        if self.unit == "nats":
            return f"{self.value:.2g} nats [{self.low:.2g}, {self.high:.2g}]"
        return f"{100 * self.value:+.0f} [{100 * self.low:+.0f}, {100 * self.high:+.0f}]"


@lru_cache(maxsize=4096)
def rate(count: int, n: int) -> Effect | None:
    """Return count/n with Wilson's interval, or None if n is 0."""
    interval = wilson(count, n)
    if interval is None:
        return None

    low, high = interval
    share = count / n
    # Rounding may put an end on the wrong side of the share, by some 1e-18.
    return Effect(value=share, low=min(low, share), high=max(high, share))


@lru_cache(maxsize=4096)
def rates_apart(count: int, n: int, other_count: int, other_n: int) -> Effect | None:
    """Return count/n minus other_count/other_n with Newcombe's interval, or None if n or other_n
    is 0.

    >>> rates_apart(56, 70, 48, 80).label
    '+20 [+5, +33]'
    """
    interval = newcombe(count, n, other_count, other_n)
    if interval is None:
        return None
    low, high = interval
    return Effect(value=count / n - other_count / other_n, low=low, high=high)


@lru_cache(maxsize=4096)
def net_loss(lost: float, gained: float, n: float) -> Effect | None:
    """Return the net loss of n pairs with Tango's interval, or None if n is 0. Counts may be
    weighted.

    >>> net_loss(0, 0, 24).label
    '+0 [-14, +14]'
    """
    if not n:
        return None
    low, high = tango(gained, lost, n)
    return Effect(value=(lost - gained) / n, low=low, high=high)


def middle(nats: Sequence[float]) -> Effect | None:
    """Return the median with its interval, or None if there are no values.

    Of few values the interval is the whole range.
    """
    interval = median_interval(nats)
    if interval is None:
        return None
    low, high = interval
    return Effect(value=median(nats), low=low, high=high, unit="nats")
