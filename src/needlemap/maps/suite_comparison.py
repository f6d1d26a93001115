"""Two suites' paired trials: each family compared alone, and the mean over families as one.

The mean counts every family the same, however many pairs it has, and takes what the families asked in one
repeat together, since those of one number share a haystack wherever families use the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from needlemap.maps.comparison import Comparison, compare_pairs
from needlemap.maps.cube import Array, Cube
from needlemap.maps.difference import Difference, paired_difference
from needlemap.maps.pairs import Pairs
from needlemap.maps.significance import holm
from needlemap.maps.verdict import UNCOUNTED, Verdict, verdict


@dataclass(frozen=True, slots=True)
class FamilyComparison:
    """One family; adjusted_p: its p after Holm's correction over all families."""

    name: str
    comparison: Comparison
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class SuiteComparison:
    """Differences are second - first in shares. overall: of the mean over families; its n counts pairs.

    margin: a share. bounds: of the overall difference if missing scores were anything; None when none is
    missing. counted: False where scores are means of nobody knows how many answers.
    """

    families: tuple[FamilyComparison, ...]
    overall: Difference
    verdict: Verdict
    margin: float
    graded: bool
    bounds: tuple[float, float] | None
    counted: bool


def compare_families(pairs: Mapping[str, Pairs], margin: float) -> SuiteComparison:
    """Compare families, each of which has a pair with both scores. margin: a share that does not matter."""
    each = {name: compare_pairs(found, margin) for name, found in pairs.items()}
    compared = {name: found for name, found in each.items() if found is not None}
    counted = all(found.counted for found in pairs.values())
    overall = _mean(list(pairs.values()))
    if not counted:
        overall = replace(overall, low=-1.0, high=1.0, p=1.0)
    adjusted = holm([found.overall.p for found in compared.values()])
    return SuiteComparison(
        tuple(FamilyComparison(*row, p) for row, p in zip(compared.items(), adjusted, strict=True)),
        overall,
        verdict(overall, margin) if counted else UNCOUNTED,
        margin,
        any(found.graded for found in pairs.values()),
        _bounds(list(compared.values())),
        counted,
    )


def _mean(pairs: Sequence[Pairs]) -> Difference:
    """The difference of the mean over families. Its interval is never narrower than that of pass and fail:
    haystacks that all agree would make a certainty of graded scores."""
    repeats = sorted({repeat for found in pairs for repeat in _rows(found.first)})
    first = [_placed(found.first, repeats) for found in pairs]
    second = [_placed(found.second, repeats) for found in pairs]
    weights = np.hstack([_weights(*each) for each in zip(first, second, strict=True)])
    both = np.hstack(first), np.hstack(second)
    plain = paired_difference(*both, graded=False, weights=weights)
    found = paired_difference(*both, graded=any(each.graded for each in pairs), weights=weights)
    assert plain is not None  # each family has a pair
    assert found is not None
    return replace(found, low=min(found.low, plain.low), high=max(found.high, plain.high))


def _weights(first: Array, second: Array) -> Array:
    """Of a family's pairs, so that all families count the same."""
    return np.full(first.shape, 1 / max(1, int((~np.isnan(first - second)).sum())))


def _rows(cube: Cube) -> list[int]:
    """The repeats that a family's clusters stand for: the first, where all of them share a haystack."""
    return list(cube.repeats[:1] if cube.one_haystack else cube.repeats)


def _placed(cube: Cube, repeats: Sequence[int]) -> Array:
    """A family's scores as (repeats of all families, trials)."""
    scores = cube.clustered(cube.scores)
    made = np.full((len(repeats), scores.shape[1]), np.nan)
    made[[repeats.index(repeat) for repeat in _rows(cube)]] = scores
    return made


def _bounds(compared: Sequence[Comparison]) -> tuple[float, float] | None:
    """Of the mean, from those of its families: a family that misses nothing has its difference."""
    if all(each.bounds is None for each in compared):
        return None
    ends = [each.bounds or (each.overall.value, each.overall.value) for each in compared]
    lows, highs = zip(*ends, strict=True)
    return sum(lows) / len(lows), sum(highs) / len(highs)
