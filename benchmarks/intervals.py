"""Do intervals that claim 95 % hold the truth in 95 % of maps? A simulation with haystacks that differ.

    python benchmarks/statistics.py [--maps N] [--smoke]     (runs this file)

Each simulated map has 12 repeats of a 8 x 11 grid. A trial is right with a chance that falls with length,
dips in the middle depths, and moves with its haystack: the trials of one repeat have one normal effect on
the logit in common. The truth is the same chance averaged over haystacks, by quadrature, not by the code
under test. The second run of a pair answers as the first but for independent losses and gains, whose rates
move with a haystack effect of their own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from machine import machine
from needlemap.maps.cube import Array, Cube
from needlemap.maps.difference import paired_difference
from needlemap.maps.effective import effective_length, parse_rule
from needlemap.maps.intervals import wilson
from needlemap.maps.map import depth_scores, length_scores, total_score
from table import rounded, show

LENGTHS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
DEPTHS = tuple(at / 10 for at in range(11))
REPEATS = 12
SPREAD = 0.6  # standard deviation of a haystack's effect on the logit
LOSS, GAIN = -3.2, -3.9  # logits of the mean chance that a right answer turns wrong, and the reverse
NAMES = ("cell", "margin", "effective", "paired")
SMOKE = 40


@dataclass(frozen=True)
class Truth:
    """What the intervals should hold. cells: (lengths, depths); effective: by rule; paired: overall."""

    cells: Array
    effective: dict[str, float]
    paired: float


def logits() -> Array:
    """(lengths, depths): falls with the logarithm of the length, dips in the middle."""
    far = np.log2(np.array(LENGTHS) / 16_000)[:, None]
    dip = -0.8 * (1 - (2 * np.array(DEPTHS) - 1) ** 2)[None, :]
    return 2.6 - 0.55 * far + dip


def truth() -> Truth:
    """By Gauss-Hermite quadrature over the haystack's effect, and plain interpolation of the true curve."""
    points, shares = np.polynomial.hermite_e.hermegauss(60)
    shares = shares / shares.sum()
    cells = (_chance(logits()[..., None] + SPREAD * points) * shares).sum(axis=-1)
    curve = cells.mean(axis=1)
    lost, gained = ((_chance(logit + SPREAD * points) * shares).sum() for logit in (LOSS, GAIN))
    logs, worst = np.log2(LENGTHS), cells.min(axis=1)
    rules = {
        "absolute:85": (curve, 0.85),
        "relative:85": (curve, 0.85 * curve[0]),
        "worst-depth:85": (worst, 0.85),
    }
    effective = {
        name: float(2 ** np.interp(-threshold, -scores, logs)) for name, (scores, threshold) in rules.items()
    }
    effective["auc"] = float(np.trapezoid(curve, logs) / (logs[-1] - logs[0]))
    return Truth(cells, effective, float((gained * (1 - cells) - lost * cells).mean()))


def simulated(random: np.random.Generator) -> tuple[Cube, Cube]:
    """Two runs on the same trials."""
    shape = (REPEATS, len(LENGTHS), len(DEPTHS))
    effect = random.normal(0, SPREAD, (REPEATS, 1, 1))
    first = random.random(shape) < _chance(logits() + effect)
    change = random.normal(0, SPREAD, (REPEATS, 1, 1))
    turned = random.random(shape) < np.where(first, _chance(LOSS + change), _chance(GAIN + change))
    return _cube(first), _cube(first ^ turned)


def held(map: Cube, other: Cube, true: Truth) -> dict[str, list[bool]]:
    """Which intervals of one simulated pair hold the truth."""
    return {
        "cell": _cells(map, true),
        "margin": _margins(map, true),
        "effective": _effective(map, true),
        "paired": _paired(map, other, true),
    }


def _cells(map: Cube, true: Truth) -> list[bool]:
    hits = map.scores.sum(axis=0).ravel()
    intervals = (wilson(float(count), REPEATS) or (1.0, 0.0) for count in hits)
    return [low <= p <= high for (low, high), p in zip(intervals, true.cells.ravel(), strict=True)]


def _margins(map: Cube, true: Truth) -> list[bool]:
    means = [*length_scores(map).values(), *(row.mean for row in depth_scores(map)), total_score(map)]
    truths = [*true.cells.mean(axis=1), *true.cells.mean(axis=0), true.cells.mean()]
    ends = [(mean.low or 0.0, mean.high or 0.0) if mean else (1.0, 0.0) for mean in means]
    return [low <= p <= high for (low, high), p in zip(ends, truths, strict=True)]


def _effective(map: Cube, true: Truth) -> list[bool]:
    found = [(effective_length(map, parse_rule(name)), value) for name, value in true.effective.items()]
    return [each is not None and (each.low or 0) <= value <= (each.high or 0) for each, value in found]


def _paired(map: Cube, other: Cube, true: Truth) -> list[bool]:
    flat = [cube.scores.reshape(REPEATS, -1) for cube in (map, other)]
    found = paired_difference(flat[0], flat[1], graded=False)
    return [found is not None and found.low <= true.paired <= found.high]


def _cube(right: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Cube:
    scores = right.astype(np.float64)
    return Cube(tuple(range(REPEATS)), LENGTHS, DEPTHS, scores, scores, np.ones_like(right))


def _chance(logit: Array | float) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.asarray(logit))))


def main() -> None:
    """Simulate, count, print."""
    options = _options()
    random, true = np.random.default_rng(20_240), truth()
    counted: dict[str, list[bool]] = {name: [] for name in NAMES}
    for _ in range(options.maps):
        for name, values in held(*simulated(random), true).items():
            counted[name] += values
    shares = {name: float(np.mean(values)) for name, values in counted.items()}
    wrong = [name for name, share in shares.items() if not 0.93 <= share <= 0.97]
    if wrong and not options.smoke:
        raise RuntimeError(f"Intervals do not hold 93 to 97 %: { {name: shares[name] for name in wrong} }")
    show(
        f"Coverage of 95 % intervals over {options.maps} simulated maps, {REPEATS} haystacks each",
        machine("needlemap", "numpy"),
        ("interval", "intervals", "hold the truth, %"),
        [(name, f"{len(counted[name]):,}", f"{100 * shares[name]:.1f}") for name in NAMES],
        [f"A haystack's effect on the logit has a standard deviation of {SPREAD}; target 93 to 97."],
        {"benchmark": "statistics", "maps": options.maps}
        | {f"coverage_{name}": rounded(shares[name]) for name in NAMES},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Coverage of the intervals, by simulation.")
    parser.add_argument("--maps", type=int, default=2_000, help="simulated maps")
    parser.add_argument("--smoke", action="store_true", help=f"{SMOKE} maps, and no coverage is asserted")
    options = parser.parse_args()
    if options.smoke:
        options.maps = SMOKE
    return options
