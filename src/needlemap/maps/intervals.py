"""Intervals of a rate. Formulas and sources stand with each function; no other module computes one."""

from __future__ import annotations

from math import sqrt


def wilson(hits: float, n: float, z: float = 1.959963984540054) -> tuple[float, float] | None:
    """Interval of the rate hits/n, or None when n is 0 (Wilson 1927, JASA 22:209).

    Graded scores may be summed into hits: their variance is at most that of pass or fail, so the interval is
    then on the safe side. n may be an effective number of trials, which need not be whole.

    >>> [round(x, 2) for x in wilson(17, 20)]
    [0.64, 0.95]
    """
    if not 0 <= hits <= n + 1e-9:
        raise ValueError(f"hits must lie in 0..{n}, got {hits}")
    if n == 0:
        return None
    p, w = min(hits / n, 1.0), z * z / n
    half = z * sqrt(p * (1 - p) / n + w / (4 * n))
    return max(0.0, (p + w / 2 - half) / (1 + w)), min(1.0, (p + w / 2 + half) / (1 + w))
