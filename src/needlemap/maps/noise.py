"""The noise floor: how much answers to the same prompt differ (A/A), which no comparison can go below.

Seen where a run was made twice, and where one run asked a prompt more than once (`Cube.again`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from needlemap.maps.clusters import Z
from needlemap.maps.intervals import wilson


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """differing of n pairs had another score; low, high: 95 % Wilson interval of their share.

    mean_square: mean square of the change of a score.
    """

    n: int
    differing: int
    low: float
    high: float
    mean_square: float

    def smallest(self, prompts: int) -> float:
        """The least difference of two runs' means over so many prompts that is more than noise, a share."""
        return Z * sqrt(self.mean_square / prompts)


def noise_floor(pairs: Iterable[tuple[float, float]]) -> NoiseFloor | None:
    """From scores of the same prompts asked twice; None without pairs.

    The spread of a difference of zero mean is the root of its mean square (Bland and Altman 1986, Lancet
    327:307, repeatability).
    """
    apart = [second - first for first, second in pairs]
    n, differing = len(apart), sum(abs(change) > 1e-12 for change in apart)
    interval = wilson(differing, n)
    if interval is None:
        return None
    square = sum(change * change for change in apart) / n
    return NoiseFloor(n, differing, *interval, square)
