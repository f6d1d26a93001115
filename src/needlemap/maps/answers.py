"""Which answers count: of each trial the last that was scored, and those to one prompt together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

from needlemap.runs.record import Record

Place = tuple[int, int, float]  # repeat, length in tokens, depth


def latest_records(records: Iterable[Record]) -> list[Record]:
    """One record a trial: of several (a failure, then a score) the last scored one, else the last."""
    latest: dict[str, Record] = {}
    for record in records:
        if record.scored or record.key not in latest or not latest[record.key].scored:
            latest[record.key] = record
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
