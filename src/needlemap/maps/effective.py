"""Effective length: how far a model's score holds, by four named rules, each with a bootstrap interval.

The score at a length is that of `position.length_scores`, each prompt counting once; between tested lengths
it is taken to be straight over the logarithm of the length. It fits no model of the surface, and never
extrapolates. Of several families it is their mean: every family counts the same, however many prompts it has,
and repeats are drawn for all of them together, since those of one number share a haystack wherever families
use the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isnan, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError, did_you_mean
from needlemap.maps.clusters import DRAWS, FEWEST, SEED, expanded_interval, weights
from needlemap.maps.cube import Array, Cube
from needlemap.maps.intervals import NORMAL, wilson

Kind = Literal["absolute", "relative", "worst-depth", "auc"]
RULES = ("absolute:85", "relative:85", "auc")  # those that are shown unless others are asked for
KINDS = ("absolute", "relative", "worst-depth", "auc")
PUBLISHED = 0.856  # Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654)
LEAST_BASE = 0.5  # at the shortest length, for a share of it to say how far a model can read


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and its threshold, a share in [0, 1]. name: as it was written."""

    name: str
    kind: Kind
    threshold: float


@dataclass(frozen=True, slots=True)
class Effective:
    """What a rule gives: tokens, or for auc a score in [0, 1]. low, high: 95 %, None with too few haystacks.

    value, low and high are infinite where the score never falls below the threshold up to the longest length
    tested, and 0 where it is below it at the shortest. value: None where it has none: of a relative rule, for
    a score at the shortest length below LEAST_BASE, as a model that knows little there holds it as far as it
    likes. shortest, longest: lengths tested, in tokens.
    """

    rule: Rule
    value: float | None
    low: float | None
    high: float | None
    shortest: int
    longest: int
    clusters: int


def parse_rule(text: str) -> Rule:
    """A rule by its name: 'absolute:85' and its like, or 'auc'. Raises SettingsError.

    >>> parse_rule("relative:90").threshold
    0.9
    """
    name, colon, number = text.partition(":")
    if name == "auc" and not colon:
        return Rule(text, "auc", 0.0)
    for kind in KINDS[:3]:
        if name == kind and _percent(number) is not None:
            return Rule(text, kind, (_percent(number) or 0.0) / 100)  # type: ignore[arg-type]
    near = did_you_mean(text, (*RULES, "worst-depth:85"))
    raise SettingsError(f"Unknown rule '{text}' of effective length. {near} Numbers are percentages.")


def parse_rules(text: str) -> tuple[str, ...]:
    """Rules as typed, with commas between. Raises SettingsError for an unknown one.

    >>> parse_rules("absolute:90, auc")
    ('absolute:90', 'auc')
    """
    return tuple(parse_rule(part.strip()).name for part in text.split(","))


_MEAN = parse_rule("auc")  # any rule that takes plain means of each length


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over families at a length, in [0, 1]; low, high: 95 %, None with too few repeats, or where a
    family's scores are means of nobody knows how many answers."""

    score: float
    low: float | None
    high: float | None


@lru_cache(16)  # one for the text, the table, the page and the trackers of a report
def effective_length(cube: Cube, rule: Rule, draws: int = DRAWS, seed: int = SEED) -> Effective | None:
    """A rule's value of one family; None without scores. See `FamilyScores.effective`."""
    return FamilyScores([cube], draws, seed).effective(rule)


class FamilyScores:
    """The scores of one family or several, at the lengths at which each of them has one.

    Intervals are from a bootstrap over haystacks (`bootstrap.py`), of so many draws.
    """

    def __init__(self, cubes: Sequence[Cube], draws: int = DRAWS, seed: int = SEED) -> None:
        found = set.intersection(*map(_scored, cubes)) if cubes else set[int]()
        self.lengths = sorted(found)
        self._cubes, self._draws, self._seed = cubes, draws, seed
        self._repeats = sorted(set[int]().union(*map(_measured, cubes)))
        one = bool(cubes) and all(cube.one_haystack for cube in cubes)
        self.haystacks = 1 if one else len(self._repeats)
        self._counted = all(cube.counted for cube in cubes)

    def means(self) -> dict[int, Mean]:
        """The mean by length, with its interval."""
        if not self.lengths:
            return {}
        points, again = self._curve(_MEAN)[0], self._again(_MEAN)
        found = {}
        for at, length in enumerate(self.lengths):
            interval = None if again is None else expanded_interval(again[:, at], len(self._repeats))
            low, high = around(float(points[at]), *(interval or (None, None)))
            found[length] = Mean(float(points[at]), low, high)
        return found

    def overall(self) -> Mean | None:
        """The mean over lengths of `means`, each counting the same; None without scores."""
        if not self.lengths:
            return None
        point, again = float(self._curve(_MEAN).mean()), self._again(_MEAN)
        interval = None if again is None else expanded_interval(again.mean(axis=1), len(self._repeats))
        return Mean(point, *around(point, *(interval or (None, None))))

    def effective(self, rule: Rule) -> Effective | None:
        """A rule's value, with an interval; None without scores.

        absolute: the length at which the score first falls below the threshold (RULER, arXiv:2404.06654,
        takes the longest tested length above one). relative: the threshold is a share of the score at the
        shortest length (NoLiMa, arXiv:2502.05167), if that is LEAST_BASE at least. worst-depth: the score is
        that of each family's worst depth; the least of few noisy cells lies below the least true one, so it
        errs on the short side, and the bootstrap with it: the interval's upper end is that of
        `_longest_worst`. auc: mean score over log2 of the length.
        """
        if not self.lengths:
            return None
        lengths = np.array(self.lengths, dtype=np.float64)
        curve, ends = self._curve(rule), (self.lengths[0], self.lengths[-1])
        if baseless(rule, curve):
            return Effective(rule, None, None, None, *ends, self.haystacks)
        point = float(rule_values(curve, lengths, rule)[0])
        low, high = around(point, *self._interval(rule, lengths))
        return Effective(rule, None if isnan(point) else point, low, high, *ends, self.haystacks)

    def _interval(self, rule: Rule, lengths: Array) -> tuple[float | None, float | None]:
        again = self._again(rule)
        if again is None:
            return None, None
        found = expanded_interval(rule_values(again, lengths, rule), len(self._repeats))
        low, high = found or (None, None)
        if high is None or rule.kind != "worst-depth":
            return low, high
        return low, max(high, _longest_worst(self._scores(rule), lengths, rule))

    def _again(self, rule: Rule) -> Array | None:
        """Curves of draws of repeats, (draws, lengths); None with too few, or of unknown means."""
        if self.haystacks < FEWEST or not self._counted:
            return None
        order = np.random.default_rng(self._seed).permutation(self._draws)
        return self._curve(rule, weights(len(self._repeats), self._draws, self._seed), order)

    def _curve(self, rule: Rule, drawn: Array | None = None, order: NDArray[np.intp] | None = None) -> Array:
        """The mean over families for each draw, (draws, lengths); without draws, of what was measured."""
        drawn = np.ones((1, len(self._repeats))) if drawn is None else drawn
        each = [curves(scores, drawn, rule, order) for scores in self._scores(rule)]
        return np.asarray(np.mean(each, axis=0), dtype=np.float64)

    def _scores(self, rule: Rule) -> list[Array]:
        """Each family's scores at all repeats and the common lengths: (repeats, lengths, depths)."""
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


def published_length(means: dict[int, Mean]) -> float | None:
    """The largest length, in tokens, whose mean over families exceeds 85.6 %: RULER's rule.

    Infinite where it is the longest tested, 0 where there is none; None without means. It has no interval,
    and one lucky length decides it: `effective` has ours.
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
    """Whether a rule takes a share of a score that is too low for that. curve: (1, lengths)."""
    return rule.kind == "relative" and bool(curve[0, 0] < LEAST_BASE)


def _longest_worst(families: Sequence[Array], lengths: Array, rule: Rule) -> float:
    """How far the worst depth may hold: where the least upper end of a length's cells falls below.

    Each end is Wilson's at 1 - 0.025 / depths, so that all hold at once (Bonferroni; Dunn 1961, J. American
    Statistical Association 56:52), the worst depth's among them: the trials of a cell have a haystack each.
    Of several families it is the mean of theirs.
    """
    ends = [[_least_end(cells) for cells in scores.swapaxes(0, 1)] for scores in families]
    return float(rule_values(np.mean(ends, axis=0, keepdims=True), lengths, rule)[0])


def _least_end(cells: Array) -> float:
    """The least upper end of one length's cells (clusters, depths)."""
    counts = (~np.isnan(cells)).sum(axis=0)
    hits = np.nansum(cells, axis=0)[counts > 0]
    z = NORMAL.inv_cdf(1 - 0.025 / len(hits))
    ends = [wilson(float(hit), int(n), z) for hit, n in zip(hits, counts[counts > 0], strict=True)]
    return min(end[1] for end in ends if end is not None)


def around(point: float, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """An interval that holds the point."""
    if low is None or high is None or isnan(point):
        return None, None
    return min(low, point), max(high, point)


def curves(scores: Array, drawn: Array, rule: Rule, order: NDArray[np.intp] | None = None) -> Array:
    """Score by length for each draw: (clusters, lengths, depths), NaN missing, to (draws, lengths).

    order: a permutation of the draws. With it, a length (for worst-depth: a cell) at which all haystacks
    agree gets the spread of `agreed`, as the bootstrap would see no doubt there however few the trials.
    """
    return np.stack([_column(scores[:, at], drawn, rule, order) for at in range(scores.shape[1])], axis=1)


def rule_values(by_length: Array, lengths: Array, rule: Rule) -> Array:
    """The rule applied to curves (draws, lengths): tokens, infinite or 0 as `Effective` says, or scores."""
    if rule.kind == "auc":
        return _area(by_length, lengths)
    base = by_length[:, :1] if rule.kind == "relative" else np.ones((len(by_length), 1))
    above = by_length - rule.threshold * base
    return _crossing(np.where(base > 0, above, np.where(np.isnan(above), np.nan, -1.0)), lengths)


def _column(cells: Array, drawn: Array, rule: Rule, order: NDArray[np.intp] | None) -> Array:
    """One length: (clusters, depths) to (draws,)."""
    if rule.kind != "worst-depth":
        return _doubted(_means(cells, drawn), cells, order)
    measured = [cells[:, at : at + 1] for at in range(cells.shape[1]) if not np.isnan(cells[:, at]).all()]
    columns = [_doubted(_means(cell, drawn), cell, order) for cell in measured]
    return np.asarray(np.fmin.reduce(columns), dtype=np.float64)


def _doubted(drawn_means: Array, scores: Array, order: NDArray[np.intp] | None) -> Array:
    """Drawn means, or where none differs from another, those of `agreed` in the order of the draws."""
    if order is None or np.ptp(drawn_means) > 1e-12:
        return drawn_means
    return agreed(float(np.nansum(scores)), int((~np.isnan(scores)).sum()), len(order))[order]


@lru_cache(maxsize=1_000)
def agreed(total: float, n: int, draws: int) -> Array:
    """Ascending draws of the rate behind n scores that sum to total: the Jeffreys posterior.

    Beta(total + 1/2, n - total + 1/2); Brown, Cai and DasGupta 2001, Statistical Science 16:101. Ascending,
    so that one order for all lengths makes them doubtful together and not one by one.
    """
    return np.sort(np.random.default_rng(SEED).beta(total + 0.5, max(0.0, n - total) + 0.5, draws))


def _means(cells: Array, drawn: Array) -> Array:
    """(clusters, depths) to (draws,), each score counting the same; NaN where a draw holds none."""
    counts = drawn @ (~np.isnan(cells)).sum(axis=1).astype(np.float64)
    sums = drawn @ np.nansum(cells, axis=1)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))


def _crossing(above: Array, lengths: Array) -> Array:
    """Where curves (draws, lengths) first fall below 0, straight over log2 of the length."""
    above = np.where(np.abs(above) < 1e-12, 0.0, above)
    below = above < 0
    first = below.argmax(axis=1)
    rows = np.arange(len(above))
    right, left = above[rows, first], above[rows, np.maximum(first - 1, 0)]
    fall = np.where(left - right > 0, left - right, 1.0)
    logs = np.log2(lengths)
    start = logs[np.maximum(first - 1, 0)]
    found = 2 ** (start + (logs[first] - start) * left / fall)
    found = np.where(first == 0, 0.0, found)
    return np.where(np.isnan(above).any(axis=1), np.nan, np.where(below.any(axis=1), found, inf))


def _area(by_length: Array, lengths: Array) -> Array:
    """Trapezoids over log2 of the length, divided by its range; one length is its own mean."""
    if len(lengths) == 1:
        return by_length[:, 0]
    widths = np.diff(np.log2(lengths))
    heights = (by_length[:, 1:] + by_length[:, :-1]) / 2
    return np.asarray(heights @ widths / log2(lengths[-1] / lengths[0]), dtype=np.float64)


def _percent(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number <= 100 else None
