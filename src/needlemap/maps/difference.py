"""The paired difference of two runs on the same trials: its interval, its tests, the verdict at a
margin.

No other module computes a p-value. The margin is given beforehand; where it is undecided, the
verdict says what it would take to tell. What is missing gives bounds: all of it wrong, and all of
it right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from needlemap.maps.intervals import (
    FEWEST,
    SEED,
    Z,
    assumed_effect,
    expanded_interval,
    least_pairs,
    robust_error,
    t_quantile,
    tango,
)
from needlemap.maps.intervals import weights as draws

if TYPE_CHECKING:
    from needlemap.maps import Array

EXACT_UP_TO = 12  # clusters, whose 4,096 sign patterns are all gone through
PATTERNS = 20_000


def mcnemar(lost: int, gained: int) -> float:
    """Exact two-sided p of so many pairs lost and gained, the others being equal.

    McNemar 1947, Psychometrika 12:153: twice the smaller tail of a binomial with one half, at most
    1. Takes pairs as independent.

    >>> mcnemar(6, 0)
    0.03125
    """
    n, tail, ways = lost + gained, 0, 1
    for k in range(min(lost, gained) + 1):
        tail += ways
        ways = ways * (n - k) // (k + 1)  # of k + 1 out of n
    return min(1.0, float(2 * tail / 2**n))


def sign_flip(totals: Array) -> float:
    """Two-sided p that clusters' summed differences come from no difference, by flipping their
    signs.

    Exact up to EXACT_UP_TO clusters, else over PATTERNS seeded patterns, itself counted (Fisher
    1935, The Design of Experiments, section 21; Phipson and Smyth 2010, Stat. Appl. Genet. Mol.
    Biol. 9:39). Whole clusters flip, so trials that share a haystack need not be independent.
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

    The worst-case bounds of Manski 1990, American Economic Review 80:319. None when there is no
    trial at all.

    >>> missing_bounds(9.0, 10, 2)
    (0.75, 0.9166666666666666)
    """
    whole = n + missing
    return (total / whole, (total + missing) / whole) if whole else None


def difference_bounds(first: Array, second: Array) -> tuple[float, float] | None:
    """Lowest and highest mean of second - first, NaN being any score in [0, 1]; None without
    trials."""
    if not first.size:
        return None
    lowest = np.nan_to_num(second, nan=0.0) - np.nan_to_num(first, nan=1.0)
    highest = np.nan_to_num(second, nan=1.0) - np.nan_to_num(first, nan=0.0)
    return float(lowest.mean()), float(highest.mean())


Flipped = Literal["", "prompts", "haystacks"]


@dataclass(frozen=True, slots=True)
class Difference:
    """second - first over n pairs in so many clusters, a share in [-1, 1]; low, high: 95 %.

    first, second: their means over these pairs. lost, gained: pairs in which second scored less or
    more. p:
    exact McNemar for pass and fail that all count the same, else sign flips of whole clusters, or
    of pairs where clusters are too few for that. flipped: what was flipped; least_p: the least p
    that could be. size:
    how many pairs alike tell as much. design_effect: how much more the clusters vary than
    independent pairs would; 1 where there are fewer than FEWEST, and then the interval is of these
    alone.
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
        """Whether it is about these haystacks only: others were not seen, or too few of them."""
        return self.clusters < FEWEST


ASSUMED_APART = (
    0.01  # least correlation of a haystack's differences: few show a loss that only some have
)
SKEWED = 1.5  # few haystacks show too little of how skewed their losses are (by simulation)
FLIPPED = 6  # clusters: fewer have so few patterns of signs that p is never below 0.05


def paired_difference(
    first: Array, second: Array, *, graded: bool, weights: Array | None = None
) -> Difference | None:
    """Difference of scores (clusters, trials), NaN where missing; pairs with one score are left
    out.

    None when no pair is left. The interval is that of pairs (`pair_interval`), and from FEWEST
    clusters on that of whole clusters where it is wider: skewness-adjusted t, or of graded scores a
    bootstrap. weights:
    of each pair, same shape; all the same if not given. The counts take no heed of them. From
    FEWEST clusters on pairs of one are taken to correlate by ASSUMED_APART at least: where a loss
    clusters, few clusters may show none of it.
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
    whole = len(sums) >= FEWEST
    assumed = assumed_effect(known.sum(axis=1).astype(np.float64), ASSUMED_APART) if whole else 1.0
    low, high, size = pair_interval(*each, assumed, graded=graded)
    effect = 1.0
    if whole:
        bootstrapped = graded and bool(apart.any())
        ends = _bootstrap(sums, counts) if bootstrapped else _of_clusters(sums, counts)
        low, high = min(low, ends[0]), max(high, ends[1])
        effect = max(assumed, _design_effect(*each, robust_error(sums, counts)))
    means = [float(np.average(scores[known], weights=each[1])) for scores in (first, second)]
    lost, gained = int((apart < 0).sum()), int((apart > 0).sum())
    alike = bool(np.ptp(each[1]) < 1e-12)
    p, least, flipped = _test(
        each[0] * each[1], sums, None if graded or not alike else (lost, gained)
    )
    value, n = float(sums.sum() / counts.sum()), len(each[0])
    counted = p, n, len(sums), means[0], means[1], lost, gained
    return Difference(value, low, high, *counted, flipped, least, size, effect)


def _test(
    pairs: Array, sums: Array, counts: tuple[int, int] | None
) -> tuple[float, float, Flipped]:
    """p, the least that it could be, and what was flipped. counts: lost and gained, where pairs are
    alike and pass or fail."""
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
    apart: Array, weights: Array, effect: float = 1.0, *, graded: bool
) -> tuple[float, float, float]:
    """Interval of a mean difference of pairs, and how many pairs alike and independent tell as
    much.

    effect: the design effect by which there are fewer. Pass and fail: `tango`. With weights as of
    so many pairs as the heaviest would make the whole: all that is lost may be lost there. Graded:
    adjusted Wald. Half a pair is added to each of the four outcomes, n + 2 pairs, sum d, sum d^2 +
    1
    (Agresti and Min 2005, Biometrics 61:515), so that a few equal answers do not make a certainty;
    n is Kish's effective size (1965, Survey Sampling), and what is added has the largest weight.
    """
    shares = weights / weights.sum()
    parts, size = shares * apart, 1 / float(shares.max()) / effect
    if not graded:
        ends = tango(
            -size * float(parts[parts < 0].sum()), size * float(parts[parts > 0].sum()), size
        )
        return (*ends, size)
    n = 1 / float((shares**2).sum())
    centre = float(parts.sum()) * n / (n + 2)
    squares = float((parts**2).sum() + shares.max() ** 2) * (n / (n + 2)) ** 2
    half = Z * sqrt(effect * max(0.0, squares - centre**2 / (n + 2)))
    return max(-1.0, centre - half), min(1.0, centre + half), size


def _design_effect(apart: Array, weights: Array, error: float) -> float:
    """The square of clusters' standard error over that of independent pairs; at least 1."""
    shares = weights / weights.sum()
    plain = float(((shares * (apart - float(shares @ apart))) ** 2).sum())
    return max(1.0, error**2 / plain) if plain > 1e-15 else 1.0


def _of_clusters(sums: Array, counts: Array) -> tuple[float, float]:
    """Skewness-adjusted t interval: value + error (k (1 + 2 t^2) -+ t), k = SKEWED skewness / (6
    sqrt(G)).

    Johnson 1978, J. American Statistical Association 73:536, as in Hesterberg 2015, The American
    Statistician 69:371: a few haystacks that turn most answers make the sums skewed. The plain t
    ends are kept if wider. t has the degrees of freedom of haystacks with a difference, FEWEST at
    least: others tell little of how they spread.
    """
    value, clusters = float(sums.sum() / counts.sum()), len(sums)
    telling = max(FEWEST, int((sums != 0).sum()))
    error, t = robust_error(sums, counts), t_quantile(0.975, min(telling, clusters) - 1)
    left = sums - value * counts
    spread = float((left**2).mean())
    skewness = (
        float((left**3).mean()) / spread**1.5 if spread > 1e-12 and clusters >= FEWEST else 0.0
    )
    shift = SKEWED * skewness / (6 * sqrt(clusters)) * (1 + 2 * t * t)
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
class Unanswered:
    """What second failed to answer. lost: the difference with pairs that it has no score of taken
    as lost.

    excess: the share of prompts that it failed and first did not, less the reverse; n: those
    without a score.
    """

    lost: Difference
    excess: float
    n: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """word; more: further pairs that would tell if the difference stays, None when told or no
    number would.

    warning: why the reference proves little or nothing here; empty when it does. unanswered:
    whether missing answers of second decided it, or kept it from `no worse`.
    """

    word: Word
    more: int | None
    warning: str
    unanswered: bool = False

    def code(self) -> int:
        """The exit code where a verdict is asked for: 0 no worse, 1 worse, 4 undecided."""
        return {"worse": 1, "cannot tell": 4}.get(self.word, 0)


UNCOUNTED = Verdict(
    "cannot tell",
    None,
    "each score is a mean, and the files do not say of how many answers: no n, no interval",
)


def verdict(difference: Difference, margin: float, missing: Unanswered | None = None) -> Verdict:
    """Judge a difference against a margin, a share (Piaggio et al. 2012, JAMA 308:2594, figure 1).

    better: the whole 95 % interval lies above 0, which is no worse too. no worse: it lies above
    -margin, be it below 0 or not. worse: it lies below 0, and reaches -margin or beyond: a loss, of
    which Piaggio et al. would say that it matters only where the whole interval lies beyond
    -margin. cannot tell: else, or where the reference scores so little that it could not lose the
    margin. What second did not answer counts against it: better and no worse hold with these pairs
    lost too, and who fails more prompts than first by over the margin is worse.
    """
    warning = _warning(difference, margin)
    low = min(difference.low, missing.lost.low) if missing else difference.low
    if low > 0:  # also where the reference is at the floor: there is much to gain
        return Verdict("better", None, "")
    if missing and missing.excess > margin:
        return Verdict("worse", None, "", unanswered=True)
    if difference.first <= max(margin, FLOOR):
        return Verdict("cannot tell", None, warning)
    if low > -margin:
        return Verdict("no worse", None, warning)
    if difference.high < 0 and difference.low <= -margin:
        return Verdict("worse", None, warning)
    if difference.low > -margin:
        return Verdict("cannot tell", None, warning, unanswered=True)
    return Verdict("cannot tell", more_pairs(difference, margin), warning)


def more_pairs(difference: Difference, margin: float) -> int | None:
    """Further pairs after which the interval, narrowed by the root of n, clears -margin or 0; None
    if never.

    Takes the observed difference to be the true one, so that it tells with even odds.
    """
    if not difference.lost + difference.gained and difference.size:
        return (
            max(0, ceil(least_pairs(margin) * difference.n / difference.size) - difference.n)
            or None
        )
    half = (difference.high - difference.low) / 2
    gap = max(difference.value + margin, -difference.value)
    needed = difference.n * (half / gap) ** 2 if gap > 1e-9 else inf
    return ceil(needed) - difference.n if needed > difference.n and needed < inf else None


def _warning(difference: Difference, margin: float) -> str:
    if difference.first <= max(margin, FLOOR):
        return (
            "the reference is at the floor: there is nothing that could be lost, so this proves "
            "nothing"
        )
    if difference.first >= CEILING:
        return (
            "the reference is at the ceiling: trials as easy as these show only gross losses; "
            "use longer lengths or a harder task"
        )
    return ""
