"""A map: per cell the mean score, how many trials it rests on, and its interval; and means
over the map.

Means are of everything, by length, by depth, each with an interval over haystacks. In every
mean each different prompt counts the same, once: so a mean is what its n says, right answers
over prompts, and agrees with a paired comparison. Where all cells have as many prompts, which
a finished run has unless neighbouring depths are one prompt, it equals the mean of the cells'
means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from needlemap.grid import percent
from needlemap.records.record import SKIPPED, THINKING_SPENT, WITHHELD, Record
from needlemap.stats import Array, AskedPrompt, Cell, Cube, is_ragged, make_cube
from needlemap.stats.cell_score import CellScore
from needlemap.stats.cube import linearised
from needlemap.stats.intervals import ClusterMean, assumed_effect, cluster_mean, effective_wilson
from needlemap.stats.ratio import ratio_mean
from needlemap.stats.table_schema import cell_frame, plain_frame

_MARGIN = ("score", "low", "high")
PARTS = 10  # of the haystack, where every length has depths of its own


@dataclass(frozen=True, slots=True)
class DepthScore:
    """A depth, or the depths from `depth` to `end`, and the mean of their trials at all
    lengths.

    Shares in [0, 1] as meant; end is depth for one depth alone.
    """

    depth: float
    end: float
    mean: ClusterMean


def depth_scores(cube: Cube) -> tuple[DepthScore, ...]:
    """Score by depth with clustered intervals (`intervals.py`); depths without a score are
    left out.

    A prompt that depths share counts at each of them, once: else short lengths, which share
    most and are the easiest, would count for the shallowest depths alone. Where lengths have
    depths of their own, hardly two trials have the same: there by `PARTS` equal parts of the
    haystack, each prompt counting once.
    """
    if cube.ragged:
        part = np.minimum((np.array(cube.depths) * PARTS + 1e-9).astype(int), PARTS - 1)
        rows = [
            (at / PARTS, (at + 1) / PARTS, cube.scores[:, :, part == at]) for at in range(PARTS)
        ]
    else:
        rows = [(depth, depth, cube.spread[:, :, at]) for at, depth in enumerate(cube.depths)]
    means = ((depth, end, _clustered(cube, scores)) for depth, end, scores in rows)
    return tuple(DepthScore(depth, end, mean) for depth, end, mean in means if mean is not None)


def total_score(cube: Cube) -> ClusterMean | None:
    """Score of all prompts with its clustered interval; None without a score."""
    return _clustered(cube, cube.scores)


def length_scores(cube: Cube) -> dict[int, ClusterMean]:
    """Score by length with clustered intervals; lengths without a score are left out."""
    means = (
        (length, _clustered(cube, cube.scores[:, at])) for at, length in enumerate(cube.lengths)
    )
    return {length: mean for length, mean in means if mean is not None}


def position_gap(cube: Cube) -> tuple[DepthScore, DepthScore] | None:
    """The depths with the worst and the best score; None where there are not two."""
    scores = depth_scores(cube)
    if len(scores) < 2:
        return None
    return min(scores, key=lambda row: row.mean.score), max(scores, key=lambda row: row.mean.score)


def _clustered(cube: Cube, scores: Array) -> ClusterMean | None:
    """Of scores (repeats, ...) of a cube, without an interval where scores are means
    themselves."""
    if cube.linear:
        return ratio_mean(cube.clustered(scores)) if scores.size else None
    found = cluster_mean(cube.clustered(scores)) if scores.size else None
    return found if found is None or cube.counted else replace(found, low=None, high=None)


@dataclass(frozen=True, slots=True)
class Map:
    """All cells of one run, lengths ascending, depths ascending within a length, and what they
    belong to.

    total, margins: of everything and by length (without those that have no score), each
    different prompt counting once, with intervals over haystacks (`depth_scores`). missing:
    prompts that could not be measured or were not asked yet. withheld: scored prompts whose
    answer the model refused or a content filter held back. counted: False if scores are
    means of an unknown number of answers. model, tokenizer, task as named in the run; mode:
    how prompts were ordered and shared. depthless: whether the task asks about the whole text,
    so that depths of cells mean nothing. by_depth: score by depth, as `depth_scores`.
    """

    cells: tuple[CellScore, ...]
    total: ClusterMean | None
    margins: Mapping[int, ClusterMean]
    counted: bool
    missing: int
    model: str
    tokenizer: str
    task: str
    scorer: str
    mode: str
    depthless: bool = False
    by_depth: tuple[DepthScore, ...] = ()
    withheld: int = 0

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
    def by_length(self) -> dict[int, float | None]:
        """Score per length; None where nothing was measured."""
        return {
            length: self.margins[length].score if length in self.margins else None
            for length in self.lengths
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
            [cell.score for cell in self.cells if cell.length_tokens == length]
            for length in self.lengths
        ]
        return _mean([_mean(row) for row in rows])

    def to_pandas(self) -> Any:
        """One row a cell, with the columns of the CSV. Raises NeedlemapError without
        pandas."""
        return cell_frame(self.cells)


def margin_frame(maps: Mapping[str, Map]) -> Any:
    """One row a family and length of a suite: its margin. Raises NeedlemapError when pandas is
    missing."""
    rows = [
        {"family": family, "length_tokens": length, "n": mean.n, **_percents(mean)}
        for family, map in maps.items()
        for length, mean in map.margins.items()
    ]
    frame = plain_frame(rows).reindex(
        columns=["family", "length_tokens", "score", "n", "low", "high"]
    )
    return frame.astype(dict.fromkeys(_MARGIN, "float64"))


def _percents(mean: Any) -> dict[str, float | None]:
    """A mean and its interval in percent."""
    shares = {name: getattr(mean, name) for name in _MARGIN}
    return {name: None if share is None else percent(share) for name, share in shares.items()}


def make_map(
    prompts: Sequence[AskedPrompt],
    *,
    model: str,
    tokenizer: str,
    task: str,
    scorer: str,
    mode: str,
    cube: Cube | None = None,
    depthless: bool = False,
) -> Map:
    """A map of a run's prompts. cube: of these, where it was made already. depthless: as
    Map's."""
    cells: dict[Cell, list[AskedPrompt]] = defaultdict(list)
    results = [result for prompt in prompts for result in prompt.results]
    for result in results:
        for cell in result.cells:
            cells[cell].append(result)
    missing = sum(not result.scores for result in results)
    withheld = sum(_ended_as(result, WITHHELD) for result in results if result.scores)
    cube = cube or make_cube(prompts)
    rows = tuple(_cell(cell, cells[cell], one=cube.one_haystack) for cell in sorted(cells))
    means = total_score(cube), length_scores(cube), cube.counted
    by_depth = () if depthless else depth_scores(cube)
    how = model, tokenizer, task, scorer, mode
    return Map(rows, *means, missing, *how, depthless, by_depth, withheld)


def with_skipped(map: Map) -> Map:
    """A map of a run that a limit stopped: what was not asked was skipped by it."""
    cells = [(cell, cell.missing - sum(cell.failures.values())) for cell in map.cells]
    rows = [
        replace(cell, failures={**cell.failures, SKIPPED: unasked}) if unasked > 0 else cell
        for cell, unasked in cells
    ]
    return replace(map, cells=tuple(rows))


def _cell(cell: Cell, asked: Sequence[AskedPrompt], *, one: bool) -> CellScore:
    """One cell of all prompts that stand in it. one: whether all repeats share a haystack, so
    that they are not independent."""
    scores = [score for prompt in asked if (score := prompt.score) is not None]
    records = [record for prompt in asked for record in prompt.records]
    failed = [prompt.records[-1] for prompt in asked if not prompt.scores and prompt.records]
    realised = [record.needles[0].realised for record in records if record.needles]
    n, score = len(scores), sum(scores) / len(scores) if scores else None
    means = any(record.scorer is not None and record.scorer.mean for record in records)
    effect = assumed_effect(np.array([float(n)])) if one and n else 1.0
    interval = None if score is None or means else effective_wilson(score, n, effect, 1)
    ratios = [ratio for prompt in asked if (ratio := prompt.ratio) is not None]
    if ratios and len(ratios) == n:
        mean = _ratio(ratios, one=one)
        score = mean.score
        interval = None if mean.low is None or mean.high is None else (mean.low, mean.high)
    length_tokens, depth = cell
    return CellScore(
        length_tokens=length_tokens,
        depth=depth,
        realised=sum(realised) / len(realised) if realised else depth,
        score=score,
        n=n,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        missing=len(asked) - n,
        failures=dict(Counter(record.failure for record in failed if record.failure)),
        thought=sum(_ended_as(prompt, (THINKING_SPENT,)) for prompt in asked),
        records=tuple(sorted(records, key=_repeat)),
    )


def _repeat(record: Record) -> tuple[int, str]:
    return record.repeat, record.key


def _ended_as(prompt: AskedPrompt, outcomes: Collection[str]) -> bool:
    """Whether a prompt's last record has one of these outcomes."""
    return bool(prompt.records) and prompt.records[-1].outcome in outcomes


def _ratio(ratios: Sequence[tuple[float, float]], *, one: bool) -> ClusterMean:
    """A cell of scores that are ratios. one: whether they share a haystack."""
    scores = linearised(*np.array(ratios).T).reshape((1, -1) if one else (-1, 1))
    found = ratio_mean(scores)
    assert found is not None  # there is one
    return found


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
