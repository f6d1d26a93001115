"""OpenCompass' depth lists, in percent. Both versions, which differ only in the last value of some lists."""

from __future__ import annotations

from needlemap.errors import SettingsError, did_you_mean
from needlemap.grid import DEPTH_SCALES, sigmoid, spaced


def depth_percents(intervals: int, interval_type: str = "linear") -> list[float]:
    """As the dynamic data sets make them: `0 + step * i`, so that some lists end just below 100.

    'sigmoid' sends that list through a logistic curve, ends included, rounded to 3 decimals.

    >>> depth_percents(3), depth_percents(98)[-1], depth_percents(3, "sigmoid")
    ([0.0, 50.0, 100.0], 99.99999999999999, [0.669, 50.0, 99.331])
    """
    _check(intervals, interval_type)
    step = 100 / (intervals - 1) if intervals > 1 else 0.0
    return _curved([step * place for place in range(intervals)], interval_type)


def script_depth_percents(intervals: int, interval_type: str = "linear") -> list[float]:
    """As the first version's script makes them: the last value of a linear list is exactly 100.

    >>> script_depth_percents(98)[-1]
    100.0
    """
    _check(intervals, interval_type)
    return _curved(spaced(0, 100, intervals), interval_type)


def _curved(linear: list[float], interval_type: str) -> list[float]:
    return [sigmoid(value, ends="squash") for value in linear] if interval_type == "sigmoid" else linear


def _check(intervals: int, interval_type: str) -> None:
    if intervals < 1:
        raise SettingsError(f"intervals must be at least 1, got {intervals}.")
    if interval_type not in DEPTH_SCALES:
        raise SettingsError(
            f"Unknown interval type '{interval_type}'. {did_you_mean(interval_type, DEPTH_SCALES)}"
        )
