"""Gather the prompts of a run as scores count them.

Of each trial the last answer that was scored counts, and answers to one prompt count together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent

if TYPE_CHECKING:
    from needlemap.prompts import Prompt
    from needlemap.records.record import PromptRecord, Record
    from needlemap.trials import Trial

# Length in tokens, depth.
Cell = tuple[int, float]
# Repeat, length in tokens, depth.
Place = tuple[int, int, float]
# Rows of run.json: length in tokens, depth, repeats.
Rows = Iterable[Sequence[Any]]
# Rows of run.json by `asked`: length in tokens, depth, repeat.
Shared = Mapping[str, Iterable[Sequence[Any]]]


def latest_records(records: Iterable[Record]) -> list[Record]:
    """Return one record a trial: the last that was scored or, if none was scored, the last."""
    latest: dict[tuple[str, str], Record] = {}
    for record in records:
        trial = record.asked or record.key, record.reference_sha256
        if record.scored or trial not in latest or not latest[trial].scored:
            latest[trial] = record
    return list(latest.values())


def place_of(record: Record) -> Place:
    """Return the place of a record's trial."""
    return record.repeat, record.length_tokens, record.depth


def places_of(trial: Trial) -> tuple[Place, ...]:
    """Return all places that a trial stands for. The first is its own."""
    return tuple((repeat, cell.length_tokens, cell.depth) for repeat, cell in trial.places)


def asks_same(prompt: Prompt | PromptRecord, other: Prompt | PromptRecord | None) -> bool:
    """Return True if two prompts have the same bytes, or the same token ids to both models.

    A prompt that is None is unknown, and not the same as any other.
    """
    if other is None:
        return False
    if prompt.sha256 == other.sha256:
        return True
    return bool(prompt.ids_sha256) and prompt.ids_sha256 == other.ids_sha256


def by_place(prompts: Iterable[AskedPrompt]) -> dict[Place, Record]:
    """Return the record of each place of a run.

    If a prompt was sent twice, it is the first record that was scored.
    """
    records: dict[Place, Record] = {}
    for prompt in prompts:
        record = prompt.record
        if record is not None:
            records.update(dict.fromkeys(prompt.places, record))
    return records


def place_label(place: Place) -> str:
    """Return the place of a trial, as `replay` takes it.

    >>> place_label((2, 1000, 0.5))
    'length 1000, depth 50, repeat 2'
    """
    repeat, length, depth = place
    return f"length {length}, depth {percent(depth):g}, repeat {repeat}"


def first_places(places: Sequence[Place]) -> dict[Cell, Place]:
    """Return the first of ascending places in each cell, by cell.

    Further repeats of a cell with the very same prompt are no further evidence.

    >>> first_places([(0, 10, 0.0), (0, 10, 0.5), (1, 10, 0.0)])
    {(10, 0.0): (0, 10, 0.0), (10, 0.5): (0, 10, 0.5)}
    """
    firsts: dict[Cell, Place] = {}
    for place in places:
        firsts.setdefault(place[1:], place)
    return firsts


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """One prompt of a run.

    Attributes:
        places: all that it stands for, ascending: the cells that come to it.
        records: its trials', one, or more where it was asked again; none where it is still to
            be asked.
        scores: the scores of its answers that were scored.
        outcome: what became of its last record; '' without records.
    """

    places: tuple[Place, ...]
    records: tuple[Record, ...] = ()
    scores: tuple[float, ...] = field(init=False, repr=False, compare=False)
    outcome: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scores = tuple(record.score for record in self.records if record.score is not None)
        # A frozen class sets a field that follows from others this way.
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "outcome", self.records[-1].outcome if self.records else "")

    @property
    def record(self) -> Record | None:
        """Return the first record that was scored or, if none was, the first record.

        If there is no record, None is returned.
        """
        for record in self.records:
            if record.scored:
                return record
        return self.records[0] if self.records else None

    @property
    def score(self) -> float | None:
        """Return the mean of its answers' scores, or None if no answer was scored."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def ratio(self) -> tuple[float, float] | None:
        """Return the means of both parts of a score that is a ratio, or None for other scores."""
        ratios = [
            record.scorer.ratio
            for record in self.records
            if record.scored and record.scorer and record.scorer.ratio is not None
        ]
        if not ratios:
            return None
        gains = sum(ratio[0] for ratio in ratios)
        maxima = sum(ratio[1] for ratio in ratios)
        return gains / len(ratios), maxima / len(ratios)

    @property
    def cells(self) -> dict[Cell, Place]:
        """Return the cells that it stands in, each with its first place there."""
        return first_places(self.places)

    @property
    def results(self) -> tuple[AskedPrompt, ...]:
        """Return the prompts that count in a cell.

        It is this prompt. If another tool's results do not hold the prompt, each result counts.
        """
        if not self.records or self.records[0].prompt is not None:
            return (self,)
        return tuple(replace(self, records=(record,)) for record in self.records)


def prompts_of(
    records: Iterable[Record], cells: Rows = (), shared: Shared | None = None
) -> list[AskedPrompt]:
    """Return the prompts of a run, also those still to be sent, ordered by their first places.

    `cells` and `shared` are those of run.json. Imported results hold no prompt. Their tools
    build the same prompt for the same cell, question and answer, so a second result with these
    is that prompt sent again.
    """
    unsent_places = {
        (repeat, length, depth) for length, depth, repeats in cells for repeat in repeats
    }
    places_by_asked = {
        asked: {(repeat, length, depth) for length, depth, repeat in rows} & unsent_places
        for asked, rows in (shared or {}).items()
    }
    groups: dict[Hashable, list[Record]] = defaultdict(list)
    for record in sorted(latest_records(records), key=place_of):
        groups[prompt_of(record)].append(record)
    prompts = []
    for group in groups.values():
        places = {place_of(record) for record in group}
        for record in group:
            places.update(places_by_asked.get(record.asked, ()))
        prompts.append(AskedPrompt(tuple(sorted(places)), tuple(group)))
        unsent_places -= places
    for places in places_by_asked.values():
        remaining = places & unsent_places
        if remaining:
            prompts.append(AskedPrompt(tuple(sorted(remaining))))
            unsent_places -= remaining
    prompts.extend(AskedPrompt((place,)) for place in unsent_places)
    return sorted(prompts, key=lambda prompt: prompt.places[0])


def prompt_of(record: Record) -> Hashable:
    """Return the identity of a record's prompt."""
    if record.prompt is not None:
        return record.length_tokens, record.prompt.sha256
    return record.length_tokens, record.depth, record.task, record.question, record.reference
