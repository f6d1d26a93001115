"""The trials of two runs, paired by identity: same task, cell, repeat, and the same prompt.

Not by key: a trial's key names the model, which is what two runs may differ in. The same prompt is one of the
same bytes, or one that both models see as the same token ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from needlemap.maps.cube import (
    Array,
    Cube,
    Place,
    cube_of,
    known_scores,
    latest_records,
    one_a_cell,
    place_of,
    prompt_of,
)

if TYPE_CHECKING:
    from needlemap.records.record import Record

Cells = Iterable[Sequence[Any]]  # rows of run.json: length in tokens, depth, repeats


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cubes with the same axes, of the trials that both runs were to make.

    A prompt that several trials asked makes one pair, at the place of the first, of its mean scores.
    only_first, only_second: trials of one run alone. unlike: places where the two asked something else. same:
    whether all paired records have the same key, so that one run is the other made again. graded: whether any
    answer scored between wrong and right. counted: False where scores are means of nobody knows how many
    answers. failed: prompts that first and second asked, of which no answer could be measured.
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
    first: Iterable[Record],
    second: Iterable[Record],
    cells: tuple[Cells, Cells],
    *,
    one_haystack: bool = False,
) -> Pairs:
    """Pair the trials of two runs. cells: what run.json of each says they were to make."""
    left, right = _by_place(first), _by_place(second)
    asked = [
        {(repeat, length, depth) for length, depth, repeats in rows for repeat in repeats} for rows in cells
    ]
    whole = [asked[0] | left.keys(), asked[1] | right.keys()]
    both = whole[0] & whole[1]
    met = sorted(both & left.keys() & right.keys())
    unlike = tuple(place for place in met if not is_same(left[place], right[place]))
    same = bool(met) and all(left[place].key == right[place].key for place in met)
    groups = _by_prompt(met, left)
    scores = [_scores(groups, found, left, right) for found in (left, right)]
    shared = {place for places in groups for place in places[1:]}
    alone = len(whole[0] - both), len(whole[1] - both)
    records = [found[place] for found in (left, right) for place in met]
    alike = one_haystack or (bool(records) and all(record.prompt is None for record in records))
    cubes = [replace(cube_of(once, both - shared, copies), one_haystack=alike) for once, copies in scores]
    graded = any(record.score not in (None, 0, 1) for record in records)
    counted = not any(record.scorer is not None and record.scorer.mean for record in records)
    first_failed, second_failed = (sum(places[0] not in once for places in groups) for once, _ in scores)
    return Pairs(*(cubes[0], cubes[1], *alone, unlike, same, graded, counted), (first_failed, second_failed))


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


def _by_place(records: Iterable[Record]) -> dict[Place, Record]:
    return {place_of(record): record for record in latest_records(records)}


def _by_prompt(met: Sequence[Place], records: Mapping[Place, Record]) -> list[list[Place]]:
    """Places of one prompt together."""
    groups: dict[Hashable, list[Place]] = defaultdict(list)
    for place in met:
        groups[prompt_of(records[place])].append(place)
    return list(groups.values())


def _scores(
    groups: Sequence[Sequence[Place]],
    records: Mapping[Place, Record],
    left: Mapping[Place, Record],
    right: Mapping[Place, Record],
) -> tuple[dict[Place, float], dict[Place, float]]:
    """A run's score of each prompt at its first place, and in each of its cells.

    Of a prompt that several trials asked, those count that both runs scored, or all where there is none.
    """
    once: dict[Place, float] = {}
    copies: dict[Place, float] = {}
    for places in groups:
        whole = [place for place in places if left[place].scored and right[place].scored] or places
        known = known_scores(records[place] for place in whole)
        if known:
            once[places[0]] = sum(known) / len(known)
            copies.update(dict.fromkeys(one_a_cell(places), once[places[0]]))
    return once, copies
