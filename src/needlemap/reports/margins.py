"""Margins of a map: per length, the mean over depths with n and interval."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from needlemap.maps.intervals import wilson
from needlemap.maps.map import CellScore, Map


@dataclass(frozen=True, slots=True)
class Margin:
    """One length. score: mean of its cells' means in [0, 1], None if nothing was measured.

    n: different prompts scored. low, high: 95 % Wilson interval of that mean, as of n trials of equal weight.
    """

    length_tokens: int
    score: float | None
    n: int
    low: float | None
    high: float | None
    missing: int
    failures: dict[str, int]


def length_margins(map: Map) -> tuple[Margin, ...]:
    """One margin per length, ascending."""
    by_length: dict[int, list[CellScore]] = {length: [] for length in map.lengths}
    for cell in map.cells:
        by_length[cell.length_tokens].append(cell)
    return tuple(_margin(length, cells) for length, cells in by_length.items())


def _margin(length_tokens: int, cells: list[CellScore]) -> Margin:
    means = [cell.score for cell in cells if cell.score is not None]
    score = sum(means) / len(means) if means else None
    n = sum(cell.n - cell.repeated for cell in cells)
    low, high = (None, None) if score is None else wilson(score * n, n) or (None, None)
    failures: Counter[str] = Counter()
    for cell in cells:
        failures.update(cell.failures)
    missing = sum(cell.missing for cell in cells)
    return Margin(length_tokens, score, n, low, high, missing, dict(failures))
