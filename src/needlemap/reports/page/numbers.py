"""Numbers for the page: as few digits as are worth their bytes."""

from __future__ import annotations

from collections.abc import Iterable


def share(value: float | None, digits: int = 6) -> float | None:
    """A share, or another small number, to so many decimals; None stays None."""
    return None if value is None else round(value, digits)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is known, to one decimal; None when nothing is."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def total(values: Iterable[float | None]) -> float | None:
    """Sum of what is known, to six decimals; None when nothing is."""
    known = [value for value in values if value is not None]
    return round(sum(known), 6) if known else None
