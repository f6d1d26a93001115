"""Models whose chance of a right answer is known at every length and depth, for simulations.

Eighteen of them: smooth falls, steep and shallow, early, with lapses; a middle that is lost; a
cliff, a window, a dip; a plateau that crawls through 85 %; repeatable hits and misses; four
constants; and three published maps, smoothed, which need their data:
$NEEDLEMAP_SHARED/data/published_maps, else that of ../shared beside the repository.

`answers` draws right and wrong with any correlation inside a haystack by a Gaussian copula, so that
the chance stays exact: a share of the latent variance is common to the trials of a haystack.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from needlemap.stats import Array
from needlemap.stats.intervals import NORMAL

LOW, HIGH = 1_000, 128_000
THRESHOLD = 0.85
SMOOTH = ("steep", "mid", "shallow", "early", "lapses", "lost-middle", "dip")
CONSTANT = ("perfect", "nearly-perfect", "fails", "half")
ROUGH = ("plateau", "salt-and-pepper")
Chance = Callable[[Array, Array], Array]  # of lengths in tokens and depths in [0, 1]


@dataclass(frozen=True)
class Truth:
    """chance: broadcasts. curve: its mean over depth by length, where that is not simply taken."""

    name: str
    chance: Chance
    curve: Callable[[Array], Array] | None = None

    def surface(self, lengths: Array, depths: Array) -> Array:
        """Chances: (lengths, depths)."""
        return np.asarray(self.chance(lengths[:, None], depths[None, :]), dtype=np.float64)

    def mean(self, lengths: Array) -> Array:
        """The mean over depth at each length."""
        if self.curve is not None:
            return self.curve(lengths)
        return self.chance(lengths[:, None], np.linspace(0, 1, 101)[None, :]).mean(axis=1)

    def length(self) -> float:
        """Octaves of the first length with a mean below THRESHOLD; -inf at once, inf never."""
        lengths = np.geomspace(LOW, HIGH, 3_000)
        below = self.mean(lengths) < THRESHOLD
        if below[0]:
            return -np.inf
        return float(np.log2(lengths[below.argmax()])) if below.any() else np.inf


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))))


def octaves(lengths: Array, start: float) -> Array:
    """From a length, in octaves."""
    return np.asarray(np.log2(np.asarray(lengths) / start))


def fall(middle: float, slope: float, top: float = 0.99, dip: float = 0.0) -> Chance:
    """Falls from top to 2 % around a length, deeper in the middle of the haystack by so many
    octaves."""

    return lambda n, d: (
        0.02 + (top - 0.02) * logistic(-slope * (octaves(n, middle) + dip * (1 - (2 * d - 1) ** 2)))
    )


def lost_middle(n: Array, d: Array) -> Array:
    """The ends stay well, the middle sinks the deeper the longer."""
    return 0.03 + 0.95 * logistic(
        3.2 - 1.1 * (1 - (2 * d - 1) ** 2) * np.maximum(0, octaves(n, 2_000))
    )


def dip(n: Array, d: Array) -> Array:
    """Bad around 20k, well again, and a fall at the end."""
    hole = 0.28 * np.exp(-((octaves(n, 20_000) / 0.55) ** 2))
    return np.asarray(np.clip(0.975 - hole - 0.5 * logistic(4 * octaves(n, 105_000)), 0, 1) + 0 * d)


def share_of_hits(n: Array) -> Array:
    """Salt and pepper: how many cells are hits."""
    return np.asarray(0.02 + 0.96 * logistic(-1.1 * octaves(n, 70_000)))


def salt_and_pepper(n: Array, d: Array) -> Array:
    """Cells of 2 % of length and 1 % of depth that are hits or misses for good."""
    row, column = np.round(np.log2(n) * 50).astype(np.int64), np.round(d * 100).astype(np.int64)
    mixed = (row * 73_856_093) ^ (column * 19_349_663) ^ 584_449_537
    drawn = ((mixed ^ (mixed >> 13)) * 1_274_126_177 & 0x7FFFFFFF) % 100_003 / 100_003
    return np.where(drawn < share_of_hits(n), 0.97, 0.03)


def constant(chance: float) -> Chance:
    """The same everywhere."""
    return lambda n, d: np.full(np.broadcast(n, d).shape, chance)


TRUTHS = {
    each.name: each
    for each in (
        Truth("steep", fall(40_000, 4.0)),
        Truth("mid", fall(40_000, 1.6, dip=0.3)),
        Truth("shallow", fall(60_000, 0.7)),
        Truth("early", fall(5_000, 1.6, dip=0.3)),
        Truth("lapses", fall(60_000, 2.5, top=0.9)),
        Truth("lost-middle", lost_middle),
        Truth("dip", dip),
        Truth("cliff", lambda n, d: np.where(n <= 32_768, 0.985, 0.01) + 0 * d),
        Truth("window", lambda n, d: np.where((1 - d) * n <= 24_000, 0.98, 0.02)),
        Truth("plateau", lambda n, d: 0.9 - 0.1 * octaves(n, LOW) / 7 + 0 * d),
        Truth("salt-and-pepper", salt_and_pepper, lambda n: 0.03 + 0.94 * share_of_hits(n)),
        Truth("perfect", constant(1.0)),
        Truth("nearly-perfect", constant(0.97)),
        Truth("fails", constant(0.02)),
        Truth("half", constant(0.5)),
    )
}
PUBLISHED = {
    "gpt-4": "gpt4_128k",
    "claude-2.1": "claude_2_1",
    "gemini-fork": "gemini_pro_fork_binary",
}


def every_truth() -> dict[str, Truth]:
    """All of them, published maps too where their data are."""
    here = Path(__file__).parents[1].parent / "shared"
    folder = Path(os.environ.get("NEEDLEMAP_SHARED") or here) / "data" / "published_maps"
    files = {name: folder / f"{file}_grid.csv" for name, file in PUBLISHED.items()}
    made = {name: Truth(name, published(file)) for name, file in files.items() if file.is_file()}
    return TRUTHS | made


def published(file: Path) -> Chance:
    """A published map: each cell the mean with its neighbours, straight between cells."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = [
            (
                float(row["context_length"]),
                float(row["depth_percent"]) / 100,
                float(row["score_mean"]),
            )
            for row in csv.DictReader(text)
        ]
    lengths, depths = (sorted({row[at] for row in rows}) for at in (0, 1))
    cells = np.full((len(lengths), len(depths)), np.nan)
    binary = "binary" in file.name
    for length, depth, score in rows:
        cells[lengths.index(length), depths.index(depth)] = score if binary else (score - 1) / 9
    stretch = (
        HIGH / max(lengths) if max(lengths) > HIGH else 1.0
    )  # a longer map is squeezed into the range
    smooth = np.clip(_blurred(np.nan_to_num(cells)) / _blurred(1.0 - np.isnan(cells)), 0.01, 0.995)
    logs, places = np.log2(np.array(lengths) * stretch), np.array(depths)

    def chance(n: Array, d: Array) -> Array:
        x, y = np.broadcast_arrays(np.log2(n), d)
        i = np.clip(np.searchsorted(logs, x) - 1, 0, len(logs) - 2)
        j = np.clip(np.searchsorted(places, y) - 1, 0, len(places) - 2)
        a = np.clip((x - logs[i]) / (logs[i + 1] - logs[i]), 0, 1)
        b = np.clip((y - places[j]) / (places[j + 1] - places[j]), 0, 1)
        near = (1 - b) * smooth[i, j] + b * smooth[i, j + 1]
        return np.asarray(
            (1 - a) * near + a * ((1 - b) * smooth[i + 1, j] + b * smooth[i + 1, j + 1])
        )

    return chance


def _blurred(cells: Array) -> Array:
    """Each with its neighbours, 1-2-1 along both axes, edges repeated."""
    for axis in (0, 1):
        ends = np.take(cells, [0], axis), np.take(cells, [-1], axis)
        wide = np.concatenate([ends[0], cells, ends[1]], axis=axis)
        size = cells.shape[axis]
        cells = sum(
            weight * np.take(wide, range(at, at + size), axis)
            for at, weight in enumerate((0.25, 0.5, 0.25))
        )
    return cells


@cache
def _normal() -> tuple[Array, Array]:
    shares = np.linspace(1e-5, 1 - 1e-5, 20_001)
    return shares, np.array([NORMAL.inv_cdf(share) for share in shares.tolist()])


def answers(random: np.random.Generator, chance: Array, correlation: float) -> Array:
    """Right or wrong, 1 or 0, for chances (haystacks, ...)."""
    shares, quantiles = _normal()
    limit = np.interp(chance, shares, quantiles)
    limit = np.where(chance >= 1 - 1e-9, np.inf, np.where(chance <= 1e-9, -np.inf, limit))
    common = np.sqrt(correlation) * random.standard_normal(
        (len(chance), *(1 for _ in chance.shape[1:]))
    )
    own = np.sqrt(1 - correlation) * random.standard_normal(chance.shape)
    return np.asarray(common + own < limit, dtype=np.float64)


def log_lengths(count: int) -> Array:
    """So many lengths from LOW to HIGH, alike in logarithm."""
    return np.asarray(np.round(np.geomspace(LOW, HIGH, count)))


def grid_length(curve: Array, lengths: Array, threshold: float = THRESHOLD) -> float:
    """In tokens what a perfect measurement at these lengths says: straight over their logarithm
    between."""
    below = np.flatnonzero(curve < threshold - 1e-12)
    if not len(below):
        return np.inf
    at = int(below[0])
    if at == 0:
        return 0.0
    left, right = curve[at - 1] - threshold, curve[at] - threshold
    return float(lengths[at - 1] * (lengths[at] / lengths[at - 1]) ** (left / (left - right)))
