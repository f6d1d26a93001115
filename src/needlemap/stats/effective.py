"""Compute the effective length: how far a model's score holds, by four named rules.

Each rule has a bootstrap interval. The curve is fitted as falling up to the first length that is
clearly below the threshold (`curves.fit_falling`), so noise on a plateau is not a fall and a clear
dip is one. The interval ends at tested lengths, since nothing between them was measured.

Several families are averaged with equal weights. Repeats are drawn for all of them together,
since repeats of one number share a haystack if families use the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isnan, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError, did_you_mean
from needlemap.stats import Array, Cube
from needlemap.stats.curves import fit_falling, length_means, mean_over_log, threshold_crossing
from needlemap.stats.intervals import (
    DRAWS,
    FEWEST,
    NORMAL,
    SEED,
    ClusterMean,
    cluster_mean,
    expanded_interval,
    include_point,
    move_outward,
    weights,
    wilson,
)

Kind = Literal["absolute", "relative", "worst-depth", "auc"]
# These are shown unless others are asked for.
RULES = ("absolute:85", "relative:85", "auc")
KINDS = ("absolute", "relative", "worst-depth", "auc")
# Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654).
PUBLISHED = 0.856
# The lowest of a few noisy depths lies far below the lowest true one: worst-depth has a point
# from so many haystacks on.
POINT_FROM = 20
# A curve that stays this near to the threshold over CRAWL octaves crawls through it.
FLAT = 0.1
CRAWL = 2
# A score below the threshold by this share of the upper half of its 95 % interval has fallen in
# nine of ten cases.
SURE = 0.65
# With a lower score at the shortest length, a share of it does not show how far a model reads.
LEAST_BASE = 0.5


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        name: as it was typed.
        kind: what the threshold is compared with.
        threshold: a share in [0, 1].
    """

    name: str
    kind: Kind
    threshold: float


@dataclass(frozen=True, slots=True)
class Effective:
    """The result of a rule: tokens, or for auc a score in [0, 1].

    Value and ends are infinite if the score never falls below the threshold up to the longest
    length, and 0 if it is below it at the shortest.

    Attributes:
        rule: the rule.
        value: None for a relative rule if the score at the shortest length is below LEAST_BASE,
            since a model that finds little there may hold it at any length; None for
            worst-depth with fewer than POINT_FROM haystacks, since it would be noise; None if
            it crawls.
        low, high: its 95 % interval, which ends at tested lengths; None with too few haystacks.
        shortest, longest: the tested lengths, in tokens.
        clusters: haystacks.
        crawls: True if the curve is so flat near the threshold that only the interval is
            meaningful.
        cells: True if there was one haystack, so that the interval takes cells as independent.
    """

    rule: Rule
    value: float | None
    low: float | None
    high: float | None
    shortest: int
    longest: int
    clusters: int
    crawls: bool = False
    cells: bool = False


def parse_rule(text: str) -> Rule:
    """Parse a rule, e.g. 'absolute:85' or 'auc', or raise SettingsError if it is unknown.

    >>> parse_rule("relative:90").threshold
    0.9
    """
    name, _, number = text.partition(":")
    if text == "auc":
        return Rule(text, "auc", 0.0)
    with suppress(ValueError):
        if name in KINDS[:3] and 0 < float(number) <= 100:
            return Rule(text, name, float(number) / 100)  # type: ignore[arg-type]
    near = did_you_mean(text, (*RULES, "worst-depth:85"))
    raise SettingsError(
        f"Unknown rule '{text}' of effective length. {near} Numbers are percentages."
    )


def parse_rules(text: str) -> tuple[str, ...]:
    """Parse rules that are separated by commas, or raise SettingsError if one is unknown.

    >>> parse_rules("absolute:90, auc")
    ('absolute:90', 'auc')
    """
    return tuple(parse_rule(part.strip()).name for part in text.split(","))


# A rule by which `_curve` takes the mean score of each length. Every rule but worst-depth does.
_MEAN = parse_rule("auc")


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over families at a length.

    Attributes:
        score: in [0, 1].
        low, high: 95 %; None with too few repeats, or if a family's scores are means of an
            unknown number of answers.
    """

    score: float
    low: float | None
    high: float | None


# The text, the table, the page and the trackers of a report ask for the same rules.
@lru_cache(16)
def effective_length(
    cube: Cube, rule: Rule, draws: int = DRAWS, seed: int = SEED
) -> Effective | None:
    """Return the result of a rule for one family. See `FamilyScores.effective`."""
    return _family(cube, draws, seed).effective(rule)


@lru_cache(4)
def _family(cube: Cube, draws: int, seed: int) -> FamilyScores:
    return FamilyScores([cube], draws, seed)


class FamilyScores:
    """The scores of one or several families, at the lengths at which all of them have a score.

    Intervals come from a bootstrap over haystacks (`intervals.py`).

    Args:
        cubes: the families' scores.
        draws: of the bootstrap; 0 for no intervals.
        seed: of the bootstrap.
        weights: of the families in their means, positive; equal if None.
    """

    def __init__(
        self,
        cubes: Sequence[Cube],
        draws: int = DRAWS,
        seed: int = SEED,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.lengths = sorted(set.intersection(*map(_scored_lengths, cubes))) if cubes else []
        self._cubes, self._draws, self._seed, self._weights = cubes, draws, seed, weights
        self._repeats = sorted(set[int]().union(*map(_scored_repeats, cubes)))
        one_haystack = bool(cubes) and all(cube.one_haystack for cube in cubes)
        self.haystacks = 1 if one_haystack else len(self._repeats)
        self._counted = all(cube.counted for cube in cubes)
        self._one_haystack = one_haystack and len(cubes) == 1 and self._counted
        # Bootstrapped curves: True for those of worst depths, False for those of means.
        self._bootstrapped = dict[bool, Array | None]()

    def means(self) -> dict[int, Mean]:
        """Return the mean by length, with its interval."""
        if not self.lengths:
            return {}
        points = self._curve(_MEAN)[0].tolist()
        curves = self._bootstrapped_curves(_MEAN)
        means = {}
        for column, (length, point) in enumerate(zip(self.lengths, points, strict=True)):
            bootstrapped = None if curves is None else curves[:, column]
            means[length] = self._mean(point, bootstrapped)
        return means

    def overall(self) -> Mean | None:
        """Return the mean over lengths with equal weights, or None if there are no scores."""
        if not self.lengths:
            return None
        point = float(self._curve(_MEAN).mean())
        curves = self._bootstrapped_curves(_MEAN)
        bootstrapped = None if curves is None else curves.mean(axis=1)
        return self._mean(point, bootstrapped)

    def _mean(self, point: float, bootstrapped: Array | None) -> Mean:
        """Return a mean with the interval of its bootstrapped values (draws,).

        bootstrapped: None for no interval.
        """
        interval = None
        if bootstrapped is not None:
            interval = expanded_interval(bootstrapped, len(self._repeats))
        low, high = interval or (None, None)
        low, high = include_point(point, low, high)
        return Mean(point, low, high)

    def effective(self, rule: Rule) -> Effective | None:
        """Return the result of a rule, with an interval.

        None without scores, and for trials of unknown length. Lengths that prompts did not
        reach are left out.

        absolute: the length at which the score first falls below the threshold (RULER,
        arXiv:2404.06654, takes the longest tested length above one).
        relative: the threshold is a share of the score at the shortest length (NoLiMa,
        arXiv:2502.05167), if that is at least LEAST_BASE.
        worst-depth: the score is that of each family's worst depth. The lowest of a few noisy
        cells lies below the lowest true one, so this errs on the short side, and so does its
        bootstrap: the interval's upper end is that of `_longest_worst`.
        auc: the mean score over log2 of the length.
        """
        if not self.lengths or not self.lengths[0]:
            return None
        if short_lengths := frozenset[int]().union(*(cube.short for cube in self._cubes)):
            reached_cubes = [cube.without(short_lengths) for cube in self._cubes]
            return FamilyScores(reached_cubes, self._draws, self._seed, self._weights).effective(
                rule
            )

        lengths = np.array(self.lengths, dtype=np.float64)
        curve = self._curve(rule)
        value = low = high = None
        crawls = False
        if not is_baseless(rule, curve):
            fit = self._fit(rule)
            point = float(rule_values(curve, lengths, rule, fit)[0])
            low, high = self._interval(rule, lengths, fit)
            crawls = 0 < point < inf and _is_crawling(low, high, curve[0], lengths, rule)
            if rule.kind != "auc" and low is not None and high is not None:
                low, high = move_outward(low, high, lengths)
            low, high = include_point(point, low, high)
            is_noise = rule.kind == "worst-depth" and self.haystacks < POINT_FROM
            value = None if is_noise or crawls or isnan(point) else point
        return Effective(
            rule=rule,
            value=value,
            low=low,
            high=high,
            shortest=self.lengths[0],
            longest=self.lengths[-1],
            clusters=self.haystacks,
            crawls=crawls,
            cells=self._one_haystack and not is_baseless(rule, curve),
        )

    def _fit(self, rule: Rule) -> Fit | None:
        """Return how a curve is fitted, or None for other rules and means of unknown counts."""
        if rule.kind not in ("absolute", "relative") or not self._counted:
            return None
        pooled_scores = np.concatenate(
            [scores.reshape(*scores.shape[:2], -1) for scores in self._scores(rule)], axis=2
        )
        doubts = []
        for scores in pooled_scores.swapaxes(0, 1):
            # Haystacks are independent; of a single one, cells are taken to be.
            mean = cluster_mean(scores.reshape(-1, 1) if self._one_haystack else scores)
            if mean is None:
                continue
            high, low = mean.high or 0.0, mean.low or 0.0
            # Single cells that all agree leave no doubt upward, and may still dip by chance.
            doubts.append(high - low if self._one_haystack else SURE * (high - mean.score))
        return Fit(sizes=(~np.isnan(pooled_scores)).sum(axis=(0, 2)), doubt=np.array(doubts))

    def _interval(
        self, rule: Rule, lengths: Array, fit: Fit | None
    ) -> tuple[float | None, float | None]:
        """Return the interval of a rule's value, or (None, None) if there is none."""
        curves = self._bootstrapped_curves(rule)
        if curves is None:
            return None, None
        units = min(map(len, self._cells())) if self._one_haystack else len(self._repeats)
        interval = expanded_interval(rule_values(curves, lengths, rule, fit), units)
        if interval is None:
            return None, None
        low, high = interval
        if rule.kind == "worst-depth":
            longest = _longest_worst(self._scores(rule), lengths, rule, self._weights)
            high = max(high, longest)
        return low, high

    def _bootstrapped_curves(self, rule: Rule) -> Array | None:
        """Return the curves of bootstrapped repeats, (draws, lengths).

        None without draws, with too few repeats, and for means of unknown counts.
        """
        worst = rule.kind == "worst-depth"
        if worst not in self._bootstrapped:
            self._bootstrapped[worst] = self._bootstrap(rule)
        return self._bootstrapped[worst]

    def _bootstrap(self, rule: Rule) -> Array | None:
        """Compute what `_bootstrapped_curves` returns."""
        if (
            not self._draws
            or not self._counted
            or (self.haystacks < FEWEST and not self._one_haystack)
        ):
            return None
        order = np.random.default_rng(self._seed).permutation(self._draws)
        if not self._one_haystack:
            return self._curve(rule, weights(len(self._repeats), self._draws, self._seed), order)
        if rule.kind == "worst-depth":
            return None
        columns = []
        for at, cells in enumerate(self._cells()):
            drawn = weights(len(cells), self._draws, self._seed + at)
            # Lengths are independent here, so each takes the draws in another order.
            columns.append(length_means(cells, drawn, order=np.roll(order, 97 * at)))
        return np.stack(columns, axis=1)

    def _cells(self) -> list[Array]:
        """Return the scores of each length as (cells, 1), of one haystack."""
        by_length = [
            scores[:, at].reshape(-1, 1)
            for scores in self._scores(_MEAN)
            for at in range(len(self.lengths))
        ]
        return [cells[~np.isnan(cells[:, 0])] for cells in by_length]

    def _curve(
        self, rule: Rule, drawn: Array | None = None, order: NDArray[np.intp] | None = None
    ) -> Array:
        """Return the mean over families for each draw, (draws, lengths).

        Without draws it is one row: the mean of what was measured.
        """
        drawn = np.ones((1, len(self._repeats))) if drawn is None else drawn
        worst = rule.kind == "worst-depth"
        curves = []
        for scores in self._scores(rule):
            columns = [
                length_means(scores[:, at], drawn, worst=worst, order=order)
                for at in range(scores.shape[1])
            ]
            curves.append(np.stack(columns, axis=1))
        return np.asarray(np.average(curves, axis=0, weights=self._weights), dtype=np.float64)

    def _scores(self, rule: Rule) -> list[Array]:
        """Return each family's scores as (repeats, lengths, depths).

        The repeats are those of all families, the lengths those that they have in common.
        """
        families = []
        for cube in self._cubes:
            scores = cube.spread if rule.kind == "worst-depth" else cube.scores
            placed = np.full((len(self._repeats), len(self.lengths), len(cube.depths)), np.nan)
            columns = [cube.lengths.index(length) for length in self.lengths]
            for row, repeat in enumerate(self._repeats):
                if repeat in cube.repeats:
                    placed[row] = scores[cube.repeats.index(repeat), columns]
            families.append(placed)
        return families


def published_length(means: Mapping[int, ClusterMean | Mean]) -> float | None:
    """Return the largest length, in tokens, whose mean over families exceeds 85.6 %.

    This is RULER's rule. It is infinite if that is the longest tested length, 0 if there is
    none, and None without means. It has no interval, and one lucky length decides it: see
    `FamilyScores.effective` for rules that have one.
    """
    if not means:
        return None
    passing_lengths = [length for length, mean in means.items() if mean.score > PUBLISHED]
    return inf if max(means) in passing_lengths else max(passing_lengths, default=0)


def _scored_lengths(cube: Cube) -> set[int]:
    """Return the lengths at which a family has a score."""
    return {length for at, length in enumerate(cube.lengths) if cube.known[:, at].any()}


def _scored_repeats(cube: Cube) -> set[int]:
    """Return the repeats of which a family has a score."""
    return {repeat for at, repeat in enumerate(cube.repeats) if cube.known[at].any()}


def is_baseless(rule: Rule, curve: Array) -> bool:
    """Return True if a rule takes a share of a score that is too low. curve: (1, lengths)."""
    return rule.kind == "relative" and bool(curve[0, 0] < LEAST_BASE)


def _longest_worst(
    families: Sequence[Array], lengths: Array, rule: Rule, weights: Sequence[float] | None = None
) -> float:
    """Return the length up to which the worst depth may hold.

    At this length the lowest upper end of the cells falls below the threshold.

    Each end is Wilson's at 1 - 0.025 / depths, so that all hold at once (Bonferroni; Dunn
    1961, J. American Statistical Association 56:52), the worst depth's among them: the trials
    of a cell have a haystack each. For several families the mean of their ends is taken.
    """
    ends = [[_least_end(cells) for cells in scores.swapaxes(0, 1)] for scores in families]
    mean = np.average(ends, axis=0, weights=weights)[np.newaxis]
    return float(rule_values(mean, lengths, rule)[0])


def _least_end(cells: Array) -> float:
    """Return the lowest upper end of one length's cells (clusters, depths)."""
    counts = (~np.isnan(cells)).sum(axis=0)
    hits = np.nansum(cells, axis=0)[counts > 0]
    z = NORMAL.inv_cdf(1 - 0.025 / len(hits))
    ends = [wilson(float(hit), int(n), z) for hit, n in zip(hits, counts[counts > 0], strict=True)]
    return min(end[1] for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a falling curve is fitted.

    Attributes:
        sizes: trials by length.
        doubt: how far below the threshold a length's score must lie to have clearly fallen.
    """

    sizes: NDArray[np.intp]
    doubt: Array


def rule_values(by_length: Array, lengths: Array, rule: Rule, fit: Fit | None = None) -> Array:
    """Apply a rule to curves (draws, lengths); return values (draws,) as in `Effective`."""
    if rule.kind == "auc":
        return mean_over_log(by_length, lengths)
    base = by_length[:, :1] if rule.kind == "relative" else np.ones((len(by_length), 1))
    above = by_length - rule.threshold * base
    above = np.where(base > 0, above, np.where(np.isnan(above), np.nan, -1.0))
    return threshold_crossing(fit_falling(above, fit.sizes, fit.doubt) if fit else above, lengths)


def _is_crawling(
    low: float | None, high: float | None, curve: Array, lengths: Array, rule: Rule
) -> bool:
    """Return True if the curve stays near the threshold over an interval of CRAWL octaves."""
    if low is None or high is None or rule.kind not in ("absolute", "relative"):
        return False
    base = curve[0] if rule.kind == "relative" else 1.0
    # Both ends may lie beyond the longest length, or below the shortest, while the point does not.
    start, end = np.clip((low, high), lengths[0], lengths[-1])
    in_interval = (lengths >= start) & (lengths <= end)
    is_near = np.abs(curve[in_interval] - rule.threshold * base) < FLAT
    return bool(log2(end / start) > CRAWL and is_near.all())
