"""Hold a run's scores as one array: repeat by length by depth.

The bootstraps and clustered errors work on it. Of each trial the last answer that was scored
counts, and answers to one prompt count together. Trials that share a haystack are a cluster.
Every repeat has a haystack of its own, unless documents are taken as they are listed; results of
other tools, whose prompts are not known, count as of one haystack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from needlemap.stats.asked import AskedPrompt, Place

Array = NDArray[np.float64]
Pair = tuple[float, float]
# Lengths have depths of their own where cells are a smaller share of lengths x depths.
RAGGED_BELOW = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Cube:
    """The scores of a run.

    Attributes:
        repeats: their numbers, ascending.
        lengths: in tokens, ascending.
        depths: shares, ascending.
        scores: (repeats, lengths, depths) in [0, 1], the mean of a prompt's answers; NaN where
            not measured.
        spread: the same shape, with the score of a prompt that several depths or repeats share
            at each of their places. Statements on one depth or cell take this, as no prompt
            counts twice there that matters.
        asked: the same shape, whether a prompt was to be asked.
        one_haystack: whether all repeats have the same haystack.
        again: the first two scores of each prompt that was asked more than once.
        again_at: the lengths of these prompts.
        short: lengths with a prompt that is shorter, since the haystack ended.
        counted: False where a score is a mean of an unknown number of answers.
        linear: whether scores are linearised (`ratio.py`), each length by itself, so that a
            length's mean is its ratio of sums; they may lie beyond [0, 1].
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
        """Return a mask of the places that have a score, in the shape of scores."""
        return ~np.isnan(self.scores)

    @property
    def n(self) -> int:
        """Return the number of prompts that were scored."""
        return int(self.known.sum())

    @property
    def missing(self) -> int:
        """Return the number of prompts that were to be asked and have no score."""
        return int((self.asked & ~self.known).sum())

    @property
    def ragged(self) -> bool:
        """Return True if lengths have depths of their own (`is_ragged`)."""
        cells = int((self.asked | ~np.isnan(self.spread)).any(axis=0).sum())
        return is_ragged(cells, len(self.lengths), len(self.depths))

    def filled(self, score: float) -> Cube:
        """Return the same cube with one score for every prompt that has none."""
        is_missing = self.asked & ~self.known
        return replace(
            self,
            scores=np.where(is_missing, score, self.scores),
            spread=np.where(is_missing, score, self.spread),
        )

    def without(self, lengths: Set[int]) -> Cube:
        """Return the same cube without some lengths."""
        indices = [index for index, length in enumerate(self.lengths) if length not in lengths]
        return replace(
            self,
            lengths=tuple(self.lengths[index] for index in indices),
            scores=self.scores[:, indices],
            spread=self.spread[:, indices],
            asked=self.asked[:, indices],
            short=self.short - lengths,
        )

    def clustered(self, scores: Array) -> Array:
        """Return scores of all repeats, (repeats, ...), as (haystacks, trials)."""
        return scores.reshape(1 if self.one_haystack else max(1, len(self.repeats)), -1)


def is_ragged(cells: int, lengths: int, depths: int) -> bool:
    """Return True if most of lengths x depths has no cell.

    That is so if lengths have depths of their own, as in some imported maps.
    """
    return cells < RAGGED_BELOW * lengths * depths


def make_cube(
    prompts: Sequence[AskedPrompt], *, one_haystack: bool = False, at: Iterable[Place] = ()
) -> Cube:
    """Make a cube of a run's prompts.

    A prompt that several depths or repeats share has the place of the first, so that it counts
    once, with the mean of its answers. `at` names places that the cube has, whatever was
    measured.
    """
    scores: dict[Place, float] = {}
    copies: dict[Place, float] = {}
    ratios: list[tuple[AskedPrompt, Pair]] = []
    for prompt in prompts:
        score = prompt.score
        if score is None:
            continue
        scores[prompt.places[0]] = score
        if len(prompt.places) > 1:
            copies.update(dict.fromkeys(prompt.cells.values(), score))
        ratio = prompt.ratio
        if ratio is not None:
            ratios.append((prompt, ratio))

    records = [record for prompt in prompts for record in prompt.records]
    imported = bool(records) and all(record.prompt is None for record in records)
    repeated_prompts = [
        prompt for prompt in prompts if len(prompt.records) > 1 and len(prompt.scores) > 1
    ]
    cube = replace(
        cube_of(scores, {prompt.places[0] for prompt in prompts}, copies, at),
        one_haystack=one_haystack or imported,
        again=tuple((prompt.scores[0], prompt.scores[1]) for prompt in repeated_prompts),
        again_at=tuple(prompt.places[0][1] for prompt in repeated_prompts),
        short=frozenset(
            record.length_tokens for record in records if record.prompt and record.prompt.is_short
        ),
        counted=not any(record.scorer is not None and record.scorer.mean for record in records),
    )
    if ratios and len(ratios) == len(scores):
        return _linearise(cube, ratios)
    return cube


def linearise(gains: Array, most: Array) -> Array:
    """Return scores whose mean is sum(gains) / sum(most); see `ratio.py`.

    Both arrays have one shape, with NaN where nothing was measured.

    >>> linearise(np.array([1.0, 3.0]), np.array([4.0, 4.0])).tolist()
    [0.25, 0.75]
    """
    total = np.nansum(most)
    if not total > 0:
        return np.full(gains.shape, np.nan)
    ratio = np.nansum(gains) / total
    n = (~np.isnan(gains + most)).sum()
    return np.asarray(ratio + (gains - ratio * most) * n / total)


def _linearise(cube: Cube, ratios: Sequence[tuple[AskedPrompt, Pair]]) -> Cube:
    """Linearise a cube of scores that are ratios, length by length."""
    places = {place for prompt, _ in ratios for place in (prompt.places[0], *prompt.cells.values())}
    slots = _slots(places, cube.repeats, cube.lengths, cube.depths)
    gains = np.full(cube.scores.shape, np.nan)
    most = np.full(cube.scores.shape, np.nan)
    for prompt, ratio in ratios:
        slot = slots[prompt.places[0]]
        gains[slot], most[slot] = ratio

    scores = np.full(cube.scores.shape, np.nan)
    for index in range(len(cube.lengths)):
        scores[:, index] = linearise(gains[:, index], most[:, index])
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
    """Make a cube of scores by place, and of all places that were to be asked.

    `copies` are scores at further places of prompts; `at` is that of `make_cube`.
    """
    spread_scores = {**(copies or {}), **scores}
    places = {*asked, *spread_scores, *at}
    repeats = tuple(sorted({place[0] for place in places}))
    lengths = tuple(sorted({place[1] for place in places}))
    depths = tuple(sorted({place[2] for place in places}))
    shape = len(repeats), len(lengths), len(depths)
    cube = Cube(
        repeats=repeats,
        lengths=lengths,
        depths=depths,
        scores=np.full(shape, np.nan),
        spread=np.full(shape, np.nan),
        asked=np.zeros(shape, dtype=bool),
    )
    for place, slot in _slots(places, repeats, lengths, depths).items():
        cube.asked[slot] = place in asked or place in scores
        cube.scores[slot] = scores.get(place, np.nan)
        cube.spread[slot] = spread_scores.get(place, np.nan)
    return cube


def _slots(
    places: Iterable[Place], repeats: Iterable[int], lengths: Iterable[int], depths: Iterable[float]
) -> dict[Place, tuple[int, int, int]]:
    """Return the index of each place in a cube with these axes."""
    rows = {repeat: index for index, repeat in enumerate(repeats)}
    columns = {length: index for index, length in enumerate(lengths)}
    layers = {depth: index for index, depth in enumerate(depths)}
    return {place: (rows[place[0]], columns[place[1]], layers[place[2]]) for place in places}
