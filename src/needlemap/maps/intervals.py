"""Intervals of a rate, Student's t for those that rest on few haystacks, and how many trials show a drop.

Formulas and sources stand with each function; no other module computes an interval of a rate.
"""

from __future__ import annotations

from functools import lru_cache
from math import atan, ceil, cos, floor, inf, pi, sin, sqrt
from statistics import NormalDist

Z = 1.959963984540054


def wilson(hits: float, n: float, z: float = Z) -> tuple[float, float] | None:
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


def tango(lost: float, gained: float, n: float, z: float = Z) -> tuple[float, float]:
    """Score interval of (gained - lost) / n over n pairs (Tango 1998, Statistics in Medicine 17:891).

    Each end is the difference whose score test has |z|, so a claim that less than the margin is lost is wrong
    in at most 2.5 % of runs however few pairs differ, which Wald intervals do not hold there. Counts may be
    weighted, and need not be whole.

    >>> [round(x, 4) for x in tango(0, 0, 189)]
    [-0.0199, 0.0199]
    """
    return -_most_lost(lost, gained, n, z), _most_lost(gained, lost, n, z)


def _most_lost(lost: float, gained: float, n: float, z: float) -> float:
    """The largest share of net losses that the score test does not reject, by bisection."""
    low, high = (lost - gained) / n, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _score(lost, gained, n, middle) > -z else (low, middle)
    return high


def _score(lost: float, gained: float, n: float, loss: float) -> float:
    """Tango's statistic for a net loss, the variance being that of the likeliest shares with this loss."""
    b = (2 * n - lost + gained) * loss - lost - gained
    share = (sqrt(max(0.0, b * b + 8 * n * gained * loss * (1 - loss))) - b) / (4 * n)
    variance = n * (2 * share + loss * (1 - loss))
    return (lost - gained - n * loss) / sqrt(variance) if variance > 0 else -inf


def least_pairs(margin: float, *, graded: bool = False) -> int:
    """Pairs below which no answers whatever are `no worse` at the margin, a share: not even equal ones.

    >>> least_pairs(0.02), least_pairs(0.05)
    (189, 73)
    """
    return floor(Z / margin - 2 if graded else Z * Z * (1 - margin) / margin) + 1


LOST_TO_GAINED = 6.0  # of seven answers that change under a real drop, about one is a gain
POWER = 0.8


def trials_needed(
    drop: float, discordant: float | None = None, design_effect: float = 1.0, clusters: int | None = None
) -> int:
    """Paired trials at which a drop (a share) is called worse with so much POWER, at the two-sided 5 % level.

    n = deff (t_a sqrt(D) + t_b sqrt(D - drop^2))^2 / drop^2, D being the share of pairs that differ
    (McNemar's test: Connor 1987, Biometrics 43:207; Miettinen 1968). D is at least the drop; not given, six
    answers are lost for each one gained. clusters: haystacks that the interval of the verdict is of, whence
    Student's t, and 0.8 / clusters more since the wider of two intervals decides (by simulation); None where
    it is of pairs. design_effect: of differences.

    >>> trials_needed(0.05), trials_needed(0.05, clusters=5)
    (218, 445)
    """
    if not 0 < drop <= 1:
        raise ValueError(f"drop must lie in (0, 1], got {drop}")
    share = drop * (LOST_TO_GAINED + 1) / (LOST_TO_GAINED - 1) if discordant is None else discordant
    share = min(1.0, max(share, drop))
    freedom = clusters - 1 if clusters else MANY + 1
    level, chance = t_quantile(0.975, freedom), t_quantile(POWER, freedom)
    root = level * sqrt(share) + chance * sqrt(max(0.0, share - drop**2))
    return ceil(design_effect * (1 + 0.8 / clusters if clusters else 1.0) * (root / drop) ** 2)
