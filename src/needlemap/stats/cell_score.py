"""What the trials of one cell come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from needlemap.records.record import Record


@dataclass(frozen=True, slots=True)
class CellScore:
    """One cell of a map.

    Cells share a prompt if sentences are longer than the steps in depth. It counts once in sums.

    Attributes:
        length_tokens: The length of its prompts.
        depth: The depth that was asked for, as a share in [0, 1].
        realised: The mean depth at which the first needle really was, as a share.
        score: The mean score in [0, 1]; None if nothing was measured.
        n: Different prompts scored. Of imported results, whose prompts are not known, results.
        low, high: The 95 % Wilson interval; None if a result is a mean of an unknown number of
            answers.
        missing: Prompts that could not be measured or were not sent yet.
        failures: How many of each kind.
        thought: Scored prompts whose thinking took the whole budget, so that no answer came.
        records: The records of its trials, by repeat.
    """

    length_tokens: int
    depth: float
    realised: float
    score: float | None
    n: int
    low: float | None
    high: float | None
    missing: int
    failures: Mapping[str, int]
    thought: int = 0
    records: tuple[Record, ...] = field(default=(), repr=False, compare=False)
