"""The trials of two runs, paired by identity: same task, cell, repeat, and the same prompt.

Not by key: a trial's key names the model, which is what two runs may differ in. The same prompt is one of the
same bytes, or one that both models see as the same token ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from needlemap.maps import Array, AskedPrompt, Cube, Place, cube_of, one_a_cell
from needlemap.maps.answers import AnswerPairs

if TYPE_CHECKING:
    from needlemap.records.record import Record


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cubes with the same axes, of the trials that both runs were to make.

    A prompt that several cells share makes one pair, at the place of the first, of its mean scores.
    only_first, only_second: prompts of one run alone. unlike: places where the two asked something else.
    same: whether all paired records have the same key, so that one run is the other made again. graded:
    whether any answer scored between wrong and right. counted: False where scores are means of nobody knows
    how many answers. failed: prompts that first and second asked, of which no answer could be measured.
    answers: which of them differ, where somebody looked.
    """

    first: Cube
    second: Cube
    only_first: int
    only_second: int
    unlike: tuple[Place, ...]
    same: bool
    graded: bool
    counted: bool
    failed: tuple[int, int] = (0, 0)
    answers: AnswerPairs | None = None

    @property
    def unanswered(self) -> int:
        """Pairs that first has a score of, and second has not: it failed, or was not asked yet."""
        return int((self.first.known & ~self.second.known).sum())

    @property
    def lost(self) -> Array:
        """The scores of second, with 0 where it has none and first has."""
        return np.where(self.first.known & ~self.second.known, 0.0, self.second.scores)

    @property
    def excess(self) -> float:
        """The share of prompts that second failed more often than first; below 0 where it failed fewer."""
        return (self.failed[1] - self.failed[0]) / max(1, int(self.first.asked.sum()))

    @property
    def differences(self) -> Array:
        """second - first: (repeats, lengths, depths), NaN where either has no score."""
        return self.second.scores - self.first.scores

    @property
    def spread(self) -> Array:
        """The same with each pair in every cell of its prompt: what is said of cells is taken of it."""
        return self.second.spread - self.first.spread

    @property
    def n(self) -> int:
        """Pairs with both scores."""
        return int((self.first.known & self.second.known).sum())

    @property
    def dropped(self) -> int:
        """Pairs that both were to make, and at least one has no score of."""
        return int((self.first.asked & ~(self.first.known & self.second.known)).sum())


def pair_up(
    first: Sequence[AskedPrompt], second: Sequence[AskedPrompt], *, one_haystack: bool = False
) -> Pairs:
    """Pair the prompts of two runs, asked or still to be asked."""
    left, right = ({place: each for each in prompts for place in each.places} for prompts in (first, second))
    both = sorted(left.keys() & right.keys())
    met = {place: None for place in both if left[place].records and right[place].records}
    unlike = tuple(place for place in met if not is_same(left[place].records[0], right[place].records[0]))
    same = bool(met) and all(_keys(left[place]) == _keys(right[place]) for place in met)
    groups: dict[tuple[int, int], list[Place]] = {}  # places by the pair that they stand for
    for place in both:
        groups.setdefault((id(left[place]), id(right[place])), []).append(place)
    records = [record for found in (left, right) for place in met for record in found[place].records]
    alike = one_haystack or (bool(records) and all(record.prompt is None for record in records))
    cubes = [replace(_cube(found, groups.values()), one_haystack=alike) for found in (left, right)]
    graded = any(record.score not in (None, 0, 1) for record in records)
    counted = not any(record.scorer is not None and record.scorer.mean for record in records)
    failed = [
        sum(found[places[0]].score is None for places in groups.values() if places[0] in met)
        for found in (left, right)
    ]
    alone = _alone(first, right), _alone(second, left)
    return Pairs(cubes[0], cubes[1], *alone, unlike, same, graded, counted, (failed[0], failed[1]))


def _alone(prompts: Sequence[AskedPrompt], others: Mapping[Place, AskedPrompt]) -> int:
    """How many prompts stand at no place of the others."""
    return sum(not any(place in others for place in each.places) for each in prompts)


def _keys(prompt: AskedPrompt) -> set[str]:
    return {record.key for record in prompt.records}


def _cube(found: Mapping[Place, AskedPrompt], groups: Collection[Sequence[Place]]) -> Cube:
    """A run's scores: of each pair at its first place, and in each of its cells."""
    scores, copies = dict[Place, float](), dict[Place, float]()
    asked = {places[0] for places in groups}
    for places in groups:
        score = found[places[0]].score
        if score is not None:
            scores[places[0]] = score
            copies.update(dict.fromkeys(one_a_cell(places).values(), score))
    return cube_of(scores, asked, copies)


def is_same(first: Record, second: Record) -> bool:
    """Whether two records asked the same and held the same for right, as far as both say what that was.

    The same is asked by the same bytes, by what both models see as the same token ids, or, of imported
    results, whose prompts are not known, by the same question for the same answer.
    """
    digests = {first.reference_sha256, second.reference_sha256} - {""}
    if first.task != second.task or len(digests) > 1:
        return False
    one, other = first.prompt, second.prompt
    if one is None or other is None:
        return one is other and (first.question, first.reference) == (second.question, second.reference)
    return one.sha256 == other.sha256 or (one.ids_sha256 is not None and one.ids_sha256 == other.ids_sha256)
