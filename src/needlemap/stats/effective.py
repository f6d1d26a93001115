"""Effective length: how far a model's score holds, by four named rules, each with a bootstrap
interval.

The curve is fitted as falling up to the first length that is clearly below the threshold
(`curves.falling`), so that noise on a plateau is no fall and a clear dip is one. The interval
ends at tested lengths, since lengths between them were not asked. Of several families it is
their mean: every family counts the same, and repeats are drawn for all of them together, since
those of one number share a haystack where families use the same.
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
from needlemap.stats.curves import area, column, crossing, falling
from needlemap.stats.intervals import (
    DRAWS,
    FEWEST,
    NORMAL,
    SEED,
    ClusterMean,
    around,
    cluster_mean,
    expanded_interval,
    outward,
    weights,
    wilson,
)

Kind = Literal["absolute", "relative", "worst-depth", "auc"]
RULES = ("absolute:85", "relative:85", "auc")  # those that are shown unless others are asked for
KINDS = ("absolute", "relative", "worst-depth", "auc")
PUBLISHED = (
    0.856  # Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654)
)
POINT_FROM = 20  # haystacks: the least of few noisy depths lies far below the least true one
FLAT = 0.1  # of the threshold: a curve this near to it over CRAWL octaves crawls through it
CRAWL = 2
SURE = 0.65  # of the upper half of a 95 % interval: below by that, it has fallen nine times in ten
LEAST_BASE = 0.5  # at the shortest length, for a share of it to say how far a model can read


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and its threshold, a share in [0, 1]. name: as it was written."""

    name: str
    kind: Kind
    threshold: float


@dataclass(frozen=True, slots=True)
class Effective:
    """What a rule gives: tokens, or for auc a score in [0, 1]. low, high: 95 %, None with too
    few haystacks.

    low and high are tested lengths. All three are infinite where the score never falls below
    the threshold up to the longest, and 0 where it is below it at the shortest. value: None
    where it has none: of a relative rule, for a score at the shortest length below LEAST_BASE,
    as a model that knows little there holds it as far as it likes; of worst-depth, with fewer
    than POINT_FROM haystacks, where it is noise. shortest, longest: lengths tested, in tokens.
    crawls: whether the curve is so flat near the threshold that only the interval tells.
    cells: whether the interval is as if cells were independent, there being one haystack.
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
    """A rule by its name: 'absolute:85' and its like, or 'auc'. Raises SettingsError.

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
    """Rules as typed, with commas between. Raises SettingsError for an unknown one.

    >>> parse_rules("absolute:90, auc")
    ('absolute:90', 'auc')
    """
    return tuple(parse_rule(part.strip()).name for part in text.split(","))


_MEAN = parse_rule("auc")  # any rule that takes plain means of each length


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over families at a length, in [0, 1]; low, high: 95 %, None with too few
    repeats, or where a family's scores are means of an unknown number of answers."""

    score: float
    low: float | None
    high: float | None


@lru_cache(16)  # one for the text, the table, the page and the trackers of a report
def effective_length(
    cube: Cube, rule: Rule, draws: int = DRAWS, seed: int = SEED
) -> Effective | None:
    """A rule's value of one family; None without scores. See `FamilyScores.effective`."""
    return _family(cube, draws, seed).effective(rule)


@lru_cache(4)  # one for all rules
def _family(cube: Cube, draws: int, seed: int) -> FamilyScores:
    return FamilyScores([cube], draws, seed)


class FamilyScores:
    """The scores of one family or several, at the lengths at which each of them has one.

    Intervals are from a bootstrap over haystacks (`intervals.py`), of so many draws. weights:
    of the families in their means, positive; None: each counts the same.
    """

    def __init__(
        self,
        cubes: Sequence[Cube],
        draws: int = DRAWS,
        seed: int = SEED,
        weights: Sequence[float] | None = None,
    ) -> None:
        found = set.intersection(*map(_scored, cubes)) if cubes else set[int]()
        self.lengths = sorted(found)
        self._cubes, self._draws, self._seed, self._weights = cubes, draws, seed, weights
        self._repeats = sorted(set[int]().union(*map(_measured, cubes)))
        one = bool(cubes) and all(cube.one_haystack for cube in cubes)
        self.haystacks = 1 if one else len(self._repeats)
        self._counted = all(cube.counted for cube in cubes)
        self._one = one and len(cubes) == 1 and self._counted
        self._drawn = dict[
            bool, Array | None
        ]()  # of the worst depths and of all, when first asked for

    def means(self) -> dict[int, Mean]:
        """The mean by length, with its interval."""
        if not self.lengths:
            return {}
        points, again = self._curve(_MEAN)[0], self._again(_MEAN)
        found = {}
        for at, length in enumerate(self.lengths):
            interval = (
                None if again is None else expanded_interval(again[:, at], len(self._repeats))
            )
            low, high = around(float(points[at]), *(interval or (None, None)))
            found[length] = Mean(float(points[at]), low, high)
        return found

    def overall(self) -> Mean | None:
        """The mean over lengths of `means`, each counting the same; None without scores."""
        if not self.lengths:
            return None
        point, again = float(self._curve(_MEAN).mean()), self._again(_MEAN)
        interval = (
            None if again is None else expanded_interval(again.mean(axis=1), len(self._repeats))
        )
        return Mean(point, *around(point, *(interval or (None, None))))

    def effective(self, rule: Rule) -> Effective | None:
        """A rule's value, with an interval, of the lengths whose prompts are as long as that;
        None without scores there, and of trials of unknown length.

        absolute: the length at which the score first falls below the threshold (RULER,
        arXiv:2404.06654, takes the longest tested length above one). relative: the threshold
        is a share of the score at the shortest length (NoLiMa, arXiv:2502.05167), if that is
        LEAST_BASE at least. worst-depth: the score is that of each family's worst depth; the
        least of few noisy cells lies below the least true one, so it errs on the short side,
        and the bootstrap with it: the interval's upper end is that of `_longest_worst`. auc:
        mean score over log2 of the length.
        """
        if not self.lengths or not self.lengths[0]:
            return None
        if short := frozenset[int]().union(*(cube.short for cube in self._cubes)):
            reached = [cube.without(short) for cube in self._cubes]
            return FamilyScores(reached, self._draws, self._seed, self._weights).effective(rule)
        lengths = np.array(self.lengths, dtype=np.float64)
        curve, ends = self._curve(rule), (self.lengths[0], self.lengths[-1])
        if baseless(rule, curve):
            return Effective(rule, None, None, None, *ends, self.haystacks)
        fit = self._fit(rule)
        point = float(rule_values(curve, lengths, rule, fit)[0])
        low, high = self._interval(rule, lengths, fit)
        crawls = 0 < point < inf and _crawls(low, high, curve[0], lengths, rule)
        if rule.kind != "auc" and low is not None and high is not None:
            low, high = outward(low, high, lengths)
        low, high = around(point, low, high)
        noise = isnan(point) or (rule.kind == "worst-depth" and self.haystacks < POINT_FROM)
        value = None if noise else point
        return Effective(rule, value, low, high, *ends, self.haystacks, crawls, self._one)

    def _fit(self, rule: Rule) -> Fit | None:
        """How a curve is to be fitted; None where it is not: of other rules, and of unknown
        means."""
        if rule.kind not in ("absolute", "relative") or not self._counted:
            return None
        pooled = np.concatenate(
            [scores.reshape(*scores.shape[:2], -1) for scores in self._scores(rule)], axis=2
        )
        by_length = pooled.swapaxes(
            0, 1
        )  # by what is independent: haystacks, or where there is one, cells
        means = [cluster_mean(each.reshape(-1, 1) if self._one else each) for each in by_length]
        whole = (
            self._one
        )  # single cells that all agree show no doubt upward, and may yet dip by chance
        up = [
            (mean.high or 0.0) - ((mean.low or 0.0) if whole else mean.score)
            for mean in means
            if mean
        ]
        return Fit((~np.isnan(pooled)).sum(axis=(0, 2)), (1.0 if whole else SURE) * np.array(up))

    def _interval(
        self, rule: Rule, lengths: Array, fit: Fit | None
    ) -> tuple[float | None, float | None]:
        again = self._again(rule)
        if again is None:
            return None, None
        units = min(map(len, self._cells())) if self._one else len(self._repeats)
        found = expanded_interval(rule_values(again, lengths, rule, fit), units)
        low, high = found or (None, None)
        if high is None or rule.kind != "worst-depth":
            return low, high
        return low, max(high, _longest_worst(self._scores(rule), lengths, rule, self._weights))

    def _again(self, rule: Rule) -> Array | None:
        """Curves of draws of repeats, (draws, lengths); None with none, or too few, or of
        unknown means."""
        worst = rule.kind == "worst-depth"
        if worst not in self._drawn:
            self._drawn[worst] = self._draw(rule)
        return self._drawn[worst]

    def _draw(self, rule: Rule) -> Array | None:
        if not self._draws or not self._counted or (self.haystacks < FEWEST and not self._one):
            return None
        order = np.random.default_rng(self._seed).permutation(self._draws)
        if not self._one:
            return self._curve(rule, weights(len(self._repeats), self._draws, self._seed), order)
        if rule.kind == "worst-depth":
            return None
        drawn = [
            column(
                cells,
                weights(len(cells), self._draws, self._seed + at),
                order=np.roll(order, 97 * at),
            )
            for at, cells in enumerate(self._cells())
        ]
        return np.stack(drawn, axis=1)

    def _cells(self) -> list[Array]:
        """The scores of each length as (cells, 1), of one haystack."""
        of = [
            scores[:, at].reshape(-1, 1)
            for scores in self._scores(_MEAN)
            for at in range(len(self.lengths))
        ]
        return [cells[~np.isnan(cells[:, 0])] for cells in of]

    def _curve(
        self, rule: Rule, drawn: Array | None = None, order: NDArray[np.intp] | None = None
    ) -> Array:
        """The mean over families for each draw, (draws, lengths); without draws, of what was
        measured."""
        drawn = np.ones((1, len(self._repeats))) if drawn is None else drawn
        worst = rule.kind == "worst-depth"
        each = [
            np.stack(
                [column(scores[:, at], drawn, worst, order) for at in range(scores.shape[1])],
                axis=1,
            )
            for scores in self._scores(rule)
        ]
        return np.asarray(np.average(each, axis=0, weights=self._weights), dtype=np.float64)

    def _scores(self, rule: Rule) -> list[Array]:
        """Each family's scores at all repeats and the common lengths: (repeats, lengths,
        depths)."""
        made = []
        for cube in self._cubes:
            scores = cube.spread if rule.kind == "worst-depth" else cube.scores
            placed = np.full((len(self._repeats), len(self.lengths), len(cube.depths)), np.nan)
            columns = [cube.lengths.index(length) for length in self.lengths]
            for row, repeat in enumerate(self._repeats):
                if repeat in cube.repeats:
                    placed[row] = scores[cube.repeats.index(repeat), columns]
            made.append(placed)
        return made


def published_length(means: Mapping[int, ClusterMean | Mean]) -> float | None:
    """The largest length, in tokens, whose mean over families exceeds 85.6 %: RULER's rule.

    Infinite where it is the longest tested, 0 where there is none; None without means. It has
    no interval, and one lucky length decides it: `effective` has ours.
    """
    if not means:
        return None
    above = [length for length, mean in means.items() if mean.score > PUBLISHED]
    return inf if max(means) in above else max(above, default=0)


def _scored(cube: Cube) -> set[int]:
    """The lengths at which a family has a score."""
    return {length for at, length in enumerate(cube.lengths) if cube.known[:, at].any()}


def _measured(cube: Cube) -> set[int]:
    """The repeats of which a family has a score."""
    return {repeat for at, repeat in enumerate(cube.repeats) if cube.known[at].any()}


def baseless(rule: Rule, curve: Array) -> bool:
    """Whether a rule takes a share of a score that is too low for that. curve: (1,
    lengths)."""
    return rule.kind == "relative" and bool(curve[0, 0] < LEAST_BASE)


def _longest_worst(
    families: Sequence[Array], lengths: Array, rule: Rule, weights: Sequence[float] | None = None
) -> float:
    """How far the worst depth may hold: where the least upper end of a length's cells falls
    below.

    Each end is Wilson's at 1 - 0.025 / depths, so that all hold at once (Bonferroni; Dunn
    1961, J. American Statistical Association 56:52), the worst depth's among them: the trials
    of a cell have a haystack each. Of several families it is the mean of theirs.
    """
    ends = [[_least_end(cells) for cells in scores.swapaxes(0, 1)] for scores in families]
    whole = np.average(ends, axis=0, weights=weights)[np.newaxis]
    return float(rule_values(whole, lengths, rule)[0])


def _least_end(cells: Array) -> float:
    """The least upper end of one length's cells (clusters, depths)."""
    counts = (~np.isnan(cells)).sum(axis=0)
    hits = np.nansum(cells, axis=0)[counts > 0]
    z = NORMAL.inv_cdf(1 - 0.025 / len(hits))
    ends = [wilson(float(hit), int(n), z) for hit, n in zip(hits, counts[counts > 0], strict=True)]
    return min(end[1] for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class Fit:
    """sizes: trials by length. doubt: how far below the threshold a length's score has clearly
    fallen."""

    sizes: NDArray[np.intp]
    doubt: Array


def rule_values(by_length: Array, lengths: Array, rule: Rule, fit: Fit | None = None) -> Array:
    """The rule applied to curves (draws, lengths): tokens, infinite or 0 as `Effective` says,
    or scores."""
    if rule.kind == "auc":
        return area(by_length, lengths)
    base = by_length[:, :1] if rule.kind == "relative" else np.ones((len(by_length), 1))
    above = by_length - rule.threshold * base
    above = np.where(base > 0, above, np.where(np.isnan(above), np.nan, -1.0))
    return crossing(falling(above, fit.sizes, fit.doubt) if fit else above, lengths)


def _crawls(
    low: float | None, high: float | None, curve: Array, lengths: Array, rule: Rule
) -> bool:
    """Whether an interval spans more than CRAWL octaves, over which the curve stays near the
    threshold."""
    if low is None or high is None or rule.kind not in ("absolute", "relative"):
        return False
    base = curve[0] if rule.kind == "relative" else 1.0
    start, end = max(low, lengths[0]), min(high, lengths[-1])
    inside = (lengths >= start) & (lengths <= end)
    near = np.abs(curve[inside] - rule.threshold * base) < FLAT
    return bool(log2(end / start) > CRAWL and near.all())
