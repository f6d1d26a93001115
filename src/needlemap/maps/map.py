"""A map: per cell the mean score, how many trials it rests on, and its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from needlemap.maps.intervals import wilson
from needlemap.runs.record import Record


@dataclass(frozen=True, slots=True)
class CellScore:
    """One cell. depth: as meant; realised: mean of where the first needle was; both shares in [0, 1].

    score: mean in [0, 1], None when nothing was measured. n: different prompts scored. low, high: 95 % Wilson
    interval of so many.
    missing: trials that could not be measured or were not asked yet. failures: how many of each kind.
    repeated: scored trials whose prompt a shallower cell of the same length asked too: where sentences are
    longer than the steps in depth, neighbouring cells are one prompt, which counts once in every sum.
    """

    length_tokens: int
    depth: float
    realised: float
    score: float | None
    n: int
    low: float | None
    high: float | None
    missing: int
    failures: Mapping[str, int]
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Map:
    """All cells of one run, lengths ascending, depths ascending within a length, and what they belong to.

    title parts: model, tokenizer and task as named in the run; mode: how prompts were ordered and shared.
    """

    cells: tuple[CellScore, ...]
    model: str
    tokenizer: str
    task: str
    scorer: str
    mode: str

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths in tokens, ascending."""
        return tuple(sorted({cell.length_tokens for cell in self.cells}))

    @property
    def depths(self) -> tuple[float, ...]:
        """Meant depths, ascending shares."""
        return tuple(sorted({cell.depth for cell in self.cells}))

    @property
    def n(self) -> int:
        """Different prompts scored."""
        return sum(cell.n - cell.repeated for cell in self.cells)

    @property
    def by_length(self) -> dict[int, float | None]:
        """Mean of the cells' means per length; None where no cell has a score."""
        return {
            length: _mean([cell.score for cell in self.cells if cell.length_tokens == length])
            for length in self.lengths
        }

    @property
    def overall(self) -> float | None:
        """Mean over lengths of the mean over depths, as OpenCompass prints it."""
        return _mean(list(self.by_length.values()))

    def to_pandas(self) -> Any:
        """One row a cell: length, depth, score, n, low, high, realised, missing. Raises NeedlemapError."""
        from needlemap.maps.frame import cell_frame

        return cell_frame(self.cells)


def make_map(
    records: Iterable[Record],
    expected: Mapping[tuple[int, float], int],
    *,
    model: str,
    tokenizer: str,
    task: str,
    scorer: str,
    mode: str,
) -> Map:
    """A map from records. expected: trials per (length_tokens, depth) that the run was to make.

    Of several records of one trial (a failure, then a score) the last scored one counts, else the last.
    """
    cells: dict[tuple[int, float], list[Record]] = defaultdict(list)
    for record in latest_records(records):
        cells[record.length_tokens, record.depth].append(record)
    seen: set[tuple[int, str]] = set()
    places = sorted({*expected, *cells})
    rows = tuple(_cell(place, cells.get(place, []), expected.get(place, 0), seen) for place in places)
    return Map(rows, model, tokenizer, task, scorer, mode)


def latest_records(records: Iterable[Record]) -> list[Record]:
    """One record a trial: of several (a failure, then a score) the last scored one, else the last."""
    latest: dict[str, Record] = {}
    for record in records:
        if record.scored or record.key not in latest or not latest[record.key].scored:
            latest[record.key] = record
    return list(latest.values())


def prompt_of(record: Record) -> tuple[int, str]:
    """What a record's prompt is told by: its length and hash; its key where the hash is not known."""
    return record.length_tokens, record.prompt.sha256 if record.prompt else record.key


def _cell(
    place: tuple[int, float], records: list[Record], expected: int, seen: set[tuple[int, str]]
) -> CellScore:
    """One cell. seen: the prompts that cells before it asked, by `prompt_of`; grows."""
    prompts = {prompt_of(record) for record in records if record.scored}
    repeated = len(prompts & seen)
    seen |= prompts
    scores, n = [record.score for record in records if record.score is not None], len(prompts)
    failures: dict[str, int] = defaultdict(int)
    for record in records:
        if record.failure and not record.scored:
            failures[record.failure] += 1
    realised = [record.needles[0].realised for record in records if record.needles]
    score = sum(scores) / len(scores) if scores else None
    interval = None if score is None else wilson(score * n, n)
    return CellScore(
        place[0],
        place[1],
        sum(realised) / len(realised) if realised else place[1],
        score,
        n,
        interval[0] if interval else None,
        interval[1] if interval else None,
        max(expected, len(records)) - len(scores),
        dict(failures),
        repeated,
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
