"""Known truths for simulations: the chance of a right answer over length and depth, and draws that correlate.

Those of $NEEDLEMAP_SHARED/tools/zoo.py where it is there: eighteen, three of them published maps. Else the
twelve below, so that a benchmark runs on anyone's machine.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from functools import lru_cache
from math import inf
from pathlib import Path
from statistics import NormalDist

import numpy as np

from needlemap.maps.cube import Array

LOW, HIGH = 1_000.0, 128_000.0
CONSTANT = ("perfect", "nearly-perfect", "fails", "half")
APART = ("plateau", "salt-pepper")  # whose length no interval of one spacing can hold
Truth = Callable[[Array, Array], Array]  # (lengths in tokens, depths in [0, 1]) to chances; broadcasts
_ZOO = Path(os.environ.get("NEEDLEMAP_SHARED", Path(__file__).parents[2] / "shared")) / "tools" / "zoo.py"
_POINTS = np.linspace(1e-5, 1 - 1e-5, 20_001)
_BARS = np.array([NormalDist().inv_cdf(point) for point in _POINTS])


@lru_cache(1)
def truths() -> dict[str, Truth]:
    """All by name."""
    if not _ZOO.is_file():
        return _OWN
    return {name: truth.p for name, truth in runpy.run_path(str(_ZOO))["ZOO"].items()}


def log_lengths(count: int) -> Array:
    """So many lengths from 1k to 128k, alike in logarithm."""
    return np.asarray(np.round(np.geomspace(LOW, HIGH, count)))


def surface(truth: Truth, lengths: Array, depths: Array) -> Array:
    """Chances: (lengths, depths)."""
    return np.asarray(truth(lengths[:, None], depths[None, :]), dtype=np.float64)


def true_length(name: str, truth: Truth, threshold: float = 0.85) -> float:
    """Where the mean over depths first falls below the threshold; infinite never, 0 at once."""
    fine = np.geomspace(LOW, HIGH, 3_000)
    curve = surface(truth, fine, np.linspace(0, 1, 101)).mean(axis=1)
    if name == "salt-pepper":  # the mean of its texture
        curve = 0.03 + 0.94 * (0.02 + 0.96 * _logistic(-1.1 * np.log2(fine / 70_000)))
    below = curve < threshold
    return 0.0 if below[0] else float(fine[below.argmax()]) if below.any() else inf


def grid_length(curve: Array, lengths: Array, threshold: float = 0.85) -> float:
    """The same of a perfect measurement at these lengths, straight over their logarithm between them."""
    below = np.flatnonzero(curve < threshold - 1e-12)
    if not len(below):
        return inf
    at = int(below[0])
    if at == 0:
        return 0.0
    left, right = curve[at - 1] - threshold, curve[at] - threshold
    return float(lengths[at - 1] * (lengths[at] / lengths[at - 1]) ** (left / (left - right)))


def answers(random: np.random.Generator, chances: Array, haystacks: int, correlation: float) -> Array:
    """Right or wrong, (haystacks, *chances): a Gaussian copula, so that chances stay what they are.

    correlation: the share of what decides a trial that its haystack's trials have in common.
    """
    common = random.normal(size=(haystacks, *(1 for _ in chances.shape)))
    own = random.normal(size=(haystacks, *chances.shape))
    bars = np.where(
        chances >= 1 - 1e-9, inf, np.where(chances <= 1e-9, -inf, np.interp(chances, _POINTS, _BARS))
    )
    return (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own < bars).astype(np.float64)


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))))


def _octaves(lengths: Array, start: float) -> Array:
    return np.log2(np.asarray(lengths, dtype=np.float64) / start)


def _falling(middle: float, slope: float, top: float = 0.99) -> Truth:
    return lambda n, d: 0.02 + (top - 0.02) * _logistic(-slope * _octaves(n, middle)) + 0 * d


def _middle(n: Array, d: Array) -> Array:
    """Lost in the middle, more so at length."""
    return 0.03 + 0.95 * _logistic(3.2 - 1.1 * (1 - (2 * d - 1) ** 2) * np.maximum(0, _octaves(n, 2_000)))


def _dip(n: Array, d: Array) -> Array:
    fall = 0.28 * np.exp(-((_octaves(n, 20_000) / 0.55) ** 2)) + 0.5 * _logistic(4 * _octaves(n, 105_000))
    return np.clip(0.975 - fall, 0, 1) + 0 * d


def _constant(chance: float) -> Truth:
    return lambda n, d: np.full(np.broadcast(n, d).shape, chance)


_OWN: dict[str, Truth] = {
    "sigmoid-steep": _falling(40_000, 4.0),
    "sigmoid-shallow": _falling(60_000, 0.7),
    "sigmoid-early": _falling(5_000, 1.6),
    "lapse-10": _falling(60_000, 2.5, top=0.9),
    "lost-middle": _middle,
    "rope-cliff": lambda n, d: np.where(n <= 32_768, 0.985, 0.01) + 0 * d,
    "window": lambda n, d: np.where((1 - d) * n <= 24_000, 0.98, 0.02),
    "dip": _dip,
    "plateau": lambda n, d: 0.9 - 0.1 * _octaves(n, LOW) / 7 + 0 * d,
    "perfect": _constant(1.0),
    "nearly-perfect": _constant(0.97),
    "half": _constant(0.5),
}
