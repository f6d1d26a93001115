"""Effective length: how far a model's score holds, by four named rules, each with a bootstrap interval.

The score at a length is that of `position.length_scores`, each prompt counting once; between tested lengths
it is taken to be straight over the logarithm of the length. It fits no model of the surface, and never
extrapolates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isnan, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError, did_you_mean
from needlemap.maps.bootstrap import DRAWS, FEWEST, SEED, expanded_interval, weights
from needlemap.maps.cube import Array, Cube
from needlemap.maps.intervals import wilson
from needlemap.maps.student import NORMAL

Kind = Literal["absolute", "relative", "worst-depth", "auc"]
RULES = ("absolute:85", "relative:85", "worst-depth:85", "auc")
KINDS = ("absolute", "relative", "worst-depth", "auc")
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
    raise SettingsError(
        f"Unknown rule '{text}' of effective length. {did_you_mean(text, RULES)} Numbers are percentages."
    )


def parse_rules(text: str) -> tuple[str, ...]:
    """Rules as typed, with commas between. Raises SettingsError for an unknown one.

    >>> parse_rules("absolute:90, auc")
    ('absolute:90', 'auc')
    """
    return tuple(parse_rule(part.strip()).name for part in text.split(","))


def effective_length(cube: Cube, rule: Rule, draws: int = DRAWS, seed: int = SEED) -> Effective | None:
    """A rule's value, with an interval from a bootstrap over haystacks (`bootstrap.py`); None without scores.

    absolute: the length at which the score first falls below the threshold (RULER, arXiv:2404.06654, takes
    the longest tested length above one). relative: the threshold is a share of the score at the shortest
    length (NoLiMa, arXiv:2502.05167), if that is LEAST_BASE at least. worst-depth: the score is that of the
    worst depth; the least of few noisy cells lies below the least true one, so it errs on the short side, and
    the bootstrap with it: the interval's upper end is that of `_longest_worst`. auc: mean score over log2 of
    the length.
    """
    used = np.flatnonzero(cube.known.any(axis=(1, 2)))
    if not len(used):
        return None
    measured = cube.known.any(axis=(0, 2))
    lengths = np.array(cube.lengths, dtype=np.float64)[measured]
    scores = (cube.spread if rule.kind == "worst-depth" else cube.scores)[used][:, measured]
    haystacks = 1 if cube.one_haystack else len(used)
    curve, ends = curves(scores, np.ones((1, len(used))), rule), (int(lengths[0]), int(lengths[-1]))
    if baseless(rule, curve):
        return Effective(rule, None, None, None, *ends, haystacks)
    point = float(rule_values(curve, lengths, rule)[0])
    low, high = _interval(scores, lengths, rule, draws, seed) if haystacks >= FEWEST else (None, None)
    low, high = around(point, low, high)
    return Effective(rule, None if isnan(point) else point, low, high, *ends, haystacks)


def baseless(rule: Rule, curve: Array) -> bool:
    """Whether a rule takes a share of a score that is too low for that. curve: (1, lengths)."""
    return rule.kind == "relative" and bool(curve[0, 0] < LEAST_BASE)


def _interval(
    scores: Array, lengths: Array, rule: Rule, draws: int, seed: int
) -> tuple[float | None, float | None]:
    order = np.random.default_rng(seed).permutation(draws)
    again = rule_values(curves(scores, weights(len(scores), draws, seed), rule, order), lengths, rule)
    low, high = expanded_interval(again, len(scores)) or (None, None)
    if high is None or rule.kind != "worst-depth":
        return low, high
    return low, max(high, _longest_worst(scores, lengths, rule))


def _longest_worst(scores: Array, lengths: Array, rule: Rule) -> float:
    """How far the worst depth may hold: where the least upper end of a length's cells falls below.

    Each end is Wilson's at 1 - 0.025 / depths, so that all hold at once (Bonferroni; Dunn 1961, J. American
    Statistical Association 56:52), the worst depth's among them: the trials of a cell have a haystack each.
    """
    return float(
        rule_values(np.array([[_least_end(cells) for cells in scores.swapaxes(0, 1)]]), lengths, rule)[0]
    )


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
