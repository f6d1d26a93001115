"""The trials of two runs, paired by identity: same task, cell, repeat, and the same prompt to the last byte.

Not by key: a trial's key names the model, which is what two runs may differ in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.maps.cube import Array, Cube, Place, cube_of, place_of
from needlemap.maps.map import latest_records
from needlemap.runs.record import Record

Cells = Iterable[Sequence[Any]]  # rows of run.json: length in tokens, depth, repeats


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cubes with the same axes, of the trials that both runs were to make.

    only_first, only_second: trials of one run alone. unlike: places where the two asked something else.
    same: whether all paired records have the same key, so that one run is the other made again.
    """

    first: Cube
    second: Cube
    only_first: int
    only_second: int
    unlike: tuple[Place, ...]
    same: bool

    @property
    def differences(self) -> Array:
        """second - first: (repeats, lengths, depths), NaN where either has no score."""
        return self.second.scores - self.first.scores

    @property
    def n(self) -> int:
        """Pairs with both scores."""
        return int((self.first.known & self.second.known).sum())

    @property
    def dropped(self) -> int:
        """Trials that both were to make, and at least one has no score of."""
        return int((self.first.asked & ~(self.first.known & self.second.known)).sum())

    @property
    def graded(self) -> bool:
        """Whether any score lies between wrong and right."""
        return self.first.graded or self.second.graded


def pair_up(first: Iterable[Record], second: Iterable[Record], cells: tuple[Cells, Cells]) -> Pairs:
    """Pair the trials of two runs. cells: what run.json of each says they were to make."""
    left, right = _by_place(first), _by_place(second)
    asked = [
        {(repeat, length, depth) for length, depth, repeats in rows for repeat in repeats} for rows in cells
    ]
    whole = [asked[0] | left.keys(), asked[1] | right.keys()]
    both = whole[0] & whole[1]
    met = sorted(both & left.keys() & right.keys())
    unlike = tuple(place for place in met if identity(left[place]) != identity(right[place]))
    same = bool(met) and all(left[place].key == right[place].key for place in met)
    cubes = [cube_of(_scores(found, both), both) for found in (left, right)]
    alone = len(whole[0] - both), len(whole[1] - both)
    return Pairs(cubes[0], cubes[1], *alone, unlike, same)


def identity(record: Record) -> tuple[str, ...]:
    """What a record asked: task and prompt hash; without a prompt (imported results) question and answer."""
    if record.prompt is not None:
        return record.task, record.prompt.sha256
    return record.task, record.question, record.reference


def _by_place(records: Iterable[Record]) -> dict[Place, Record]:
    return {place_of(record): record for record in latest_records(records)}


def _scores(found: dict[Place, Record], places: set[Place]) -> dict[Place, float]:
    scores = {place: record.score for place, record in found.items() if place in places}
    return {place: score for place, score in scores.items() if score is not None}
