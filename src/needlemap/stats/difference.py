"""The paired difference of two runs on the same trials: its interval and its tests.

Exact tails of counts are in `exact.py`. What is missing gives bounds: all of it wrong, and all of
it right. The verdict on a difference is in `judging.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from needlemap.stats.exact import mcnemar
from needlemap.stats.intervals import (
    FEWEST,
    NORMAL,
    SEED,
    TAILS,
    Tails,
    expanded_interval,
    robust_error,
    t_quantile,
    tango,
)
from needlemap.stats.intervals import weights as draws

if TYPE_CHECKING:
    from needlemap.stats import Array

EXACT_UP_TO = 12  # clusters, whose 4,096 sign patterns are all gone through
PATTERNS = 20_000


def sign_flip(totals: Array) -> float:
    """Two-sided p that clusters' summed differences come from no difference, by flipping their
    signs.

    Exact up to EXACT_UP_TO clusters, else over PATTERNS seeded patterns, itself counted
    (Fisher 1935, The Design of Experiments, section 21; Phipson and Smyth 2010, Stat. Appl.
    Genet. Mol. Biol. 9:39). Whole clusters flip, so trials that share a haystack need not be
    independent.
    """
    totals = totals[totals != 0]
    if not len(totals):
        return 1.0
    observed = abs(totals.sum()) - 1e-9
    if len(totals) <= EXACT_UP_TO:
        bits = np.arange(2 ** len(totals))[:, None] >> np.arange(len(totals)) & 1
        return float((np.abs((1 - 2 * bits) @ totals) >= observed).mean())
    signs = np.random.default_rng(SEED).integers(0, 2, (PATTERNS, len(totals))) * 2 - 1
    return float(((np.abs(signs @ totals) >= observed).sum() + 1) / (PATTERNS + 1))


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for their number, step down (Holm 1979, Scandinavian J. Statistics
    6:65).

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = highest
    return tuple(adjusted)


def missing_bounds(total: float, n: int, missing: int) -> tuple[float, float] | None:
    """Lowest and highest mean of n scores that sum to total, and of so many unknown ones in
    [0, 1].

    The worst-case bounds of Manski 1990, American Economic Review 80:319. None when there is
    no trial at all.

    >>> missing_bounds(9.0, 10, 2)
    (0.75, 0.9166666666666666)
    """
    whole = n + missing
    return (total / whole, (total + missing) / whole) if whole else None


Flipped = Literal["", "prompts", "haystacks"]


@dataclass(frozen=True, slots=True)
class Difference:
    """second - first over n pairs in so many clusters, a share in [-1, 1]; low, high: 95 %.

    first, second: their means over these pairs. lost, gained: pairs in which second scored
    less or more. p: exact McNemar for pass and fail that all count the same, else sign flips
    of whole clusters, or of pairs where clusters are too few for that. flipped: what was
    flipped; least_p: the least p that could be. size: how many pairs alike tell as much.
    design_effect: how much more the clusters vary than independent pairs would; 1 where there
    are fewer than FEWEST, and then the interval is of these alone.
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
    flipped: Flipped = ""
    least_p: float = 0.0
    size: float = 0.0
    design_effect: float = 1.0

    @property
    def of_these(self) -> bool:
        """Whether it is about these haystacks only: others were not seen, or too few of
        them."""
        return self.clusters < FEWEST


SKEWED = 1.5  # few haystacks show too little of how skewed their losses are (by simulation)
FLIPPED = 6  # clusters: fewer have so few patterns of signs that p is never below 0.05


def paired_difference(
    first: Array,
    second: Array,
    *,
    graded: bool,
    weights: Array | None = None,
    tails: Tails = TAILS,
) -> Difference | None:
    """Difference of scores (clusters, trials), NaN where missing; pairs with one score are
    left out.

    None when no pair is left. The interval is that of pairs (`pair_interval`), and from FEWEST
    clusters on that of whole clusters where it is wider: skewness-adjusted t, or of graded
    scores a bootstrap. weights: of each pair, same shape; all the same if not given. The
    counts take no heed of them. tails: of the interval.
    """
    known = ~np.isnan(first - second)
    weights = np.ones(first.shape) if weights is None else weights
    rows = known.any(axis=1)
    first, second, known, weights = (array[rows] for array in (first, second, known, weights))
    if not known.any():
        return None
    apart = np.where(known, second - first, 0.0)
    apart = np.where(np.abs(apart) < 1e-12, 0.0, apart)
    weights = np.where(known, weights, 0.0)
    sums, counts = (weights * apart).sum(axis=1), weights.sum(axis=1)
    each = apart[known], weights[known]
    low, high, size = pair_interval(*each, graded=graded, tails=tails)
    effect = 1.0
    if len(sums) >= FEWEST:
        bootstrapped = graded and bool(apart.any())
        ends = (_bootstrap if bootstrapped else _of_clusters)(sums, counts, tails)
        low, high = min(low, ends[0]), max(high, ends[1])
        effect = _design_effect(*each, robust_error(sums, counts))
    means = [float(np.average(scores[known], weights=each[1])) for scores in (first, second)]
    lost, gained = int((apart < 0).sum()), int((apart > 0).sum())
    alike = bool(np.ptp(each[1]) < 1e-12)
    p, least, flipped = _test(
        each[0] * each[1], sums, None if graded or not alike else (lost, gained)
    )
    value, n = float(sums.sum() / counts.sum()), len(each[0])
    low, high = min(low, value), max(high, value)  # of linearised scores it may lie beyond 1
    counted = p, n, len(sums), means[0], means[1], lost, gained
    return Difference(value, low, high, *counted, flipped, least, size, effect)


def _test(
    pairs: Array, sums: Array, counts: tuple[int, int] | None
) -> tuple[float, float, Flipped]:
    """p, the least that it could be, and what was flipped. counts: lost and gained, where
    pairs are alike and pass or fail."""
    if counts is not None:
        return mcnemar(*counts), mcnemar(sum(counts), 0), ""
    whole = len(sums) >= FLIPPED
    units = sums if whole else pairs
    return (
        sign_flip(units),
        min(1.0, 2 * 0.5 ** int((units != 0).sum())),
        "haystacks" if whole else "prompts",
    )


def pair_interval(
    apart: Array, weights: Array, *, graded: bool, tails: Tails = TAILS
) -> tuple[float, float, float]:
    """Interval of a mean difference of pairs, and how many pairs alike and independent tell as
    much.

    Pass and fail: `tango`. With weights as of so many pairs as the heaviest would make the
    whole: all that is lost may be lost there. Graded: adjusted Wald. Half a pair is added to
    each of the four outcomes, n + 2 pairs, sum d, sum d^2 + 1 (Agresti and Min 2005,
    Biometrics 61:515), so that a few equal answers do not make a certainty; n is Kish's
    effective size (1965, Survey Sampling), and what is added has the largest weight.
    """
    shares = weights / weights.sum()
    parts, size = shares * apart, 1 / float(shares.max())
    if not graded:
        ends = tango(
            -size * float(parts[parts < 0].sum()), size * float(parts[parts > 0].sum()), size, tails
        )
        return (*ends, size)
    n = 1 / float((shares**2).sum())
    centre = float(parts.sum()) * n / (n + 2)
    squares = float((parts**2).sum() + shares.max() ** 2) * (n / (n + 2)) ** 2
    error = sqrt(max(0.0, squares - centre**2 / (n + 2)))
    below, above = (NORMAL.inv_cdf(1 - tail) for tail in tails)
    return max(-1.0, centre - below * error), min(1.0, centre + above * error), size


def _design_effect(apart: Array, weights: Array, error: float) -> float:
    """The square of clusters' standard error over that of independent pairs; at least 1."""
    shares = weights / weights.sum()
    plain = float(((shares * (apart - float(shares @ apart))) ** 2).sum())
    return max(1.0, error**2 / plain) if plain > 1e-15 else 1.0


def _of_clusters(sums: Array, counts: Array, tails: Tails) -> tuple[float, float]:
    """Skewness-adjusted t interval: value + error (k (1 + 2 t^2) -+ t), k = SKEWED skewness /
    (6 sqrt(G)).

    Johnson 1978, J. American Statistical Association 73:536, as in Hesterberg 2015, The
    American Statistician 69:371: a few haystacks that turn most answers make the sums skewed.
    The plain t ends are kept if wider. t has the degrees of freedom of haystacks with a
    difference, FEWEST at least: others tell little of how they spread.
    """
    value, clusters = float(sums.sum() / counts.sum()), len(sums)
    telling = max(FEWEST, int((sums != 0).sum()))
    error, freedom = robust_error(sums, counts), min(telling, clusters) - 1
    below, above = (t_quantile(1 - tail, freedom) for tail in tails)
    left = sums - value * counts
    spread = float((left**2).mean())
    skewness = (
        float((left**3).mean()) / spread**1.5 if spread > 1e-12 and clusters >= FEWEST else 0.0
    )
    bend = SKEWED * skewness / (6 * sqrt(clusters))
    low = min(bend * (1 + 2 * below * below) - below, -below)
    high = max(bend * (1 + 2 * above * above) + above, above)
    return value + error * low, value + error * high


def _bootstrap(sums: Array, counts: Array, tails: Tails) -> tuple[float, float]:
    drawn = draws(len(sums))
    interval = expanded_interval((drawn @ sums) / (drawn @ counts), len(sums), tails)
    assert interval is not None  # there are FEWEST clusters
    return interval
