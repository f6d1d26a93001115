"""What the snapshots of recovery_scores.jsonl scored, recipe by recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.stats.cube import linearise
from needlemap.stats.intervals import t_interval
from needlemap.stats.ratio import ratio_interval
from needlemap.training.scorer import LEAST_GAIN
from recovery_recipes import RECIPES, SNAPSHOTS

Array = NDArray[np.float64]
SCORES = Path(__file__).with_suffix(".jsonl")
ONE_SIDED = 0.99


@dataclass(frozen=True)
class Snapshot:
    """gain, oracle, right: (haystacks, depths); control: (haystacks, 1). counts: which items the
    oracle gains on at the recipe's last snapshot."""

    step: int
    loss: float
    gain: Array
    oracle: Array
    control: Array
    right: Array
    counts: NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """Share of the items whose value is the first choice."""
        return float(self.right.mean())

    @property
    def linear(self) -> Array | None:
        """Scores whose mean is the recovery; None where the oracle shows nothing."""
        oracle = np.where(self.counts, self.oracle, nan)
        if not excludes_zero(oracle):
            return None
        return linearise(np.where(self.counts, self.gain, nan), oracle)

    @property
    def recovery(self) -> tuple[float, float, float] | None:
        """With its 95 % interval."""
        return None if (linear := self.linear) is None else ratio_interval(linear)


def read_scores(path: Path) -> dict[str, list[Snapshot]]:
    """Every recipe's snapshots. Raises ValueError unless each recipe has them all."""
    found: dict[str, list[Snapshot]] = {}
    for recipe in RECIPES:
        rows = [row for row in map(json.loads, path.open()) if row["recipe"] == recipe.name]
        if tuple(row["step"] for row in rows) != SNAPSHOTS:
            raise ValueError(f"recipe '{recipe.name}' lacks snapshots")
        haystacks = len(rows[0]["control"])
        counts = np.array(rows[-1]["oracle"]).reshape(haystacks, -1) >= LEAST_GAIN
        found[recipe.name] = [snapshot(row, haystacks, counts) for row in rows]
    return found


def snapshot(row: Mapping[str, Any], haystacks: int, counts: NDArray[np.bool_]) -> Snapshot:
    """A line of the file."""
    gain, oracle, control, right = (
        np.array(list(map(float, row[name]))).reshape(haystacks, -1)
        for name in ("gain", "oracle", "control", "right")
    )
    return Snapshot(row["step"], row["loss"], gain, oracle, control, right, counts)


def excludes_zero(values: Array) -> bool:
    """Whether a mean of (haystacks, items) surely is above 0."""
    found = t_interval(values, 2 * ONE_SIDED - 1)
    return found is not None and found[1] > 0
