"""The noise floor: how much two runs of identical settings differ (A/A), which no comparison can go below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from needlemap.maps.clusters import Z
from needlemap.maps.cube import Cube
from needlemap.maps.intervals import wilson


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """differing of n pairs had another score; low, high: 95 % Wilson interval of their share.

    mean_change: mean absolute change of a score. smallest: the least difference of two such runs' means
    that is more than noise, 1.96 sqrt(sum d^2) / n; all shares in [0, 1].
    """

    n: int
    differing: int
    low: float
    high: float
    mean_change: float
    smallest: float


def noise_floor(pairs: Iterable[tuple[float, float]]) -> NoiseFloor | None:
    """From scores of the same trials asked twice; None without pairs.

    The spread of a difference of zero mean is the root of its mean square (Bland and Altman 1986, Lancet
    327:307, repeatability).
    """
    apart = [second - first for first, second in pairs]
    n, differing = len(apart), sum(abs(change) > 1e-12 for change in apart)
    interval = wilson(differing, n)
    if interval is None:
        return None
    squares = sum(change * change for change in apart)
    return NoiseFloor(n, differing, *interval, sum(map(abs, apart)) / n, Z * sqrt(squares) / n)


def repeat_pairs(cube: Cube) -> list[tuple[float, float]]:
    """The first two scores of each cell that has two: A/A pairs where repeats asked the very same prompt.

    So in results of tools that ask one prompt a cell again; our own repeats draw other haystacks.
    """
    columns = cube.scores.reshape(len(cube.repeats), -1).T
    known = (column[column == column].tolist() for column in columns)
    return [(scores[0], scores[1]) for scores in known if len(scores) > 1]
