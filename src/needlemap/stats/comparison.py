"""Compare two runs' paired trials: each family by length and cell, and their mean.

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
from numpy.typing import NDArray

from needlemap.stats import Array, Cube
from needlemap.stats.difference import NO_PAIRS, Difference, holm, paired_difference
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
    """The comparison of one length.

    Attributes:
        length_tokens: the length.
        difference: of its pairs.
        loss: None where scores are not counted.
        adjusted_p: its p after Holm's correction over all lengths.
    """

    length_tokens: int
    difference: Difference
    loss: Loss | None
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class CellChange:
    """The comparison of one cell, for exploration only.

    A prompt that neighbouring cells share is in each of them.

    Attributes:
        length_tokens, depth: of the cell.
        loss: of its mean.
        n: pairs.
        lost, gained: pairs that scored less, and more, in the second run.
        p: of a sign test, not corrected.
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
    """The comparison of one or more families' scores.

    Attributes:
        overall: both means, and what was lost and gained; its n counts pairs with both scores,
            each of which counts the same.
        graded: whether any answer scored between wrong and right.
        paired: the loss with its interval, at the margin.
        counted: False where scores are means of an unknown number of answers, which have no
            interval and no test.
    """

    overall: Difference
    graded: bool
    paired: PairedLoss
    counted: bool

    @property
    def p(self) -> float | None:
        """Return the p of no difference, or None if there is no loss that it could be of."""
        return None if self.paired.loss is None else self.overall.p


@dataclass(frozen=True, slots=True)
class Power:
    """The pairs that show a loss with 80 % power.

    Attributes:
        sure: a loss of the margin is then sure to be a loss.
        fail: a loss of twice the margin is then a FAIL; None where that is over 100 points.
    """

    sure: int
    fail: int | None


@dataclass(frozen=True, slots=True)
class FamilyComparison(ComparedScores):
    """The comparison of pairs that both runs scored.

    Attributes:
        lengths: each length with a difference.
        cells: each cell with a pair.
        power: the pairs needed to see a loss.
        dropped: pairs without both scores, though both were sent.
        only_first, only_second: prompts of one run alone.
        answers: which of them differ, if they were compared.
        ran_on: that of `Pairs`.
    """

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
    """How far further runs of one model spread.

    Attributes:
        runs: further runs.
        n: pairs of the first run's scores and theirs.
        differing: of these pairs.
        largest: by how much the means of two such runs differ for no reason, 95 times in 100, a
            share.
    """

    runs: int
    n: int
    differing: int
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison(ComparedScores):
    """The comparison of the mean over families.

    Attributes:
        families: by name, '' of a run with one.
        adjusted_p: each family's p after Holm's correction over all; None if it has no p.
        is_judged: whether the margin was set, so that there is a verdict.
        noise: of further runs; None where none were given.
    """

    families: Mapping[str, FamilyComparison]
    adjusted_p: Mapping[str, float | None]
    is_judged: bool = True
    noise: Noise | None = None

    @property
    def only(self) -> FamilyComparison | None:
        """Return the comparison of the only family, or None if there are several families."""
        return self.families.get("")

    @property
    def answers(self) -> tuple[AnswerPairs, ...]:
        """Return each family's answers, if they were compared."""
        return tuple(
            family.answers for family in self.families.values() if family.answers is not None
        )


def compare_families(
    pairs: Mapping[str, Pairs], margin: float, *, wanted: Scope = "these", sequential: bool = False
) -> Comparison:
    """Compare families, each of which has a pair or a prompt that the first run answered.

    Args:
        pairs: of each family.
        margin: the loss, a share, that does not matter.
        wanted: the scope that the verdict is to hold for.
        sequential: whether the pairs were looked at after each haystack.
    """
    families: dict[str, FamilyComparison] = {}
    for name, family_pairs in pairs.items():
        comparison = compare_pairs(family_pairs, margin, wanted=wanted, sequential=sequential)
        if comparison is not None:
            families[name] = comparison
    are_counted = all(family_pairs.counted for family_pairs in pairs.values())
    if len(families) == 1:
        (single_family,) = families.values()
        paired, overall = single_family.paired, single_family.overall
    else:
        paired = _judge_mean(pairs, margin, wanted=wanted, sequential=sequential)
        families_tested = _tested_families(pairs, paired)
        overall = _mean_difference(families_tested)
    adjusted_ps = holm([family.overall.p for family in families.values()])
    return Comparison(
        overall=overall if are_counted else replace(overall, p=1.0),
        graded=any(family_pairs.graded for family_pairs in pairs.values()),
        paired=paired,
        counted=are_counted,
        families=families,
        adjusted_p={
            name: None if family.p is None else p
            for (name, family), p in zip(families.items(), adjusted_ps, strict=True)
        },
    )


def _tested_families(pairs: Mapping[str, Pairs], paired: PairedLoss) -> list[Pairs]:
    """Return the families that are tested, without the lengths that are not.

    If nothing is tested that the first run answered, all are returned.
    """
    untested = {group.family: group.lengths for group in paired.untested}
    families = []
    for name, family_pairs in pairs.items():
        if name not in untested:
            families.append(family_pairs)
        elif untested[name]:
            is_untested = np.isin(family_pairs.first.lengths, untested[name])[None, :, None]
            families.append(
                replace(
                    family_pairs,
                    first=_without_places(family_pairs.first, is_untested),
                    second=_without_places(family_pairs.second, is_untested),
                )
            )
    if any(family_pairs.n or family_pairs.unanswered for family_pairs in families):
        return families
    return list(pairs.values())


def _without_places(cube: Cube, places: NDArray[np.bool_]) -> Cube:
    return replace(cube, scores=np.where(places, np.nan, cube.scores))


def _judge_mean(
    pairs: Mapping[str, Pairs], margin: float, *, wanted: Scope, sequential: bool
) -> PairedLoss:
    """Return the loss of the mean over families."""
    moments = [family_pairs.measured for family_pairs in pairs.values() if family_pairs.measured[0]]
    first_moment = min((moment[0] for moment in moments), default="")
    last_moment = max((moment[1] for moment in moments), default="")
    loss = judge(
        rows_of(pairs),
        margin,
        wanted=wanted,
        looks=partial(planned_looks, wanted=wanted) if sequential else None,
        measured=(first_moment, last_moment),
    )
    if all(family_pairs.counted for family_pairs in pairs.values()):
        return loss
    return replace(loss, word=NOT_ENOUGH_DATA, loss=None, counted=False)


def compare_pairs(
    pairs: Pairs, margin: float, *, wanted: Scope = "these", sequential: bool = False
) -> FamilyComparison | None:
    """Compare the pairs of one family. Arguments are those of `compare_families`.

    If there is no pair, and no prompt that the first run alone answered, None is returned.
    """
    if not pairs.n and not pairs.unanswered:
        return None
    paired = _judge_mean({"": pairs}, margin, wanted=wanted, sequential=sequential)
    (tested_pairs,) = _tested_families({"": pairs}, paired)
    overall = _difference(tested_pairs, tested_pairs.first.scores, tested_pairs.second.scores)
    overall = overall or NO_PAIRS
    return FamilyComparison(
        overall=overall,
        graded=pairs.graded,
        paired=paired,
        counted=pairs.counted,
        lengths=_lengths(pairs, margin),
        cells=_cells(pairs),
        power=_power(tested_pairs, overall, margin),
        dropped=pairs.dropped,
        only_first=pairs.only_first,
        only_second=pairs.only_second,
        answers=pairs.answers,
        ran_on=pairs.ran_on,
    )


def _difference(pairs: Pairs, first: Array, second: Array) -> Difference | None:
    """Return the difference of scores (repeats, ...) of both runs, or None without a pair."""
    cube = pairs.first
    difference = paired_difference(cube.clustered(first), cube.clustered(second))
    if difference is None or pairs.counted:
        return difference
    return replace(difference, p=1.0)


def _lengths(pairs: Pairs, margin: float) -> tuple[LengthDifference, ...]:
    """Compare each length. Its loss is that of a comparison of this length alone."""
    first, second = pairs.first.scores, pairs.second.scores
    rows = rows_of({"": pairs})
    lengths = []
    for index, length in enumerate(pairs.first.lengths):
        difference = _difference(pairs, first[:, index], second[:, index])
        if difference is None:
            continue
        alone = judge(rows.where(rows.length == length), margin)
        lengths.append(
            LengthDifference(
                length_tokens=length,
                difference=difference,
                loss=alone.loss if pairs.counted else None,
                adjusted_p=difference.p,
            )
        )
    adjusted_ps = holm([length.difference.p for length in lengths])
    return tuple(
        replace(length, adjusted_p=p) for length, p in zip(lengths, adjusted_ps, strict=True)
    )


def _cells(pairs: Pairs) -> tuple[CellChange, ...]:
    cells = []
    for column, length in enumerate(pairs.first.lengths):
        for layer, depth in enumerate(pairs.first.depths):
            differences = pairs.spread[:, column, layer]
            differences = differences[~np.isnan(differences)]
            if not differences.size:
                continue
            lost = int((differences < -1e-12).sum())
            gained = int((differences > 1e-12).sum())
            cells.append(
                CellChange(
                    length_tokens=length,
                    depth=depth,
                    loss=float(-differences.mean()),
                    n=len(differences),
                    lost=lost,
                    gained=gained,
                    p=mcnemar(lost, gained) if pairs.counted else 1.0,
                )
            )
    return tuple(cells)


def noise_of(runs: Sequence[Mapping[str, Pairs]]) -> Noise | None:
    """Return the noise of a comparison, or None if nothing was scored twice.

    runs: for each further run its pairs with the first run, by family.
    """
    families: dict[str, list[tuple[float, float]]] = {}
    largest_run: Counter[str] = Counter()
    for run in runs:
        for name, pairs in run.items():
            scores = _score_pairs(pairs)
            families.setdefault(name, []).extend(scores)
            largest_run[name] = max(largest_run[name], len(scores))
    floors = {name: floor for name, scores in families.items() if (floor := noise_floor(scores))}
    if not floors:
        return None
    # The mean over families: each counts the same, over as many prompts as one run has.
    squares = sum(floor.smallest(largest_run[name]) ** 2 for name, floor in floors.items())
    return Noise(
        runs=len(runs),
        n=sum(floor.n for floor in floors.values()),
        differing=sum(floor.differing for floor in floors.values()),
        largest=sqrt(squares) / len(floors),
    )


def _score_pairs(pairs: Pairs) -> list[tuple[float, float]]:
    has_both = pairs.first.known & pairs.second.known
    first = pairs.first.scores[has_both].tolist()
    second = pairs.second.scores[has_both].tolist()
    return list(zip(first, second, strict=True))


def _power(pairs: Pairs, overall: Difference, margin: float) -> Power:
    """Return the pairs that are needed if differences spread and cluster as they do here."""
    squares = float(np.nansum(pairs.differences**2)) / max(1, overall.n)
    clusters = None if overall.of_these else overall.clusters
    # Without a margin: a loss of one point.
    margin_or_point = margin or 0.01

    def pairs_for(loss: float, beyond: float = 0.0) -> int:
        spread = squares if squares > loss else None
        return trials_needed(loss, spread, overall.design_effect, clusters, beyond)

    return Power(
        sure=pairs_for(margin_or_point),
        fail=pairs_for(2 * margin_or_point, beyond=margin_or_point)
        if 2 * margin_or_point <= 1
        else None,
    )


def _mean_difference(pairs: Sequence[Pairs]) -> Difference:
    """Return the difference of the mean over the families that have a pair with both scores."""
    repeats = sorted({repeat for family_pairs in pairs for repeat in _rows(family_pairs.first)})
    first = [_scores_by_repeat(family_pairs.first, repeats) for family_pairs in pairs]
    second = [_scores_by_repeat(family_pairs.second, repeats) for family_pairs in pairs]
    weights = [_weights(*scores) for scores in zip(first, second, strict=True)]
    difference = paired_difference(
        np.hstack(first),
        np.hstack(second),
        weights=np.hstack(weights),
    )
    return difference or NO_PAIRS


def _weights(first: Array, second: Array) -> Array:
    """Return weights of a family's pairs that let all families count the same."""
    return np.full(first.shape, 1 / max(1, int((~np.isnan(first - second)).sum())))


def _rows(cube: Cube) -> list[int]:
    """Return the repeats of a family's clusters.

    If all repeats share a haystack, it is the first one.
    """
    return list(cube.repeats[:1] if cube.one_haystack else cube.repeats)


def _scores_by_repeat(cube: Cube, repeats: Sequence[int]) -> Array:
    """Return a family's scores as (repeats of all families, trials)."""
    scores = cube.clustered(cube.scores)
    by_repeat = np.full((len(repeats), scores.shape[1]), np.nan)
    by_repeat[[repeats.index(repeat) for repeat in _rows(cube)]] = scores
    return by_repeat
