"""The prompts of a run as scores count them: of each trial the last answer that was scored,
and answers to one prompt together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
    """Whether two prompts are of the same bytes, or both models see the same token ids; None
    is unknown."""
    if other is None:
        return False
    return one.sha256 == other.sha256 or (
        bool(one.ids_sha256) and one.ids_sha256 == other.ids_sha256
    )


def by_place(prompts: Iterable[AskedPrompt]) -> dict[Place, Record]:
    """The record of each place of a run: of a prompt that was asked twice the first one that
    was scored."""
    asked = ((prompt, prompt.record) for prompt in prompts)
    return {
        place: record for prompt, record in asked if record is not None for place in prompt.places
    }


def one_a_cell(places: Sequence[Place]) -> dict[Cell, Place]:
    """The first of ascending places in each cell: repeats that come to the very same prompt
    are no further evidence there.

    >>> one_a_cell([(0, 10, 0.0), (0, 10, 0.5), (1, 10, 0.0)])
    {(10, 0.0): (0, 10, 0.0), (10, 0.5): (0, 10, 0.5)}
    """
    found: dict[Cell, Place] = {}
    for place in places:
        found.setdefault(place[1:], place)
    return found


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """One prompt of a run. places: all that it stands for, ascending: the cells that come to
    it. records: its trials', one, or more where it was asked again; none where it is still to
    be asked."""

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
    def ratio(self) -> tuple[float, float] | None:
        """The two parts of a score that is a ratio, the means of its answers'; None of
        others."""
        found = [each.scorer.ratio for each in self.records if each.scored and each.scorer]
        parts = [each for each in found if each is not None]
        if not parts:
            return None
        return sum(part[0] for part in parts) / len(parts), sum(p[1] for p in parts) / len(parts)

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
    """The prompts of a run, asked or still to be asked, by their first places. cells, shared:
    as in run.json.

    Imported results hold no prompt. Their tools build the same one for the same cell, question
    and answer, so another version of a result is that prompt asked again.
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
    """The identity of a record's prompt."""
    if record.prompt is not None:
        return record.length_tokens, record.prompt.sha256
    return record.length_tokens, record.depth, record.task, record.question, record.reference
