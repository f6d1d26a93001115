"""Position bias: the score by depth, over all lengths."""

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
    """Score by depth with clustered intervals (`clusters.py`); depths without a score are left out."""
    means = ((depth, cluster_mean(cube.scores[:, :, at])) for at, depth in enumerate(cube.depths))
    return tuple(DepthScore(depth, mean) for depth, mean in means if mean is not None)


def length_scores(cube: Cube) -> dict[int, ClusterMean]:
    """Score by length with clustered intervals; lengths without a score are left out."""
    means = ((length, cluster_mean(cube.scores[:, at])) for at, length in enumerate(cube.lengths))
    return {length: mean for length, mean in means if mean is not None}


def position_gap(cube: Cube) -> tuple[DepthScore, DepthScore] | None:
    """The depths with the worst and the best score; None where there are not two."""
    scores = depth_scores(cube)
    if len(scores) < 2:
        return None
    return min(scores, key=lambda row: row.mean.score), max(scores, key=lambda row: row.mean.score)
