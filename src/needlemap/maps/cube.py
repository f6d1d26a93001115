"""A run's scores as one array: repeat by length by depth. The bootstraps and clustered errors work on it.

Of each trial the last answer that was scored counts, and answers to one prompt count together. Trials that
share a haystack are a cluster. Every repeat has a haystack of its own, unless documents are taken as they
are listed; results of other tools, whose prompts are not known, count as of one haystack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from needlemap.records.record import Record


Place = tuple[int, int, float]  # repeat, length in tokens, depth


def latest_records(records: Iterable[Record]) -> list[Record]:
    """One record a trial: of several (a failure, then a score) the last scored one, else the last."""
    latest: dict[tuple[str, str], Record] = {}
    for record in records:
        trial = record.asked or record.key, record.reference_sha256
        if record.scored or trial not in latest or not latest[trial].scored:
            latest[trial] = record
    return list(latest.values())


def place_of(record: Record) -> Place:
    """Where a record's trial stands."""
    return record.repeat, record.length_tokens, record.depth


def prompt_of(record: Record) -> Hashable:
    """What a record's prompt is told by: its length and hash. Trials of one prompt are no further evidence.

    Imported results hold no prompt. Their tools build the same one for the same cell, question and answer, so
    another version of a result is that prompt asked again.
    """
    if record.prompt is not None:
        return record.length_tokens, record.prompt.sha256
    return record.length_tokens, record.depth, record.task, record.question, record.reference


def by_prompt(records: Iterable[Record]) -> list[list[Record]]:
    """Records that asked the same prompt, together: by repeat, length and depth of the first, and inside."""
    found: dict[Hashable, list[Record]] = defaultdict(list)
    for record in sorted(records, key=place_of):
        found[prompt_of(record)].append(record)
    return list(found.values())


def one_a_cell(places: Iterable[Place]) -> list[Place]:
    """The first place in each cell: repeats that asked the very same prompt are no further evidence there.

    >>> one_a_cell([(0, 10, 0.0), (0, 10, 0.5), (1, 10, 0.0)])
    [(0, 10, 0.0), (0, 10, 0.5)]
    """
    found: dict[tuple[int, float], Place] = {}
    for place in places:
        found.setdefault(place[1:], place)
    return list(found.values())


Array = NDArray[np.float64]
RAGGED_BELOW = 0.5  # share of lengths x depths that are cells
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Cube:
    """scores: (repeats, lengths, depths) in [0, 1], NaN where not measured; the mean of a prompt's answers.

    spread: same shape, where a prompt that several depths or repeats share has its score at each of their
    places: what is said of one depth or cell is taken of it, as there no prompt counts twice that matters.
    asked: same shape, whether it was to be asked. lengths, depths and repeats' numbers ascend. one_haystack:
    whether all repeats have the same. again: the first two scores of each prompt that was asked more than
    once; again_at: their lengths. counted: False where a score is a mean of nobody knows how many answers.
    """

    repeats: tuple[int, ...]
    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    scores: Array
    spread: Array
    asked: NDArray[np.bool_]
    one_haystack: bool = False
    again: tuple[Pair, ...] = ()
    again_at: tuple[int, ...] = ()
    counted: bool = True

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where there is a score; same shape as scores."""
        return ~np.isnan(self.scores)

    @property
    def n(self) -> int:
        """Prompts scored."""
        return int(self.known.sum())

    @property
    def missing(self) -> int:
        """Prompts that were to be asked and have no score."""
        return int((self.asked & ~self.known).sum())

    @property
    def ragged(self) -> bool:
        """Whether lengths have depths of their own; see `is_ragged`."""
        cells = int((self.asked | ~np.isnan(self.spread)).any(axis=0).sum())
        return is_ragged(cells, len(self.lengths), len(self.depths))

    def clustered(self, scores: Array) -> Array:
        """Scores of all repeats, (repeats, ...), as (haystacks, trials)."""
        return scores.reshape(1 if self.one_haystack else max(1, len(self.repeats)), -1)


def is_ragged(cells: int, lengths: int, depths: int) -> bool:
    """Whether lengths have depths of their own (mode lattice), so that lengths x depths is mostly holes."""
    return cells < RAGGED_BELOW * lengths * depths


def make_cube(
    records: Iterable[Record], cells: Iterable[Sequence[Any]], *, one_haystack: bool = False
) -> Cube:
    """From records and run.json's cells: rows of length in tokens, depth, list of repeats.

    A prompt that several depths or repeats share has the place of the first, so that it counts once, with the
    mean of its answers.
    """
    asked = {(repeat, length, depth) for length, depth, repeats in cells for repeat in repeats}
    found = latest_records(records)
    scores: dict[Place, float] = {}
    copies: dict[Place, float] = {}
    again: list[tuple[int, Pair]] = []
    for group in by_prompt(found):
        first, known = place_of(group[0]), known_scores(group)
        asked.difference_update(map(place_of, group[1:]))
        asked.add(first)
        if known:
            scores[first] = sum(known) / len(known)
            copies.update(dict.fromkeys(one_a_cell(map(place_of, group)), scores[first]))
        again += [(first[1], (known[0], known[1]))] if len(known) > 1 else []
    unknown = bool(found) and all(record.prompt is None for record in found)
    counted = not any(record.scorer is not None and record.scorer.mean for record in found)
    made = cube_of(scores, asked, copies)
    twice, at = tuple(pair for _, pair in again), tuple(length for length, _ in again)
    return replace(made, one_haystack=one_haystack or unknown, again=twice, again_at=at, counted=counted)


def known_scores(records: Iterable[Record]) -> list[float]:
    """The scores of those that were scored."""
    return [record.score for record in records if record.score is not None]


def cube_of(
    scores: Mapping[Place, float], asked: set[Place], copies: Mapping[Place, float] | None = None
) -> Cube:
    """From scores by place, all places that were to be asked, and scores at further places of prompts."""
    spread = {**(copies or {}), **scores}
    places = {*asked, *spread}
    repeats = sorted({place[0] for place in places})
    lengths = sorted({place[1] for place in places})
    depths = sorted({place[2] for place in places})
    row, column, layer = ({value: at for at, value in enumerate(each)} for each in (repeats, lengths, depths))
    shape = len(repeats), len(lengths), len(depths)
    once, everywhere, wanted = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for place in places:
        at = row[place[0]], column[place[1]], layer[place[2]]
        wanted[at] = place in asked or place in scores
        once[at] = scores.get(place, np.nan)
        everywhere[at] = spread.get(place, np.nan)
    return Cube(tuple(repeats), tuple(lengths), tuple(depths), once, everywhere, wanted)
