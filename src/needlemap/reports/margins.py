"""Margins of a map as they are shown: per length the score with its interval, and what is missing there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from needlemap.maps.map import CellScore, Map


@dataclass(frozen=True, slots=True)
class Margin:
    """One length. score: mean of its prompts in [0, 1], None if nothing was measured; n: how many prompts.

    low, high: 95 % interval over haystacks (`maps/position.py`). missing, failures: of its trials.
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
    return tuple(_margin(map, length, cells) for length, cells in by_length.items())


def _margin(map: Map, length_tokens: int, cells: list[CellScore]) -> Margin:
    mean = map.margins.get(length_tokens)
    score, n, low, high = (mean.score, mean.n, mean.low, mean.high) if mean else (None, 0, None, None)
    failures: Counter[str] = Counter()
    for cell in cells:
        failures.update(cell.failures)
    missing = sum(cell.missing for cell in cells)
    return Margin(length_tokens, score, n, low, high, missing, dict(failures))
