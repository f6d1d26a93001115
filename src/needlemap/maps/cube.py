"""A run's scores as one array: repeat by length by depth. The bootstraps and clustered errors work on it.

The trials of one repeat share a haystack, so a repeat is a cluster: what is drawn again is whole repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.maps.map import latest_records, prompt_of
from needlemap.runs.record import Record

Array = NDArray[np.float64]
Place = tuple[int, int, float]  # repeat, length in tokens, depth


@dataclass(frozen=True, slots=True)
class Cube:
    """scores: (repeats, lengths, depths) in [0, 1], NaN where not measured.

    asked: same shape, whether it was to be asked. lengths, depths and repeats' numbers ascend.
    """

    repeats: tuple[int, ...]
    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    scores: Array
    asked: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where there is a score; same shape as scores."""
        return ~np.isnan(self.scores)

    @property
    def n(self) -> int:
        """Trials scored."""
        return int(self.known.sum())

    @property
    def missing(self) -> int:
        """Trials that were to be asked and have no score."""
        return int((self.asked & ~self.known).sum())

    @property
    def graded(self) -> bool:
        """Whether any score lies between wrong and right."""
        found = self.scores[self.known]
        return bool(((found > 0) & (found < 1)).any())

    @property
    def clusters(self) -> int:
        """Repeats with at least one score."""
        return int(self.known.any(axis=(1, 2)).sum())


def make_cube(records: Iterable[Record], cells: Iterable[Sequence[Any]]) -> Cube:
    """From records and run.json's cells: rows of length in tokens, depth, list of repeats.

    A prompt that several depths or repeats share has one place, so that it counts once.
    """
    asked = {(repeat, length, depth) for length, depth, repeats in cells for repeat in repeats}
    scores: dict[Place, float] = {}
    seen: set[tuple[int, str]] = set()
    for record in sorted(latest_records(records), key=place_of):
        place = place_of(record)
        if record.score is None:
            asked.add(place)
        elif prompt_of(record) in seen:
            asked.discard(place)  # the prompt of another depth or repeat: it counts once
        else:
            scores[place] = record.score
            seen.add(prompt_of(record))
    return cube_of(scores, {*asked, *scores})


def cube_of(scores: dict[Place, float], asked: set[Place]) -> Cube:
    """From scores by place, and all places that were to be asked."""
    places = {*asked, *scores}
    repeats = sorted({place[0] for place in places})
    lengths = sorted({place[1] for place in places})
    depths = sorted({place[2] for place in places})
    axes: list[dict[Any, int]] = [
        {value: at for at, value in enumerate(axis)} for axis in (repeats, lengths, depths)
    ]
    values = np.full((len(repeats), len(lengths), len(depths)), np.nan)
    wanted = np.zeros(values.shape, dtype=bool)
    for place in places:
        at = tuple(axis[value] for axis, value in zip(axes, place, strict=True))
        wanted[at] = True
        values[at] = scores.get(place, np.nan)
    return Cube(tuple(repeats), tuple(lengths), tuple(depths), values, wanted)


def place_of(record: Record) -> Place:
    """Where a record's trial stands."""
    return record.repeat, record.length_tokens, record.depth
