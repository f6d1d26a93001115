"""A run's scores as one array: repeat by length by depth. The bootstraps and clustered errors work
on it.

Of each trial the last answer that was scored counts, and answers to one prompt count together.
Trials that share a haystack are a cluster. Every repeat has a haystack of its own, unless documents
are taken as they are listed; results of other tools, whose prompts are not known, count as of one
haystack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from needlemap.prompts import Prompt
    from needlemap.records.record import PromptRecord, Record
    from needlemap.trials import Trial


Cell = tuple[int, float]  # length in tokens, depth
Place = tuple[int, int, float]  # repeat, length in tokens, depth
Rows = Iterable[Sequence[Any]]  # of run.json: length in tokens, depth, repeats
Shared = Mapping[
    str, Iterable[Sequence[Any]]
]  # of run.json: by `asked`: length in tokens, depth, repeat


def latest_records(records: Iterable[Record]) -> list[Record]:
    """One record a trial: of several (a failure, then a score) the last scored one, else the
    last."""
    latest: dict[tuple[str, str], Record] = {}
    for record in records:
        trial = record.asked or record.key, record.reference_sha256
        if record.scored or trial not in latest or not latest[trial].scored:
            latest[trial] = record
    return list(latest.values())


def place_of(record: Record) -> Place:
    """Where a record's trial stands."""
    return record.repeat, record.length_tokens, record.depth


def places_of(trial: Trial) -> tuple[Place, ...]:
    """All places that a trial stands for; the first is its own."""
    return tuple((repeat, cell.length_tokens, cell.depth) for repeat, cell in trial.places)


def asks_same(one: Prompt | PromptRecord, other: Prompt | PromptRecord | None) -> bool:
    """Whether two prompts are of the same bytes, or both models see the same token ids; None is
    unknown."""
    if other is None:
        return False
    return one.sha256 == other.sha256 or (
        bool(one.ids_sha256) and one.ids_sha256 == other.ids_sha256
    )


def by_place(prompts: Iterable[AskedPrompt]) -> dict[Place, Record]:
    """The record of each place of a run: of a prompt that was asked twice the first one that was
    scored."""
    asked = ((prompt, prompt.record) for prompt in prompts)
    return {
        place: record for prompt, record in asked if record is not None for place in prompt.places
    }


def one_a_cell(places: Sequence[Place]) -> dict[Cell, Place]:
    """The first of ascending places in each cell: repeats that come to the very same prompt are no
    further evidence there.

    >>> one_a_cell([(0, 10, 0.0), (0, 10, 0.5), (1, 10, 0.0)])
    {(10, 0.0): (0, 10, 0.0), (10, 0.5): (0, 10, 0.5)}
    """
    found: dict[Cell, Place] = {}
    for place in places:
        found.setdefault(place[1:], place)
    return found


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """One prompt of a run. places: all that it stands for, ascending: the cells that come to it.
    records: its trials', one, or more where it was asked again; none where it is still to be
    asked."""

    places: tuple[Place, ...]
    records: tuple[Record, ...] = ()

    @property
    def record(self) -> Record | None:
        """The first that was scored, else the first; None of a prompt that was not asked."""
        return next((each for each in self.records if each.scored), next(iter(self.records), None))

    @property
    def scores(self) -> list[float]:
        """Of its answers that were scored."""
        return [record.score for record in self.records if record.score is not None]

    @property
    def score(self) -> float | None:
        """The mean of its answers' scores."""
        scores = self.scores
        return sum(scores) / len(scores) if scores else None

    @property
    def cells(self) -> dict[Cell, Place]:
        """The cells that it stands in, each with its first place there."""
        return one_a_cell(self.places)

    @property
    def results(self) -> tuple[AskedPrompt, ...]:
        """What counts in a cell: this prompt, or each of its results where another tool built
        it."""
        known = not self.records or self.records[0].prompt is not None
        return (self,) if known else tuple(replace(self, records=(each,)) for each in self.records)


def prompts_of(
    records: Iterable[Record], cells: Rows = (), shared: Shared | None = None
) -> list[AskedPrompt]:
    """The prompts of a run, asked or still to be asked, by their first places. cells, shared: as in
    run.json.

    Imported results hold no prompt. Their tools build the same one for the same cell, question and
    answer, so another version of a result is that prompt asked again.
    """
    left = {(repeat, length, depth) for length, depth, repeats in cells for repeat in repeats}
    alike = {
        asked: {(repeat, length, depth) for length, depth, repeat in rows} & left
        for asked, rows in (shared or {}).items()
    }
    found: dict[Hashable, list[Record]] = defaultdict(list)
    for record in sorted(latest_records(records), key=place_of):
        found[prompt_of(record)].append(record)
    prompts = []
    for group in found.values():
        places = set(map(place_of, group)).union(*(alike.get(record.asked, ()) for record in group))
        prompts.append(AskedPrompt(tuple(sorted(places)), tuple(group)))
        left -= places
    for places in alike.values():
        if unasked := places & left:
            prompts.append(AskedPrompt(tuple(sorted(unasked))))
            left -= unasked
    prompts += [AskedPrompt((place,)) for place in left]
    return sorted(prompts, key=lambda prompt: prompt.places[0])


def prompt_of(record: Record) -> Hashable:
    """What a record's prompt is told by."""
    if record.prompt is not None:
        return record.length_tokens, record.prompt.sha256
    return record.length_tokens, record.depth, record.task, record.question, record.reference


Array = NDArray[np.float64]
RAGGED_BELOW = 0.5  # share of lengths x depths that are cells
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Cube:
    """scores: (repeats, lengths, depths) in [0, 1], NaN where not measured; the mean of a prompt's
    answers.

    spread: same shape, where a prompt that several depths or repeats share has its score at each of
    their places: what is said of one depth or cell is taken of it, as there no prompt counts twice
    that matters. asked: same shape, whether it was to be asked. lengths, depths and repeats'
    numbers ascend. one_haystack:
    whether all repeats have the same. again: the first two scores of each prompt that was asked
    more than once; again_at: their lengths. short: lengths with a prompt that is shorter, since the
    haystack ended. counted: False where a score is a mean of an unknown
    number of answers.
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
    short: frozenset[int] = frozenset()
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

    def without(self, lengths: Set[int]) -> Cube:
        """The same without some lengths."""
        kept = [at for at, length in enumerate(self.lengths) if length not in lengths]
        return replace(
            self,
            lengths=tuple(self.lengths[at] for at in kept),
            scores=self.scores[:, kept],
            spread=self.spread[:, kept],
            asked=self.asked[:, kept],
            short=self.short - lengths,
        )

    def clustered(self, scores: Array) -> Array:
        """Scores of all repeats, (repeats, ...), as (haystacks, trials)."""
        return scores.reshape(1 if self.one_haystack else max(1, len(self.repeats)), -1)


def is_ragged(cells: int, lengths: int, depths: int) -> bool:
    """Whether lengths have depths of their own, as imported maps may, so that lengths x depths is
    mostly holes."""
    return cells < RAGGED_BELOW * lengths * depths


def make_cube(
    prompts: Sequence[AskedPrompt], *, one_haystack: bool = False, at: Iterable[Place] = ()
) -> Cube:
    """From a run's prompts. One that several depths or repeats share has the place of the first, so
    that it counts once, with the mean of its answers. at: places that it has, whatever was
    measured."""
    scored = [(prompt, score) for prompt in prompts if (score := prompt.score) is not None]
    scores = {prompt.places[0]: score for prompt, score in scored}
    copies = {place: score for prompt, score in scored for place in prompt.cells.values()}
    twice = [prompt for prompt in prompts if len(prompt.records) > 1 and len(prompt.scores) > 1]
    again = tuple((prompt.scores[0], prompt.scores[1]) for prompt in twice)
    again_at = tuple(prompt.places[0][1] for prompt in twice)
    records = [record for prompt in prompts for record in prompt.records]
    unknown = bool(records) and all(record.prompt is None for record in records)
    counted = not any(record.scorer is not None and record.scorer.mean for record in records)
    short = frozenset(row.length_tokens for row in records if row.prompt and row.prompt.is_short)
    made = cube_of(scores, {prompt.places[0] for prompt in prompts}, copies, at)
    alike = one_haystack or unknown
    made = replace(made, one_haystack=alike, short=short, counted=counted)
    return replace(made, again=again, again_at=again_at)


def cube_of(
    scores: Mapping[Place, float],
    asked: set[Place],
    copies: Mapping[Place, float] | None = None,
    at: Iterable[Place] = (),
) -> Cube:
    """From scores by place, all places that were to be asked, and scores at further places of
    prompts. at: as in `make_cube`."""
    spread = {**(copies or {}), **scores}
    places = {*asked, *spread, *at}
    repeats = sorted({place[0] for place in places})
    lengths = sorted({place[1] for place in places})
    depths = sorted({place[2] for place in places})
    row, column, layer = (
        {value: at for at, value in enumerate(each)} for each in (repeats, lengths, depths)
    )
    shape = len(repeats), len(lengths), len(depths)
    once, everywhere, wanted = (
        np.full(shape, np.nan),
        np.full(shape, np.nan),
        np.zeros(shape, dtype=bool),
    )
    for place in places:
        slot = row[place[0]], column[place[1]], layer[place[2]]
        wanted[slot] = place in asked or place in scores
        once[slot] = scores.get(place, np.nan)
        everywhere[slot] = spread.get(place, np.nan)
    return Cube(tuple(repeats), tuple(lengths), tuple(depths), once, everywhere, wanted)
