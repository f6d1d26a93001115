"""A run's scores as one array: repeat by length by depth. The bootstraps and clustered errors
work on it.

Of each trial the last answer that was scored counts, and answers to one prompt count together.
Trials that share a haystack are a cluster. Every repeat has a haystack of its own, unless
documents are taken as they are listed; results of other tools, whose prompts are not known,
count as of one haystack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from needlemap.stats.asked import AskedPrompt, Place

if TYPE_CHECKING:
    pass


Array = NDArray[np.float64]
RAGGED_BELOW = 0.5  # share of lengths x depths that are cells
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Cube:
    """scores: (repeats, lengths, depths) in [0, 1], NaN where not measured; the mean of a
    prompt's answers.

    spread: same shape, where a prompt that several depths or repeats share has its score at
    each of their places: what is said of one depth or cell is taken of it, as there no prompt
    counts twice that matters. asked: same shape, whether it was to be asked. lengths, depths
    and repeats' numbers ascend. one_haystack: whether all repeats have the same. again: the
    first two scores of each prompt that was asked more than once; again_at: their lengths.
    short: lengths with a prompt that is shorter, since the haystack ended. counted: False
    where a score is a mean of an unknown number of answers. linear: whether scores are
    linearised (`ratio.py`), each length by itself, so that a length's mean is its ratio of
    sums; they may lie beyond [0, 1].
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
    linear: bool = False

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
    """Whether lengths have depths of their own, as imported maps may, so that lengths x depths
    is mostly holes."""
    return cells < RAGGED_BELOW * lengths * depths


def make_cube(
    prompts: Sequence[AskedPrompt], *, one_haystack: bool = False, at: Iterable[Place] = ()
) -> Cube:
    """From a run's prompts. One that several depths or repeats share has the place of the
    first, so that it counts once, with the mean of its answers. at: places that it has,
    whatever was measured."""
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
    ratios = [(prompt, prompt.ratio) for prompt, _ in scored]
    if ratios and all(ratio is not None for _, ratio in ratios):
        made = _linear(made, [(prompt, ratio) for prompt, ratio in ratios if ratio])
    return replace(made, again=again, again_at=again_at)


def linearised(gains: Array, most: Array) -> Array:
    """Scores (see `ratio.py`) whose mean is sum(gains) / sum(most), of two arrays of one shape
    with NaN where nothing was measured.

    >>> linearised(np.array([1.0, 3.0]), np.array([4.0, 4.0])).tolist()
    [0.25, 0.75]
    """
    total = np.nansum(most)
    if not total > 0:
        return np.full(gains.shape, np.nan)
    ratio = np.nansum(gains) / total
    n = (~np.isnan(gains + most)).sum()
    return np.asarray(ratio + (gains - ratio * most) * n / total)


def _linear(cube: Cube, ratios: Sequence[tuple[AskedPrompt, Pair]]) -> Cube:
    """A cube of scores that are ratios, linearised length by length."""
    axes = cube.repeats, cube.lengths, cube.depths
    row, column, layer = ({value: at for at, value in enumerate(axis)} for axis in axes)
    gains, most = np.full(cube.scores.shape, np.nan), np.full(cube.scores.shape, np.nan)
    slots = dict[Place, tuple[int, int, int]]()
    for prompt, _ in ratios:
        for place in (prompt.places[0], *prompt.cells.values()):
            slots[place] = row[place[0]], column[place[1]], layer[place[2]]
    for prompt, ratio in ratios:
        gains[slots[prompt.places[0]]], most[slots[prompt.places[0]]] = ratio
    scores = np.full(cube.scores.shape, np.nan)
    for at in range(len(cube.lengths)):
        scores[:, at] = linearised(gains[:, at], most[:, at])
    spread = scores.copy()
    for prompt, _ in ratios:
        for place in prompt.cells.values():
            spread[slots[place]] = scores[slots[prompt.places[0]]]
    return replace(cube, scores=scores, spread=spread, linear=True)


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
