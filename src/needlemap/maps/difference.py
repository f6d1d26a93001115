"""The paired difference of two runs on the same trials: its interval, its tests, the verdict at a margin.

No other module computes a p-value. The margin is given beforehand; where it is undecided, the verdict says
what it would take to tell. What is missing gives bounds: all of it wrong, and all of it right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, inf, sqrt
from typing import Literal

import numpy as np

from needlemap.maps.clusters import FEWEST, SEED, Z, expanded_interval, robust_error
from needlemap.maps.clusters import weights as draws
from needlemap.maps.cube import Array
from needlemap.maps.intervals import t_quantile

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


def missing_bounds(total: float, n: int, missing: int) -> tuple[float, float] | None:
    """Lowest and highest mean of n scores that sum to total, and of so many unknown ones in [0, 1].

    The worst-case bounds of Manski 1990, American Economic Review 80:319. None when there is no trial at all.

    >>> missing_bounds(9.0, 10, 2)
    (0.75, 0.9166666666666666)
    """
    whole = n + missing
    return (total / whole, (total + missing) / whole) if whole else None


def difference_bounds(first: Array, second: Array) -> tuple[float, float] | None:
    """Lowest and highest mean of second - first, NaN being any score in [0, 1]; None without trials."""
    if not first.size:
        return None
    lowest = np.nan_to_num(second, nan=0.0) - np.nan_to_num(first, nan=1.0)
    highest = np.nan_to_num(second, nan=1.0) - np.nan_to_num(first, nan=0.0)
    return float(lowest.mean()), float(highest.mean())


@dataclass(frozen=True, slots=True)
class Difference:
    """second - first over n pairs in so many clusters, a share in [-1, 1]; low, high: 95 %.

    first, second: their means over these pairs. lost, gained: pairs in which second scored less or more. p:
    exact McNemar for pass and fail that all count the same, else sign flips of whole clusters, or of pairs
    where there is one cluster. flipped: whether it is of sign flips.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    clusters: int
    first: float
    second: float
    lost: int
    gained: int
    flipped: bool = False


def paired_difference(
    first: Array, second: Array, *, graded: bool, weights: Array | None = None
) -> Difference | None:
    """Difference of scores (clusters, trials), NaN where missing; pairs with one score are left out.

    None when no pair is left. Pass and fail: `adjusted_interval`. Graded: bootstrap over clusters. weights:
    of each pair, same shape; all the same if not given. The counts take no heed of them.
    """
    known = ~np.isnan(first - second)
    weights = np.ones(first.shape) if weights is None else weights
    rows = known.any(axis=1)
    first, second, known, weights = (array[rows] for array in (first, second, known, weights))
    n = int(known.sum())
    if not n:
        return None
    apart = np.where(known, second - first, 0.0)
    apart = np.where(np.abs(apart) < 1e-12, 0.0, apart)
    weights = np.where(known, weights, 0.0)
    sums, counts = (weights * apart).sum(axis=1), weights.sum(axis=1)
    lost, gained = int((apart < 0).sum()), int((apart > 0).sum())
    bootstrapped = graded and len(sums) >= FEWEST and bool(apart.any())
    each = apart[known], weights[known]
    low, high = _bootstrap(sums, counts) if bootstrapped else adjusted_interval(*each, sums, counts)
    units = sums if len(sums) > 1 else each[0] * each[1]
    alike = bool(np.ptp(each[1]) < 1e-12)
    flipped = graded or not alike
    p = sign_flip(units) if flipped else mcnemar(lost, gained)
    means = [float(np.average(scores[known], weights=each[1])) for scores in (first, second)]
    return Difference(
        *(float(sums.sum() / counts.sum()), low, high, p, n, len(sums), means[0], means[1], lost, gained),
        flipped,
    )


def adjusted_interval(apart: Array, weights: Array, sums: Array, counts: Array) -> tuple[float, float]:
    """Interval of a mean paired difference: adjusted Wald, or of whole clusters if wider.

    Half a pair is added to each of the four outcomes: n + 2 pairs, sum d, sum d^2 + 1 (Agresti and Min 2005,
    Biometrics 61:515), so that a few equal answers do not make a certainty. With weights n is Kish's
    effective size (1965, Survey Sampling), and what is added has the largest weight. apart,
    weights: of the pairs; sums, counts: per cluster, weighted.
    """
    shares = weights / weights.sum()
    n = 1 / float((shares**2).sum())
    centre = float((shares * apart).sum()) * n / (n + 2)
    squares = float(((shares * apart) ** 2).sum() + shares.max() ** 2) * (n / (n + 2)) ** 2
    half = Z * sqrt(max(0.0, squares - centre**2 / (n + 2)))
    low, high = _of_clusters(sums, counts) if len(sums) > 1 else (centre, centre)
    return max(-1.0, min(centre - half, low)), min(1.0, max(centre + half, high))


def _of_clusters(sums: Array, counts: Array) -> tuple[float, float]:
    """Skewness-adjusted t interval: value + error (k (1 + 2 t^2) -+ t), k = skewness / (6 sqrt(G)).

    Johnson 1978, J. American Statistical Association 73:536, as in Hesterberg 2015, The American Statistician
    69:371: a few haystacks that turn most answers make the sums skewed. The plain t ends are kept if wider.
    """
    value, clusters = float(sums.sum() / counts.sum()), len(sums)
    error, t = robust_error(sums, counts), t_quantile(0.975, len(sums) - 1)
    left = sums - value * counts
    spread = float((left**2).mean())
    skewness = float((left**3).mean()) / spread**1.5 if spread > 1e-12 and clusters >= FEWEST else 0.0
    shift = skewness / (6 * sqrt(clusters)) * (1 + 2 * t * t)
    return value + error * min(shift - t, -t), value + error * max(shift + t, t)


def _bootstrap(sums: Array, counts: Array) -> tuple[float, float]:
    drawn = draws(len(sums))
    interval = expanded_interval((drawn @ sums) / (drawn @ counts), len(sums))
    assert interval is not None  # there are FEWEST clusters
    return interval


Word = Literal["better", "no worse", "worse", "cannot tell"]
CEILING = 0.99
FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """word; more: further pairs that would tell if the difference stays, None when told or no number would.

    warning: why the reference proves little or nothing here; empty when it does.
    """

    word: Word
    more: int | None
    warning: str


UNCOUNTED = Verdict(
    "cannot tell",
    None,
    "each score is a mean, and the files do not say of how many answers: no n, no interval",
)


def verdict(difference: Difference, margin: float) -> Verdict:
    """Judge a difference against a margin, a share (Piaggio et al. 2012, JAMA 308:2594, figure 1).

    better: the whole 95 % interval lies above 0, which is no worse too. no worse: it lies above -margin, be
    it below 0 or not. worse: it lies below 0, and reaches -margin or beyond: a loss, of which Piaggio et al.
    would say that it matters only where the whole interval lies beyond -margin. cannot tell: else, or where
    the reference scores so little that it could not lose the margin.
    """
    warning = _warning(difference, margin)
    if difference.low > 0:  # also where the reference is at the floor: there is much to gain
        return Verdict("better", None, "")
    if difference.first <= max(margin, FLOOR):
        return Verdict("cannot tell", None, warning)
    if difference.low > -margin:
        return Verdict("no worse", None, warning)
    if difference.high < 0:
        return Verdict("worse", None, warning)
    return Verdict("cannot tell", more_pairs(difference, margin), warning)


def more_pairs(difference: Difference, margin: float) -> int | None:
    """Further pairs after which the interval, narrowed by the root of n, clears -margin or 0; None if never.

    Takes the observed difference to be the true one.
    """
    half = (difference.high - difference.low) / 2
    gap = max(difference.value + margin, -difference.value)
    needed = difference.n * (half / gap) ** 2 if gap > 1e-9 else inf
    return ceil(needed) - difference.n if needed > difference.n and needed < inf else None


def _warning(difference: Difference, margin: float) -> str:
    if difference.first <= max(margin, FLOOR):
        return "the reference is at the floor: there is nothing that could be lost, so this proves nothing"
    if difference.first >= CEILING:
        return (
            "the reference is at the ceiling: trials as easy as these show only gross losses; "
            "use longer lengths or a harder task"
        )
    return ""
