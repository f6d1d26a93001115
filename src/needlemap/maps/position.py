"""Means over a map, each with an interval over haystacks: of everything, by length, by depth.

In every mean each different prompt counts the same, once: so a mean is what its n says, right answers over
prompts, and agrees with a paired comparison. Where all cells have as many prompts, which a finished run has
unless neighbouring depths are one prompt, it equals the mean of the cells' means.
"""

from __future__ import annotations

from dataclasses import dataclass

from needlemap.maps.clusters import ClusterMean, cluster_mean
from needlemap.maps.cube import Cube


@dataclass(frozen=True, slots=True)
class DepthScore:
    """One depth, a share in [0, 1] as meant, and the mean of its trials at all lengths."""

    depth: float
    mean: ClusterMean


def depth_scores(cube: Cube) -> tuple[DepthScore, ...]:
    """Score by depth with clustered intervals (`clusters.py`); depths without a score are left out.

    A prompt that depths share counts at each of them, once: else short lengths, which share most and are the
    easiest, would count for the shallowest depths alone.
    """
    means = (
        (depth, cluster_mean(cube.clustered(cube.spread[:, :, at]))) for at, depth in enumerate(cube.depths)
    )
    return tuple(DepthScore(depth, mean) for depth, mean in means if mean is not None)


def total_score(cube: Cube) -> ClusterMean | None:
    """Score of all prompts with its clustered interval; None without a score."""
    return cluster_mean(cube.clustered(cube.scores))


def length_scores(cube: Cube) -> dict[int, ClusterMean]:
    """Score by length with clustered intervals; lengths without a score are left out."""
    means = (
        (length, cluster_mean(cube.clustered(cube.scores[:, at]))) for at, length in enumerate(cube.lengths)
    )
    return {length: mean for length, mean in means if mean is not None}


def position_gap(cube: Cube) -> tuple[DepthScore, DepthScore] | None:
    """The depths with the worst and the best score; None where there are not two."""
    scores = depth_scores(cube)
    if len(scores) < 2:
        return None
    return min(scores, key=lambda row: row.mean.score), max(scores, key=lambda row: row.mean.score)
