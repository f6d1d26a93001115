"""Student's t: its distribution and quantiles, for intervals that rest on few haystacks."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, inf, pi, sin, sqrt
from statistics import NormalDist

NORMAL = NormalDist()
MANY = 1_000  # degrees of freedom from which the normal distribution is near enough (1 part in 1,000)


def t_cdf(t: float, dof: int) -> float:
    """P(T <= t), in closed form for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3, 26.7.4).

    >>> round(t_cdf(2.262157, 9), 6)
    0.975
    """
    angle = atan(t / sqrt(dof))
    odd = dof % 2
    term = total = 0.0 if dof == 1 else cos(angle) if odd else 1.0
    for k in range(2 + odd, dof - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return 0.5 + inside / 2


@lru_cache(maxsize=1_000)
def t_quantile(share: float, dof: int) -> float:
    """The t below which a share of the distribution lies, by bisection; infinite without degrees of freedom.

    >>> round(t_quantile(0.975, 4), 4)
    2.7764
    """
    if not 0.5 <= share < 1:
        raise ValueError(f"share must lie in [0.5, 1), got {share}")
    if dof < 1:
        return inf
    if dof > MANY:
        return NORMAL.inv_cdf(share)
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, dof) < share else (low, middle)
    return (low + high) / 2
