"""Make the map of a run: the mean score of each cell, and means over the map.

Each comes with its interval, and how many trials it rests on. Means are of everything, by length,
by depth, each with an interval over haystacks. In every mean each different prompt counts the
same, once: so a mean is what its n says, right answers over prompts, and agrees with a paired
comparison. Where all cells have as many prompts, which a finished run has unless neighbouring
depths are one prompt, it equals the mean of the cells' means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from needlemap.grid import percent
from needlemap.records.record import SKIPPED, THINKING_SPENT, WITHHELD
from needlemap.stats import Array, AskedPrompt, Cell, Cube, is_ragged, make_cube
from needlemap.stats.cell_score import CellScore
from needlemap.stats.cube import linearise
from needlemap.stats.intervals import ClusterMean, assumed_effect, cluster_mean, effective_wilson
from needlemap.stats.ratio import ratio_mean
from needlemap.stats.table_schema import cell_frame, plain_frame

_MARGIN = ("score", "low", "high")
# Equal parts of the haystack by which depths are told where every length has its own.
PARTS = 10


@dataclass(frozen=True, slots=True)
class DepthScore:
    """The score of a depth, or of the depths from `depth` to `end`, at all lengths.

    Attributes:
        depth: as meant, a share in [0, 1].
        end: the same; equal to depth for one depth alone.
        mean: of their trials.
    """

    depth: float
    end: float
    mean: ClusterMean


def depth_scores(cube: Cube) -> tuple[DepthScore, ...]:
    """Return the score by depth with clustered intervals; depths without a score are left out.

    A prompt that depths share counts at each of them, once: else short lengths, which share
    most and are the easiest, would count for the shallowest depths alone. Where lengths have
    depths of their own, hardly two trials have the same: there by `PARTS` equal parts of the
    haystack, each prompt counting once.
    """
    if cube.ragged:
        parts = np.minimum((np.array(cube.depths) * PARTS + 1e-9).astype(int), PARTS - 1)
        groups = [
            (part / PARTS, (part + 1) / PARTS, cube.scores[:, :, parts == part])
            for part in range(PARTS)
        ]
    else:
        groups = [
            (depth, depth, cube.spread[:, :, index]) for index, depth in enumerate(cube.depths)
        ]
    scores = []
    for depth, end, values in groups:
        mean = _cluster_mean(cube, values)
        if mean is not None:
            scores.append(DepthScore(depth, end, mean))
    return tuple(scores)


def total_score(cube: Cube) -> ClusterMean | None:
    """Return the score of all prompts with its interval, or None if nothing was scored."""
    return _cluster_mean(cube, cube.scores)


def length_scores(cube: Cube) -> dict[int, ClusterMean]:
    """Return the scores by length with their intervals, without lengths that have no score."""
    scores = {}
    for index, length in enumerate(cube.lengths):
        mean = _cluster_mean(cube, cube.scores[:, index])
        if mean is not None:
            scores[length] = mean
    return scores


def position_gap(cube: Cube) -> tuple[DepthScore, DepthScore] | None:
    """Return the depths with the lowest and the highest score, or None if fewer than two have."""
    scores = depth_scores(cube)
    if len(scores) < 2:
        return None
    return min(scores, key=lambda row: row.mean.score), max(scores, key=lambda row: row.mean.score)


def _cluster_mean(cube: Cube, scores: Array) -> ClusterMean | None:
    """Return the mean of scores (repeats, ...) of a cube, or None if there is no score.

    If scores are means themselves, it has no interval.
    """
    if not scores.size:
        return None
    if cube.linear:
        return ratio_mean(cube.clustered(scores))
    mean = cluster_mean(cube.clustered(scores))
    if mean is None or cube.counted:
        return mean
    return replace(mean, low=None, high=None)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The prompts of a length without a score or an answer; one that cells share counts once.

    Attributes:
        missing: Prompts that could not be measured or were not sent yet.
        failures: How many of each kind.
        thought: Scored prompts whose thinking took the whole budget, so that no answer came.
    """

    missing: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    thought: int = 0


@dataclass(frozen=True, slots=True)
class Map:
    """The scores of one run, and what they belong to.

    Attributes:
        cells: lengths ascending, depths ascending within a length.
        total: the mean of everything, each different prompt counting once, with an interval
            over haystacks; None without a score.
        margins: the same by length, without lengths that have no score.
        counted: False if scores are means of an unknown number of answers.
        missing: prompts that could not be measured or were not asked yet.
        model, tokenizer, task, scorer: as named in the run.
        mode: how prompts were ordered and shared.
        depthless: whether the task asks about the whole text, so that depths of cells mean
            nothing.
        by_depth: the score by depth (`depth_scores`).
        withheld: scored prompts whose answer the model refused or a content filter held back.
        failures: how many of the missing prompts failed, by kind. A prompt that several cells share
            counts once, other than in their own failures.
        unanswered: what has no score or answer, by length.
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
    failures: Mapping[str, int] = field(default_factory=dict)
    unanswered: Mapping[int, Unanswered] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return lengths in tokens, ascending."""
        return tuple(sorted({cell.length_tokens for cell in self.cells}))

    @property
    def depths(self) -> tuple[float, ...]:
        """Return meant depths, ascending shares."""
        return tuple(sorted({cell.depth for cell in self.cells}))

    @property
    def ragged(self) -> bool:
        """Return True if lengths have depths of their own."""
        return is_ragged(len(self.cells), len(self.lengths), len(self.depths))

    @property
    def n(self) -> int:
        """Return the number of different prompts that were scored."""
        return self.total.n if self.total else 0

    @property
    def by_length(self) -> dict[int, float | None]:
        """Return the score by length, which is None if nothing was measured."""
        return {
            length: self.margins[length].score if length in self.margins else None
            for length in self.lengths
        }

    @property
    def overall(self) -> float | None:
        """Return the score of all prompts, or None if nothing was measured."""
        return self.total.score if self.total else None

    @property
    def mean_of_means(self) -> float | None:
        """Return the mean over lengths of the mean over depths, however many trials cells have.

        It is the number that OpenCompass's plots print, and that published maps are quoted with.
        """
        rows = [
            [cell.score for cell in self.cells if cell.length_tokens == length]
            for length in self.lengths
        ]
        return _mean([_mean(row) for row in rows])

    def to_pandas(self) -> Any:
        """Return a frame with a row for each cell, and the columns of the CSV.

        If pandas is not installed, NeedlemapError is raised.
        """
        return cell_frame(self.cells)


def margin_frame(maps: Mapping[str, Map]) -> Any:
    """Return a frame with a row for each family and length of a suite.

    If pandas is not installed, NeedlemapError is raised.
    """
    rows = [
        {"family": family, "length_tokens": length, "n": mean.n, **_percents(mean)}
        for family, score_map in maps.items()
        for length, mean in score_map.margins.items()
    ]
    frame = plain_frame(rows).reindex(
        columns=["family", "length_tokens", "score", "n", "low", "high"]
    )
    return frame.astype(dict.fromkeys(_MARGIN, "float64"))


def _percents(mean: Any) -> dict[str, float | None]:
    """Return a mean and its interval in percent."""
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
    """Make a map of a run's prompts. cube: of these prompts, if it was made already."""
    cells: dict[Cell, list[AskedPrompt]] = defaultdict(list)
    results = [result for prompt in prompts for result in prompt.results]
    for result in results:
        for cell in result.cells:
            cells[cell].append(result)
    cube = cube or make_cube(prompts)
    return Map(
        cells=tuple(
            _cell(cell, cells[cell], one_haystack=cube.one_haystack) for cell in sorted(cells)
        ),
        total=total_score(cube),
        margins=length_scores(cube),
        counted=cube.counted,
        missing=sum(not result.scores for result in results),
        model=model,
        tokenizer=tokenizer,
        task=task,
        scorer=scorer,
        mode=mode,
        depthless=depthless,
        by_depth=() if depthless else depth_scores(cube),
        withheld=sum(result.outcome in WITHHELD for result in results if result.scores),
        failures=_failures(results),
        unanswered=_unanswered(results),
    )


def with_skipped(score_map: Map) -> Map:
    """Return the map of a run that a limit stopped. Trials that were not sent are skipped."""
    cells = [
        replace(cell, failures=_add_skipped(cell.failures, cell.missing))
        for cell in score_map.cells
    ]
    unanswered = {
        length: replace(row, failures=_add_skipped(row.failures, row.missing))
        for length, row in score_map.unanswered.items()
    }
    return replace(
        score_map,
        cells=tuple(cells),
        failures=_add_skipped(score_map.failures, score_map.missing),
        unanswered=unanswered,
    )


def _add_skipped(failures: Mapping[str, int], missing: int) -> Mapping[str, int]:
    """Return failures by kind. Missing trials that did not fail are added as skipped."""
    unsent = missing - sum(failures.values())
    return {**failures, SKIPPED: unsent} if unsent > 0 else failures


def _failures(prompts: Iterable[AskedPrompt]) -> dict[str, int]:
    """Return the number of prompts without a score that failed, by kind."""
    last_records = [
        prompt.records[-1] for prompt in prompts if not prompt.scores and prompt.records
    ]
    return dict(Counter(record.failure for record in last_records if record.failure))


def _unanswered(prompts: Iterable[AskedPrompt]) -> dict[int, Unanswered]:
    """Return what has no score or answer, by length, each prompt counting once at a length."""
    prompts_by_length = defaultdict[int, list[AskedPrompt]](list)
    for prompt in prompts:
        for length in {length for length, _ in prompt.cells}:
            prompts_by_length[length].append(prompt)
    return {
        length: Unanswered(
            missing=sum(not prompt.scores for prompt in prompts),
            failures=_failures(prompts),
            thought=_thought_count(prompts),
        )
        for length, prompts in prompts_by_length.items()
    }


def _thought_count(prompts: Iterable[AskedPrompt]) -> int:
    return sum(prompt.outcome == THINKING_SPENT for prompt in prompts)


def _cell(cell: Cell, prompts: Sequence[AskedPrompt], *, one_haystack: bool) -> CellScore:
    """Return the score of a cell over all its prompts.

    If repeats share one haystack, they do not count as independent.
    """
    scores = [score for prompt in prompts if (score := prompt.score) is not None]
    ratios = [ratio for prompt in prompts if (ratio := prompt.ratio) is not None]
    records = [record for prompt in prompts for record in prompt.records]
    realised_depths = [record.needles[0].realised for record in records if record.needles]
    is_counted = not any(record.scorer is not None and record.scorer.mean for record in records)
    n = len(scores)

    score = low = high = None
    if ratios and len(ratios) == n:
        mean = _ratio(ratios, one_haystack=one_haystack)
        score = mean.score
        low, high = mean.low, mean.high
    elif scores:
        score = sum(scores) / n
        if is_counted:
            effect = assumed_effect(np.array([float(n)])) if one_haystack else 1.0
            low, high = effective_wilson(score, n, effect, 1)

    length_tokens, depth = cell
    return CellScore(
        length_tokens=length_tokens,
        depth=depth,
        realised=sum(realised_depths) / len(realised_depths) if realised_depths else depth,
        score=score,
        n=n,
        low=low,
        high=high,
        missing=len(prompts) - n,
        failures=_failures(prompts),
        thought=_thought_count(prompts),
        records=tuple(sorted(records, key=lambda record: (record.repeat, record.key))),
    )


def _ratio(ratios: Sequence[tuple[float, float]], *, one_haystack: bool) -> ClusterMean:
    """Return the mean of a cell's scores that are ratios. one_haystack: as in the cube."""
    gains, most = np.array(ratios).T
    scores = linearise(gains, most)
    mean = ratio_mean(scores.reshape((1, -1) if one_haystack else (-1, 1)))
    # There is a score.
    assert mean is not None
    return mean


def _mean(values: list[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None
