"""The whole comparison of two runs' paired trials: overall, per length, per cell, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from needlemap.maps.cube import Array
from needlemap.maps.difference import Difference, paired_difference
from needlemap.maps.missing import difference_bounds
from needlemap.maps.noise import NoiseFloor, noise_floor
from needlemap.maps.pairs import Pairs
from needlemap.maps.power import trials_needed
from needlemap.maps.significance import holm, mcnemar
from needlemap.maps.verdict import UNCOUNTED, Verdict, verdict


@dataclass(frozen=True, slots=True)
class LengthDifference:
    """One length; adjusted_p: its p after Holm's correction over all lengths."""

    length_tokens: int
    difference: Difference
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class CellChange:
    """One cell, for exploration only: change of its mean over n pairs. p: of a sign test, not corrected.

    A prompt that neighbouring cells share is in each of them.
    """

    length_tokens: int
    depth: float
    change: float
    n: int
    lost: int
    gained: int
    p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences are second - first in shares, over pairs that both runs scored; each pair counts the same.

    margin: a share. bounds: of the overall difference if missing scores were anything; None when none is
    missing. noise: when both runs are the same experiment. needed: pairs that show a drop of the margin.
    counted: False where scores are means of nobody knows how many answers; then intervals hold everything and
    tests tell nothing.
    """

    overall: Difference
    lengths: tuple[LengthDifference, ...]
    cells: tuple[CellChange, ...]
    verdict: Verdict
    margin: float
    graded: bool
    bounds: tuple[float, float] | None
    noise: NoiseFloor | None
    needed: int
    counted: bool
    dropped: int
    only_first: int
    only_second: int


def compare_pairs(pairs: Pairs, margin: float) -> Comparison | None:
    """Compare; None when no pair has both scores. margin: the loss, a share, that does not matter."""
    overall = _difference(pairs, pairs.first.scores, pairs.second.scores)
    if overall is None:
        return None
    asked = pairs.first.asked
    bounds = difference_bounds(pairs.first.scores[asked], pairs.second.scores[asked])
    return Comparison(
        overall,
        _lengths(pairs),
        _cells(pairs),
        verdict(overall, margin) if pairs.counted else UNCOUNTED,
        margin,
        pairs.graded,
        bounds if pairs.dropped else None,
        noise_floor(_scored(pairs)) if pairs.same else None,
        _needed(pairs, overall, margin),
        pairs.counted,
        pairs.dropped,
        pairs.only_first,
        pairs.only_second,
    )


def _difference(pairs: Pairs, first: Array, second: Array) -> Difference | None:
    """Of scores (repeats, ...) of both runs."""
    cube = pairs.first
    found = paired_difference(cube.clustered(first), cube.clustered(second), graded=pairs.graded)
    return found if found is None or pairs.counted else replace(found, low=-1.0, high=1.0, p=1.0)


def _lengths(pairs: Pairs) -> tuple[LengthDifference, ...]:
    first, second = pairs.first.scores, pairs.second.scores
    found = [
        LengthDifference(length, difference, difference.p)
        for at, length in enumerate(pairs.first.lengths)
        if (difference := _difference(pairs, first[:, at], second[:, at])) is not None
    ]
    adjusted = holm([each.difference.p for each in found])
    return tuple(replace(each, adjusted_p=p) for each, p in zip(found, adjusted, strict=True))


def _cells(pairs: Pairs) -> tuple[CellChange, ...]:
    apart = pairs.spread
    return tuple(
        _cell(length, depth, apart[:, i, j][~np.isnan(apart[:, i, j])], counted=pairs.counted)
        for i, length in enumerate(pairs.first.lengths)
        for j, depth in enumerate(pairs.first.depths)
        if not np.isnan(apart[:, i, j]).all()
    )


def _cell(length: int, depth: float, apart: Array, *, counted: bool) -> CellChange:
    lost, gained = int((apart < -1e-12).sum()), int((apart > 1e-12).sum())
    p = mcnemar(lost, gained) if counted else 1.0
    return CellChange(length, depth, float(apart.mean()), len(apart), lost, gained, p)


def _scored(pairs: Pairs) -> list[tuple[float, float]]:
    known = pairs.first.known & pairs.second.known
    first, second = pairs.first.scores[known].tolist(), pairs.second.scores[known].tolist()
    return list(zip(first, second, strict=True))


def _needed(pairs: Pairs, overall: Difference, margin: float) -> int:
    """Pairs that show a drop of the margin, by the mean square of the differences found here."""
    squares = float(np.nansum(pairs.differences**2)) / overall.n
    return trials_needed(margin, squares if squares > margin else None)
