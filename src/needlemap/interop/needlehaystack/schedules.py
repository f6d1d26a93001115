"""The grids of the needlehaystack family: lengths in tokens, depths in percent, rounded as numpy rounds."""

from __future__ import annotations

from typing import Literal

import numpy as np

from needlemap.errors import SettingsError, did_you_mean
from needlemap.grid import DEPTH_SCALES, sigmoid

VARIANTS = ("seed", "main")


def lengths(min: int, max: int, intervals: int) -> list[int]:
    """Evenly spaced, rounded half to even.

    >>> lengths(5, 7, 5)
    [5, 6, 6, 6, 7]
    """
    return [round(value) for value in _spaced(min, max, intervals)]


def depths(
    min: float,
    max: float,
    intervals: int,
    interval_type: str = "linear",
    variant: Literal["seed", "main"] = "seed",
) -> list[float]:
    """'linear': whole percents, rounded half to even. 'sigmoid': 3 decimals; exactly 0 and 100 stay.

    variant 'seed': the curve rises, as in the original and prabha-git's fork. 'main': it falls, as in
    gkamradt's main branch, where a sign was lost.

    >>> depths(0, 50, 3), depths(0, 50, 3, "sigmoid"), depths(0, 50, 3, "sigmoid", "main")
    ([0, 25, 50], [0.0, 7.586, 50.0], [0.0, 92.414, 50.0])
    """
    if interval_type not in DEPTH_SCALES:
        raise SettingsError(
            f"Unknown interval type '{interval_type}'. {did_you_mean(interval_type, DEPTH_SCALES)}"
        )
    if variant not in VARIANTS:
        raise SettingsError(f"Unknown variant '{variant}'. {did_you_mean(variant, VARIANTS)}")
    linear = _spaced(min, max, intervals)
    if interval_type == "linear":
        return [round(value) for value in linear]
    curve = sigmoid if variant == "seed" else _falling
    return [curve(value) for value in linear]


def _falling(value: float) -> float:
    return value if value in (0, 100) else sigmoid(100 - value)


def _spaced(low: float, high: float, count: int) -> list[float]:
    if count < 1:
        raise SettingsError(f"intervals must be at least 1, got {count}.")
    return [float(value) for value in np.linspace(low, high, count)]
