"""The comparison of two runs' paired trials: each family by length and cell, and their mean.

The mean counts every family the same, however many pairs it has, and takes what the families
asked in one repeat together, since those of one number share a haystack wherever families use
the same one. Of a run with one family it is that family's own difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from needlemap.stats import Array, Cube
from needlemap.stats.difference import Difference, holm, paired_difference
from needlemap.stats.exact import mcnemar
from needlemap.stats.intervals import noise_floor, trials_needed
from needlemap.stats.judging import Loss, PairedLoss, judge
from needlemap.stats.looks import Scope, planned_looks
from needlemap.stats.pairs import rows_of
from needlemap.stats.verdicts import NOT_ENOUGH_DATA

if TYPE_CHECKING:
    from needlemap.stats.pairs import AnswerPairs, Pairs


@dataclass(frozen=True, slots=True)
class LengthDifference:
    """One length. loss: None where scores are not counted. adjusted_p: its p after Holm's
    correction over all lengths."""

    length_tokens: int
    difference: Difference
    loss: Loss | None
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class CellChange:
    """One cell, for exploration only: loss of its mean over n pairs. p: of a sign test, not
    corrected.

    A prompt that neighbouring cells share is in each of them.
    """

    length_tokens: int
    depth: float
    loss: float
    n: int
    lost: int
    gained: int
    p: float


@dataclass(frozen=True, slots=True)
class ComparedScores:
    """overall: both means, and what was lost and gained; its n counts pairs, each of which
    counts the same. paired: the loss with its interval, at the margin. counted: False where
    scores are means of an unknown number of answers, which have no interval and no test.
    """

    overall: Difference
    graded: bool
    paired: PairedLoss
    counted: bool


@dataclass(frozen=True, slots=True)
class Power:
    """Pairs at which, with 80 % power, a loss of the margin is sure to be a loss, and one of
    twice the margin is a FAIL; None where that is over 100 points."""

    sure: int
    fail: int | None


@dataclass(frozen=True, slots=True)
class FamilyComparison(ComparedScores):
    """The comparison of pairs that both runs scored. power: the pairs needed to see a loss.
    dropped: pairs without both scores, though both were sent. answers: which of them differ, if
    they were compared. ran_on: as `Pairs` has it."""

    lengths: tuple[LengthDifference, ...]
    cells: tuple[CellChange, ...]
    power: Power
    dropped: int
    only_first: int
    only_second: int
    answers: AnswerPairs | None = None
    ran_on: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Noise:
    """How far further runs of one model spread: of n pairs of the first run's scores and theirs
    so many differ. largest: by how much the means of two such runs differ for no reason, 95
    times in 100, a share."""

    runs: int
    n: int
    differing: int
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison(ComparedScores):
    """The comparison of the mean over families. families: by name, '' of a run with one.
    adjusted_p: each family's p after Holm's correction over all. noise: where further runs were
    given. is_judged: whether somebody fixed the margin, so that there is a verdict."""

    families: Mapping[str, FamilyComparison]
    adjusted_p: Mapping[str, float]
    is_judged: bool = True
    noise: Noise | None = None

    @property
    def only(self) -> FamilyComparison | None:
        """Of runs with one family, that."""
        return self.families.get("")

    @property
    def answers(self) -> tuple[AnswerPairs, ...]:
        """Each family's answers, if they were compared."""
        return tuple(each.answers for each in self.families.values() if each.answers is not None)


def compare_families(
    pairs: Mapping[str, Pairs], margin: float, *, wanted: Scope = "these", sequential: bool = False
) -> Comparison:
    """Compare families, each of which has a pair with both scores. margin: a share that does
    not matter. wanted: the scope that the verdict is to hold for. sequential: whether it was
    looked at after each haystack."""
    each = {
        name: compare_pairs(found, margin, wanted=wanted, sequential=sequential)
        for name, found in pairs.items()
    }
    compared = {name: found for name, found in each.items() if found is not None}
    counted = all(found.counted for found in pairs.values())
    alone = next(iter(compared.values())) if len(compared) == 1 else None
    paired = alone.paired if alone else _judged(pairs, margin, wanted, sequential)
    tested = _tested(pairs, paired)
    overall = alone.overall if alone else _mean(tested, [_answered(each) for each in tested])
    if not counted:
        overall = replace(overall, p=1.0)
    return Comparison(
        overall,
        any(found.graded for found in pairs.values()),
        paired,
        counted,
        compared,
        dict(zip(compared, holm([found.overall.p for found in compared.values()]), strict=True)),
    )


def _tested(pairs: Mapping[str, Pairs], paired: PairedLoss) -> list[Pairs]:
    """Return the families that the loss is of, without the lengths that are not tested; all, if
    none of them is tested."""
    left_out = {group.family: group.lengths for group in paired.untested}
    tested = []
    for name, each in pairs.items():
        lengths = left_out.get(name)
        if lengths is None:
            tested.append(each)
        elif lengths:
            here = np.isin(each.first.lengths, lengths)[None, :, None]
            first, second = (
                replace(cube, scores=np.where(here, np.nan, cube.scores))
                for cube in (each.first, each.second)
            )
            tested.append(replace(each, first=first, second=second))
    return tested or list(pairs.values())


def _judged(
    pairs: Mapping[str, Pairs], margin: float, wanted: Scope, sequential: bool
) -> PairedLoss:
    """The loss of the mean over families."""
    rows = rows_of(pairs)
    moments = [each.measured for each in pairs.values() if each.measured[0]]
    measured = (min(m[0] for m in moments), max(m[1] for m in moments)) if moments else ("", "")
    looks = partial(planned_looks, wanted=wanted) if sequential else None
    found = judge(rows, margin, wanted=wanted, looks=looks, measured=measured)
    if all(each.counted for each in pairs.values()):
        return found
    return replace(found, word=NOT_ENOUGH_DATA, loss=None, counted=False)


def compare_pairs(
    pairs: Pairs, margin: float, *, wanted: Scope = "these", sequential: bool = False
) -> FamilyComparison | None:
    """Compare; None when no pair has both scores, and second left none out that first
    answered.

    margin: the loss, a share, that does not matter. A second that answered none has lost them
    all.
    """
    paired = _judged({"": pairs}, margin, wanted, sequential)
    (tested,) = _tested({"": pairs}, paired)
    overall = _difference(tested, tested.first.scores, tested.second.scores)
    if overall is None and pairs.unanswered:
        overall = _difference(tested, tested.first.scores, tested.lost)
    if overall is None:
        return None
    return FamilyComparison(
        overall,
        pairs.graded,
        paired,
        pairs.counted,
        _lengths(pairs, margin),
        _cells(pairs),
        _power(tested, overall, margin),
        pairs.dropped,
        pairs.only_first,
        pairs.only_second,
        pairs.answers,
        pairs.ran_on,
    )


def _difference(pairs: Pairs, first: Array, second: Array) -> Difference | None:
    """Of scores (repeats, ...) of both runs."""
    cube = pairs.first
    found = paired_difference(cube.clustered(first), cube.clustered(second), graded=pairs.graded)
    return found if found is None or pairs.counted else replace(found, p=1.0)


def _answered(pairs: Pairs) -> Cube:
    """What second scored; where it answered nothing, all is lost."""
    return pairs.second if pairs.n else replace(pairs.second, scores=pairs.lost)


def _lengths(pairs: Pairs, margin: float) -> tuple[LengthDifference, ...]:
    """Each length, its loss as a comparison of it alone would have it."""
    first, second = pairs.first.scores, pairs.second.scores
    rows = rows_of({"": pairs})
    found = []
    for at, length in enumerate(pairs.first.lengths):
        difference = _difference(pairs, first[:, at], second[:, at])
        if difference is not None:
            alone = judge(rows.where(rows.length == length), margin)
            loss = alone.loss if pairs.counted else None
            found.append(LengthDifference(length, difference, loss, difference.p))
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
    return CellChange(length, depth, float(-apart.mean()), len(apart), lost, gained, p)


def noise_of(runs: Sequence[Mapping[str, Pairs]]) -> Noise | None:
    """The noise of a comparison. runs: of each further run, its pairs with the first run, by
    family. None where nothing was scored twice."""
    families: dict[str, list[tuple[float, float]]] = {}
    most = Counter[str]()
    for run in runs:
        for name, pairs in run.items():
            scored = _scored(pairs)
            families.setdefault(name, []).extend(scored)
            most[name] = max(most[name], len(scored))
    floors = {name: floor for name, each in families.items() if (floor := noise_floor(each))}
    if not floors:
        return None
    # The mean over families: each counts the same, over as many prompts as one run has.
    squares = sum(floor.smallest(most[name]) ** 2 for name, floor in floors.items())
    n, differing = (
        sum(getattr(floor, name) for floor in floors.values()) for name in ("n", "differing")
    )
    return Noise(len(runs), n, differing, sqrt(squares) / len(floors))


def _scored(pairs: Pairs) -> list[tuple[float, float]]:
    known = pairs.first.known & pairs.second.known
    first, second = pairs.first.scores[known].tolist(), pairs.second.scores[known].tolist()
    return list(zip(first, second, strict=True))


def _power(pairs: Pairs, overall: Difference, margin: float) -> Power:
    """By how differences spread and cluster here."""
    squares = float(np.nansum(pairs.differences**2)) / overall.n
    clusters = None if overall.of_these else overall.clusters
    seen = overall.design_effect, clusters
    least = margin or 0.01  # without a margin: a loss of one point
    sure = trials_needed(least, squares if squares > least else None, *seen)
    if 2 * least > 1:
        return Power(sure, None)
    spread = squares if squares > 2 * least else None
    return Power(sure, trials_needed(2 * least, spread, *seen, beyond=least))


def _mean(pairs: Sequence[Pairs], seconds: Sequence[Cube]) -> Difference:
    """The difference of the mean over families. seconds: the scores to judge, of each
    family."""
    repeats = sorted({repeat for found in pairs for repeat in _rows(found.first)})
    first = [_placed(found.first, repeats) for found in pairs]
    second = [_placed(cube, repeats) for cube in seconds]
    weights = np.hstack([_weights(*each) for each in zip(first, second, strict=True)])
    graded = any(each.graded for each in pairs)
    found = paired_difference(np.hstack(first), np.hstack(second), graded=graded, weights=weights)
    assert found is not None  # each family has a pair
    return found


def _weights(first: Array, second: Array) -> Array:
    """The weights of a family's pairs that let all families count the same."""
    return np.full(first.shape, 1 / max(1, int((~np.isnan(first - second)).sum())))


def _rows(cube: Cube) -> list[int]:
    """The repeats that a family's clusters stand for: the first, where all of them share a
    haystack."""
    return list(cube.repeats[:1] if cube.one_haystack else cube.repeats)


def _placed(cube: Cube, repeats: Sequence[int]) -> Array:
    """A family's scores as (repeats of all families, trials)."""
    scores = cube.clustered(cube.scores)
    made = np.full((len(repeats), scores.shape[1]), np.nan)
    made[[repeats.index(repeat) for repeat in _rows(cube)]] = scores
    return made
