"""A map: per cell the mean score, how many trials it rests on, and its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from needlemap.maps.answers import latest_records, prompt_of
from needlemap.maps.clusters import ClusterMean
from needlemap.maps.cube import Cube, is_ragged, known_scores, make_cube
from needlemap.maps.intervals import wilson
from needlemap.maps.position import length_scores, total_score
from needlemap.runs.record import SKIPPED, Record


@dataclass(frozen=True, slots=True)
class CellScore:
    """One cell. depth: as meant; realised: mean of where the first needle was; both shares in [0, 1].

    score: mean in [0, 1], None when nothing was measured. n: different prompts scored; of imported results,
    whose prompts are not known, results. low, high: 95 % Wilson interval of so many; None where a result is a
    mean of nobody knows how many answers.
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

    total, margins: of everything and by length (without those that have no score), each different prompt
    counting once, with intervals over haystacks (`position.py`). counted: False where scores are means of
    nobody knows how many answers. model, tokenizer, task as named in the run; mode: how prompts were ordered
    and shared. depthless: whether the task asks about the whole text, so that depths of cells mean nothing.
    """

    cells: tuple[CellScore, ...]
    total: ClusterMean | None
    margins: Mapping[int, ClusterMean]
    counted: bool
    model: str
    tokenizer: str
    task: str
    scorer: str
    mode: str
    depthless: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths in tokens, ascending."""
        return tuple(sorted({cell.length_tokens for cell in self.cells}))

    @property
    def depths(self) -> tuple[float, ...]:
        """Meant depths, ascending shares."""
        return tuple(sorted({cell.depth for cell in self.cells}))

    @property
    def ragged(self) -> bool:
        """Whether lengths have depths of their own."""
        return is_ragged(len(self.cells), len(self.lengths), len(self.depths))

    @property
    def n(self) -> int:
        """Different prompts scored."""
        return self.total.n if self.total else 0

    @property
    def missing(self) -> int:
        """Trials that could not be measured or were not asked yet."""
        return sum(cell.missing for cell in self.cells)

    @property
    def by_length(self) -> dict[int, float | None]:
        """Score per length; None where nothing was measured."""
        return {
            length: self.margins[length].score if length in self.margins else None for length in self.lengths
        }

    @property
    def overall(self) -> float | None:
        """Score of all prompts; None where nothing was measured."""
        return self.total.score if self.total else None

    @property
    def mean_of_means(self) -> float | None:
        """Mean over lengths of the mean over depths of cells, however many trials each has.

        The number that OpenCompass's plots print, and that published maps are quoted with.
        """
        rows = [
            [cell.score for cell in self.cells if cell.length_tokens == length] for length in self.lengths
        ]
        return _mean([_mean(row) for row in rows])

    def to_pandas(self) -> Any:
        """One row a cell: length, depth, score, n, low, high, realised, missing. Raises NeedlemapError."""
        from needlemap.maps.columns import cell_frame

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
    cube: Cube | None = None,
    depthless: bool = False,
) -> Map:
    """A map from records. expected: trials per (length_tokens, depth) that the run was to make.

    Of several records of one trial (a failure, then a score) the last scored one counts, else the last.
    cube: of these records, where it was made already. depthless: as Map's.
    """
    found = latest_records(records)
    cells: dict[tuple[int, float], list[Record]] = defaultdict(list)
    for record in found:
        cells[record.length_tokens, record.depth].append(record)
    seen: set[Hashable] = set()
    places = sorted({*expected, *cells})
    rows = tuple(_cell(place, cells.get(place, []), expected.get(place, 0), seen) for place in places)
    cube = cube or make_cube(found, ())
    means = total_score(cube), length_scores(cube), cube.counted
    return Map(rows, *means, model, tokenizer, task, scorer, mode, depthless)


def with_skipped(map: Map) -> Map:
    """A map of a run that a limit stopped: what was not asked was skipped by it."""
    cells = [(cell, cell.missing - sum(cell.failures.values())) for cell in map.cells]
    rows = [
        replace(cell, failures={**cell.failures, SKIPPED: unasked}) if unasked > 0 else cell
        for cell, unasked in cells
    ]
    return replace(map, cells=tuple(rows))


def _cell(place: tuple[int, float], records: list[Record], expected: int, seen: set[Hashable]) -> CellScore:
    """One cell. seen: the prompts that cells before it asked, by `prompt_of`; grows."""
    prompts = {prompt_of(record) for record in records if record.scored}
    repeated = len(prompts & seen)
    seen |= prompts
    scores = known_scores(records)
    n = len(scores) if all(record.prompt is None for record in records) else len(prompts)
    failures: dict[str, int] = defaultdict(int)
    for record in records:
        if record.failure and not record.scored:
            failures[record.failure] += 1
    realised = [record.needles[0].realised for record in records if record.needles]
    score = sum(scores) / len(scores) if scores else None
    means = any(record.scorer is not None and record.scorer.mean for record in records)
    interval = None if score is None or means else wilson(score * n, n)
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
