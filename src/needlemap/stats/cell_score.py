"""What the trials of one cell come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellScore:
    """One cell. depth: as meant; realised: mean of where the first needle was; both shares in
    [0, 1].

    score: mean in [0, 1], None when nothing was measured. n: different prompts scored; of
    imported results, whose prompts are not known, results. low, high: 95 % Wilson interval of
    so many; None where a result is a mean of an unknown number of answers. missing: prompts
    that could not be measured or were not asked yet. failures: how many of each kind. thought:
    of the scored prompts, those whose thinking took the whole budget, so that no answer came.
    Where sentences are longer than the steps in depth, cells share a prompt, which counts once
    in sums.
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
