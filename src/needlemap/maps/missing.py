"""What missing trials could do to a score: bounds, when all of them were wrong, and when all were right."""

from __future__ import annotations

import numpy as np

from needlemap.maps.cube import Array


def missing_bounds(total: float, n: int, missing: int) -> tuple[float, float] | None:
    """Lowest and highest mean of n scores that sum to total, and of so many unknown ones in [0, 1].

    The worst-case bounds of Manski 1990, American Economic Review 80:319. None when there is no trial at all.

    >>> missing_bounds(9.0, 10, 2)
    (0.75, 0.9166666666666666)
    """
    whole = n + missing
    return (total / whole, (total + missing) / whole) if whole else None


def difference_bounds(first: Array, second: Array) -> tuple[float, float] | None:
    """Lowest and highest mean of second - first, NaN being any score in [0, 1]; None without trials."""
    if not first.size:
        return None
    lowest = np.nan_to_num(second, nan=0.0) - np.nan_to_num(first, nan=1.0)
    highest = np.nan_to_num(second, nan=1.0) - np.nan_to_num(first, nan=0.0)
    return float(lowest.mean()), float(highest.mean())
