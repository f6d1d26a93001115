"""What `run --seek 85` says of models with a hole, and what it costs, at the default of 30 %.

For `green.py`: `figures` and `lines`. Simulated with the product's own steps. A hole is half an
octave wide, anywhere between the shortest and the longest length, and 30 % are found in it; 97 %
elsewhere. Haystacks are alike by .1 and .3. Costs are of models that fall smoothly, and of those
that never come to an end: flat near the threshold, with and without a cliff, and with haystacks
that are alike by .9. Beside them a control: the same seek without its last look for holes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest.mock import patch

import numpy as np

from needlemap.stats import Array, seek
from needlemap.stats.rehearsal import rehearse
from needlemap.stats.seek import PLACES, LengthAsks, LengthAxis
from truths import HIGH, LOW, THRESHOLD, answers, fall, octaves

WITHIN = 0.3
WIDTH = 0.5  # octaves of a hole
TOP, BOTTOM = 0.97, 0.3
GRID = 15 * float(np.geomspace(LOW, HIGH, 15).sum())  # tokens of 15 lengths and 15 depths
ENDLESS = 1e12
Chance = Callable[[Array, Array], Array]


def figures(runs: int = 400, seed: int = 23) -> dict[str, float]:
    """seek_false_flat: how often a model with a hole is said to hold to the end.
    seek_hole_missed: how often an interval leaves the hole's beginning out, which is no promise.
    seek_times_most: the most that was asked, in plain grids of 15 x 15.
    seek_flat_without_look: seek_false_flat of the control."""
    half = max(2, runs // 2)
    flat, missed = zip(*(_holes(half, rho, seed) for rho in (0.1, 0.3)), strict=True)
    none = np.zeros
    with patch.object(seek, "_gap_asks", lambda _, asked, __: none(asked.asks.shape, np.int64)):
        blind = _holes(half, 0.1, seed)[0]
    few = max(2, runs // 20)
    return {
        "seek_false_flat": max(flat),
        "seek_hole_missed": max(missed),
        "seek_times_most": max(_times(chance, rho, few, seed) for chance, rho in _COSTLY.values()),
        "seek_flat_without_look": blind,
    }


def lines(figures: Mapping[str, float]) -> list[str]:
    """The figures in words."""
    return [
        f"seek: {figures['seek_false_flat']:.1%} of models with a hole of half an octave are said "
        f"to hold to the end ({figures['seek_flat_without_look']:.1%} without the last look), "
        f"{figures['seek_hole_missed']:.1%} of intervals leave it out; at most "
        f"{figures['seek_times_most']:.1f} plain grids are asked"
    ]


def _holes(maps: int, correlation: float, seed: int) -> tuple[float, float]:
    """Shares of models with a hole that are said to hold to the end, and whose hole is left out."""
    random = np.random.default_rng(seed)
    starts = random.uniform(np.log2(1.2 * LOW), np.log2(HIGH) - WIDTH, maps)

    def chance(which: Array, logs: Array) -> Array:
        inside = (logs >= starts[which]) & (logs < starts[which] + WIDTH)
        return np.where(inside, BOTTOM, TOP)

    asked, known = _sought(chance, maps, correlation, random)
    low, high = seek.moved_ends(known, asked, THRESHOLD)
    held = (low <= starts + seek.SPACING) & (starts <= high)  # at the nearest length asked
    return float(np.isposinf(low).mean()), float((~held).mean())


def _times(chance: Chance, correlation: float, maps: int, seed: int) -> float:
    """The most plain grids that seeking took."""
    asked, _ = _sought(chance, maps, correlation, np.random.default_rng(seed))
    return float(seek.tokens_of(LengthAxis.between(LOW, HIGH), asked).max() / GRID)


def _sought(
    chance: Chance, maps: int, correlation: float, random: np.random.Generator
) -> tuple[LengthAsks, seek.Posterior]:
    """Models sought; chance: by the models' numbers and octaves."""
    axis = LengthAxis.between(LOW, HIGH)

    def answer(which: Array, at: Array) -> Array:
        share = np.repeat(chance(which, axis.logs[at])[:, None], PLACES, axis=1)
        return answers(random, share, correlation).sum(axis=1)

    return rehearse(axis, answer, maps, threshold=THRESHOLD, within=WITHIN, most_tokens=ENDLESS)


def _flat(top: float, cliff: float = 2 * HIGH) -> Chance:
    return lambda _, logs: np.where(octaves(2**logs, cliff) < 0, top, 0.3)


def _falling(middle: float, slope: float) -> Chance:
    return lambda _, logs: fall(middle, slope)(2**logs, np.array(0.5))


_COSTLY: Mapping[str, tuple[Chance, float]] = {
    "flat 88 %": (_flat(0.88), 0.1),
    "flat 86 %": (_flat(0.86), 0.1),
    "flat 88 %, alike by .9": (_flat(0.88), 0.9),
    "88 %, a cliff at 90k": (_flat(0.88, 90_000), 0.1),
    "flat 97 %": (_flat(0.97), 0.3),
    "a slow fall": (_falling(30_000, 0.8), 0.3),
    "a late fall": (_falling(110_000, 2.0), 0.3),
}
