"""Means over a map, each with an interval over haystacks: of everything, by length, by depth.

In every mean each different prompt counts the same, once: so a mean is what its n says, right answers over
prompts, and agrees with a paired comparison. Where all cells have as many prompts, which a finished run has
unless neighbouring depths are one prompt, it equals the mean of the cells' means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from needlemap.maps.clusters import ClusterMean, cluster_mean
from needlemap.maps.cube import Array, Cube

PARTS = 10  # of the haystack, where every length has depths of its own


@dataclass(frozen=True, slots=True)
class DepthScore:
    """A depth, or the depths from `depth` to `end`, and the mean of their trials at all lengths.

    Shares in [0, 1] as meant; end is depth for one depth alone.
    """

    depth: float
    end: float
    mean: ClusterMean


def depth_scores(cube: Cube) -> tuple[DepthScore, ...]:
    """Score by depth with clustered intervals (`clusters.py`); depths without a score are left out.

    A prompt that depths share counts at each of them, once: else short lengths, which share most and are the
    easiest, would count for the shallowest depths alone. Where lengths have depths of their own, hardly two
    trials have the same: there by `PARTS` equal parts of the haystack, each prompt counting once.
    """
    if cube.ragged:
        part = np.minimum((np.array(cube.depths) * PARTS + 1e-9).astype(int), PARTS - 1)
        rows = [(at / PARTS, (at + 1) / PARTS, cube.scores[:, :, part == at]) for at in range(PARTS)]
    else:
        rows = [(depth, depth, cube.spread[:, :, at]) for at, depth in enumerate(cube.depths)]
    means = ((depth, end, _mean(cube, scores)) for depth, end, scores in rows)
    return tuple(DepthScore(depth, end, mean) for depth, end, mean in means if mean is not None)


def total_score(cube: Cube) -> ClusterMean | None:
    """Score of all prompts with its clustered interval; None without a score."""
    return _mean(cube, cube.scores)


def length_scores(cube: Cube) -> dict[int, ClusterMean]:
    """Score by length with clustered intervals; lengths without a score are left out."""
    means = ((length, _mean(cube, cube.scores[:, at])) for at, length in enumerate(cube.lengths))
    return {length: mean for length, mean in means if mean is not None}


def position_gap(cube: Cube) -> tuple[DepthScore, DepthScore] | None:
    """The depths with the worst and the best score; None where there are not two."""
    scores = depth_scores(cube)
    if len(scores) < 2:
        return None
    return min(scores, key=lambda row: row.mean.score), max(scores, key=lambda row: row.mean.score)


def _mean(cube: Cube, scores: Array) -> ClusterMean | None:
    """Of scores (repeats, ...) of a cube, without an interval where scores are means themselves."""
    found = cluster_mean(cube.clustered(scores)) if scores.size else None
    return found if found is None or cube.counted else replace(found, low=None, high=None)
