"""Sizes of effects, with their intervals.

All levels of tests are shares of one alpha of 1 % over all probes, sizes and looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
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

    >>> effect = rates_apart(56, 70, 48, 80)
    >>> [round(share, 2) for share in (effect.value, effect.low, effect.high)]
    [0.2, 0.05, 0.33]
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

    >>> effect = net_loss(0, 0, 24)
    >>> [round(share, 2) for share in (effect.value, effect.low, effect.high)]
    [0.0, -0.14, 0.14]
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


def rounded_up(share: float) -> str:
    """Return a share in percent, rounded up to two digits.

    >>> rounded_up(0.00204), rounded_up(0.0125), rounded_up(1.0), rounded_up(0.12345)
    ('0.21', '1.3', '100', '13')
    """
    percent = 100 * share
    if percent >= 99:
        return "100"
    if percent >= 10:
        digits = 0
    elif percent >= 1:
        digits = 1
    else:
        digits = 2
    return f"{ceil(percent * 10**digits - 1e-9) / 10**digits:.{digits}f}"
