"""Several families' scores as one: the mean over families by length, and how far it holds.

Every family counts the same, however many prompts it has. Repeats are drawn for all families together, since
those of one number share a haystack wherever families use the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan

import numpy as np
from numpy.typing import NDArray

from needlemap.maps.bootstrap import DRAWS, FEWEST, SEED, expanded_interval, weights
from needlemap.maps.cube import Array, Cube
from needlemap.maps.effective import Effective, Rule, around, baseless, curves, parse_rule, rule_values

PUBLISHED = 0.856  # Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654)
_MEAN = parse_rule("auc")  # any rule that takes plain means of each length


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over families at a length, in [0, 1]; low, high: 95 %, None with too few repeats, or where a
    family's scores are means of nobody knows how many answers."""

    score: float
    low: float | None
    high: float | None


class Families:
    """All families of a suite, at the lengths at which each of them has a score."""

    def __init__(self, cubes: Sequence[Cube]) -> None:
        found = set.intersection(*(set(_scored(cube)) for cube in cubes)) if cubes else set[int]()
        self.lengths = sorted(found)
        self._repeats = sorted({repeat for cube in cubes for repeat in cube.repeats})
        self._scores = [self._placed(cube) for cube in cubes]
        one = bool(cubes) and all(cube.one_haystack for cube in cubes)
        self.haystacks = 1 if one else len(self._repeats)
        self._counted = all(cube.counted for cube in cubes)

    def means(self) -> dict[int, Mean]:
        """The mean by length, with an interval from a bootstrap over repeats (`bootstrap.py`)."""
        if not self.lengths:
            return {}
        points, again = self._curve(np.ones((1, len(self._repeats))), _MEAN)[0], self._again(_MEAN)
        found = {}
        for at, length in enumerate(self.lengths):
            interval = None if again is None else expanded_interval(again[:, at], len(self._repeats))
            low, high = around(float(points[at]), *(interval or (None, None)))
            found[length] = Mean(float(points[at]), low, high)
        return found

    def effective(self, rule: Rule) -> Effective | None:
        """How far the mean holds, by one of our rules; 'worst-depth' takes each family's worst."""
        if not self.lengths:
            return None
        lengths = np.array(self.lengths, dtype=np.float64)
        curve, ends = self._curve(np.ones((1, len(self._repeats))), rule), (self.lengths[0], self.lengths[-1])
        if baseless(rule, curve):
            return Effective(rule, None, None, None, *ends, self.haystacks)
        point = float(rule_values(curve, lengths, rule)[0])
        again = self._again(rule)
        drawn = None if again is None else rule_values(again, lengths, rule)
        interval = None if drawn is None else expanded_interval(drawn, len(self._repeats))
        low, high = around(point, *(interval or (None, None)))
        return Effective(rule, None if isnan(point) else point, low, high, *ends, self.haystacks)

    def _again(self, rule: Rule) -> Array | None:
        """Curves of draws of repeats, (draws, lengths); None with too few, or of unknown means."""
        if self.haystacks < FEWEST or not self._counted:
            return None
        order = np.random.default_rng(SEED).permutation(DRAWS)
        return self._curve(weights(len(self._repeats), DRAWS, SEED), rule, order)

    def _curve(self, drawn: Array, rule: Rule, order: NDArray[np.intp] | None = None) -> Array:
        """The mean over families for each draw: (draws, lengths)."""
        each = [curves(scores, drawn, rule, order) for scores in self._scores]
        return np.asarray(np.mean(each, axis=0), dtype=np.float64)

    def _placed(self, cube: Cube) -> Array:
        """A family's scores at all repeats and the common lengths: (repeats, lengths, depths)."""
        made = np.full((len(self._repeats), len(self.lengths), len(cube.depths)), np.nan)
        rows = [self._repeats.index(repeat) for repeat in cube.repeats]
        made[rows] = cube.scores[:, [cube.lengths.index(length) for length in self.lengths]]
        return made


def published_length(means: dict[int, Mean]) -> float | None:
    """The largest length, in tokens, whose mean over families exceeds 85.6 %: RULER's rule.

    Infinite where it is the longest tested, 0 where there is none; None without means. It has no interval,
    and one lucky length decides it: ours are in `effective.py`.
    """
    if not means:
        return None
    above = [length for length, mean in means.items() if mean.score > PUBLISHED]
    return inf if max(means) in above else max(above, default=0)


def _scored(cube: Cube) -> list[int]:
    """The lengths at which a family has a score."""
    return [length for at, length in enumerate(cube.lengths) if cube.known[:, at].any()]
