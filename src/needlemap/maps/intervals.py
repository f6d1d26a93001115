"""Intervals of a rate, Student's t for those that rest on few haystacks, and how many trials show a drop.

Formulas and sources stand with each function; no other module computes an interval of a rate.
"""

from __future__ import annotations

from functools import lru_cache
from math import atan, ceil, cos, inf, pi, sin, sqrt
from statistics import NormalDist


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


LOST_TO_GAINED = 6.0  # of seven answers that change under a real drop, about one is a gain
POWER = 0.8


def trials_needed(
    drop: float, discordant: float | None = None, design_effect: float = 1.0, power: float = POWER
) -> int:
    """Paired trials that show a drop (a share) at the two-sided 5 % level with so much power.

    n = deff (z_a sqrt(D) + z_b sqrt(D - drop^2))^2 / drop^2, D being the share of pairs that differ
    (McNemar's test: Connor 1987, Biometrics 43:207; Miettinen 1968). D is at least the drop; not given, six
    answers are lost for each one gained.

    >>> trials_needed(0.05)
    218
    """
    if not 0 < drop <= 1:
        raise ValueError(f"drop must lie in (0, 1], got {drop}")
    share = drop * (LOST_TO_GAINED + 1) / (LOST_TO_GAINED - 1) if discordant is None else discordant
    share = min(1.0, max(share, drop))
    level, chance = NORMAL.inv_cdf(0.975), NORMAL.inv_cdf(power)
    root = level * sqrt(share) + chance * sqrt(max(0.0, share - drop**2))
    return ceil(design_effect * (root / drop) ** 2)
