"""Do the numbers that people act on hold? Intervals and verdicts on maps whose truth is known
exactly.

    python benchmarks/statistics.py [--maps N] [--smoke]     (runs this file)

Truths (`truths.py`) are sigmoids, cliffs, windows, dips, plateaus, constant ones, published maps.
Trials of a haystack have a part of what decides them in common, .1 for mild and .3 for strong
effects, which leaves the truth as it is. All intervals are the product's.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from math import comb, inf
from typing import Any

import numpy as np

from machine import machine
from needlemap.stats import Array, Cube
from needlemap.stats.difference import paired_difference
from needlemap.stats.effective import effective_length, parse_rule
from needlemap.stats.intervals import cluster_mean, tango, wilson
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.means import depth_scores, length_scores, total_score
from needlemap.stats.rows import Rows
from needlemap.stats.verdicts import FAIL, PASS
from table import rounded, show
from truths import CONSTANT, ROUGH, Truth, answers, every_truth, grid_length, log_lengths

GRID, REPEATS, MILD, STRONG = (8, 11), (5, 10), 0.1, 0.3
RULE = parse_rule("absolute:85")
TARGETS = {
    **dict.fromkeys(
        ("coverage_cell", "coverage_margin", "coverage_effective", "coverage_few_mild"), 0.93
    ),
    **dict.fromkeys(("coverage_paired", "coverage_few_strong"), 0.88),
    "coverage_true_length_least": 0.9,
    "power_two_over_one": 1.0,
}
LIMITS = {
    "width_over_oracle": 1.3,
    "false_no_worse_most": 0.03,
    "false_no_worse_clustered_10": 0.10,
    "false_no_worse_clustered_50": 0.05,
}
SMOKE = 2
Found = dict[str, list[Any]]


def cube_of(scores: Array, lengths: Array, depths: Array) -> Cube:
    """A run's scores: (repeats, lengths, depths)."""
    axes = tuple(range(len(scores))), tuple(map(int, lengths)), tuple(map(float, depths))
    return Cube(*axes, scores, scores, np.ones(scores.shape, dtype=bool))


def maps_of(
    truth: Truth, repeats: int, correlation: float, maps: int
) -> Iterator[tuple[Cube, Array]]:
    """So many maps of one truth, each with the chances of its cells."""
    lengths, depths = log_lengths(GRID[0]), np.linspace(0, 1, GRID[1])
    p = truth.surface(lengths, depths)
    random = np.random.default_rng([repeats, round(100 * correlation), *map(ord, truth.name)])
    for _ in range(maps):
        scores = answers(random, np.broadcast_to(p, (repeats, *p.shape)), correlation)
        yield cube_of(scores, lengths, depths), p


def of_truth(truth: Truth, repeats: int, correlation: float, maps: int) -> Found:
    """What the intervals of so many maps of one truth hold, and how wide they are."""
    true = 2 ** truth.length()
    found: Found = defaultdict(list)
    for map_, p in maps_of(truth, repeats, correlation, maps):
        grid = grid_length(p.mean(axis=1), np.array(map_.lengths))
        _cells(found, map_, p)
        _margins(found, map_, p)
        _effective(found, map_, grid, true)
    return found


def _cells(found: Found, map_: Cube, p: Array) -> None:
    n = len(map_.scores)
    ends = [wilson(float(hits), n) or (0.0, 1.0) for hits in range(n + 1)]
    low, high = (
        np.array(each)[map_.scores.sum(axis=0).astype(int)] for each in zip(*ends, strict=True)
    )
    found["cell"] += ((low <= p + 1e-12) & (p <= high + 1e-12)).ravel().tolist()


def _margins(found: Found, map_: Cube, p: Array) -> None:
    means = [
        total_score(map_),
        *length_scores(map_).values(),
        *(row.mean for row in depth_scores(map_)),
    ]
    for mean, value in zip(means, [p.mean(), *p.mean(axis=1), *p.mean(axis=0)], strict=True):
        assert mean is not None
        assert mean.low is not None
        assert mean.high is not None
        found["margin"].append(mean.low <= value + 1e-12 and value <= mean.high + 1e-12)
    assert means[0] is not None
    found["score"].append(means[0].score)
    found["width"].append((means[0].high or 0.0) - (means[0].low or 0.0))


def _effective(found: Found, map_: Cube, grid: float, true: float) -> None:
    said = effective_length(map_, RULE)
    assert said is not None
    assert said.low is not None
    assert said.high is not None
    found["effective"].append(said.low <= grid <= said.high)
    found["true"].append(said.low <= true <= said.high)
    found["crawls"].append(said.crawls or log_width(said.low, said.high, map_.lengths) >= 1)
    # Without draws there is a point for a curve that crawls, too: estimates spread there most.
    point = effective_length(map_, RULE, draws=0)
    assert point is not None
    found["length"].append(log_length(point.value or 0.0, map_.lengths))
    found["octaves"].append(log_width(said.low, said.high, map_.lengths))
    found["true octave"] = [log_length(true, map_.lengths)]


def log_length(value: float, lengths: tuple[int, ...]) -> float:
    """In octaves; never and at once as the longest and the shortest length tested."""
    return float(np.log2(min(max(value, lengths[0]), lengths[-1])))


def log_width(low: float, high: float, lengths: tuple[int, ...]) -> float:
    """Of an interval, in octaves."""
    return log_length(high, lengths) - log_length(low, lengths)


def over_oracle(found: Found, spacing: float) -> list[float]:
    """Widths over those of who knows how estimates spread; a length may be one spacing wider."""
    spread = float(np.diff(np.quantile(found["score"], [0.025, 0.975]))[0])
    octaves = float(np.diff(np.quantile(found["length"], [0.025, 0.975]))[0])
    made = [float(np.mean(found["width"])) / spread] if spread > 1e-3 else []
    return [*made, float(np.mean(found["octaves"])) / (octaves + spacing)]


def few(correlation: float, maps: int) -> float:
    """How often means of 1 to 3 repeats hold the truth, total and by length: the least of three
    grids."""
    shares = []
    for rows, columns in ((4, 4), GRID, (35, 35)):
        held = []
        for truth in (truth for name, truth in every_truth().items() if name not in CONSTANT):
            p = truth.surface(log_lengths(rows), np.linspace(0, 1, columns))
            random = np.random.default_rng(rows)
            for repeats in (1, 2, 3) * max(1, maps * 16 // (rows * columns)):
                scores = answers(random, np.broadcast_to(p, (repeats, *p.shape)), correlation)
                for part, value in (
                    (scores.reshape(repeats, -1), p.mean()),
                    (scores[:, 0], p[0].mean()),
                ):
                    mean = cluster_mean(part)
                    assert mean is not None
                    held.append(
                        (mean.low or 0.0) <= value + 1e-12 and value <= (mean.high or 1.0) + 1e-12
                    )
        shares.append(float(np.mean(held)))
    return min(shares)


def pair(
    random: np.random.Generator, haystacks: int, loss: float, flips: float, correlation: float
) -> tuple[Array, Array]:
    """Two runs of 88 prompts a haystack at 90 %: the second loses so much, by haystack, and
    flips."""
    first = random.random((haystacks, 88)) < 0.9
    lost = answers(random, np.full((haystacks, 88), loss / 0.9), correlation) > 0
    turned, again = random.random(first.shape) < flips, random.random(first.shape) < 0.9
    return first.astype(float), np.where(turned, again, first & ~lost).astype(float)


def paired(maps: int) -> float:
    """How often intervals of differences hold the truth, at 5 and 10 haystacks, both
    correlations."""
    random, held = np.random.default_rng(11), []
    for haystacks in REPEATS:
        for correlation in (MILD, STRONG):
            for _ in range(maps):
                found = paired_difference(*pair(random, haystacks, 0.05, 0.0, correlation))
                assert found is not None
                held.append(found.low <= -0.05 <= found.high)
    return float(np.mean(held))


def judged(first: Array, second: Array) -> PairedLoss:
    """The verdict on scores (haystacks, prompts) of one length, margin 2."""
    stack = np.repeat(np.arange(len(first)), first.shape[1])
    zeros, tried = np.zeros(first.size, dtype=np.int64), np.ones(first.size, dtype=bool)
    rows = Rows(("",), zeros, stack, zeros, first.ravel(), second.ravel(), tried)
    return judge(rows, 0.02)


def clustered(haystacks: int, maps: int) -> float:
    """How often it is said of all haystacks that no more than 2 points are lost, where exactly 2
    are."""
    random, said = np.random.default_rng(haystacks), 0
    for _ in range(maps):
        found = judged(*pair(random, haystacks, 0.02, 0.0, STRONG))
        said += found.word == PASS and found.scope == "new"
    return said / maps


def power(haystacks: int, maps: int) -> float:
    """How often a drop of 10 points is called worse."""
    random, said = np.random.default_rng(7), 0
    for _ in range(maps):
        said += judged(*pair(random, haystacks, 0.10, 0.02, 0.0)).word == FAIL
    return said / maps


def false_no_worse() -> float:
    """The most often, exactly, that PASS is said of independent pairs that lose the
    margin."""
    cases = [
        (n, margin, flips) for n in (96, 128, 200, 300, 440, 880) for margin, flips in _MARGINS
    ]
    return max(map(_finding_rate, *zip(*cases, strict=True)))


_MARGINS = ((0.02, 0.0), (0.02, 0.02), (0.05, 0.0), (0.05, 0.02))


def _finding_rate(n: int, margin: float, flips: float) -> float:
    lost, gained = margin + flips / 2, flips / 2
    total = 0.0
    for plus in range(int(n * gained + 8 * (n * gained) ** 0.5) + 2):
        most, share = -1, lost / (1 - gained)
        while tango(most + 1, plus, n)[0] > -margin:
            most += 1
        tail = sum(
            comb(n - plus, k) * share**k * (1 - share) ** (n - plus - k) for k in range(most + 1)
        )
        total += comb(n, plus) * gained**plus * (1 - gained) ** (n - plus) * tail
    return total


def measured(maps: int) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """All figures, and a row a truth."""
    pooled: Found = defaultdict(list)
    rows, least = [], 1.0
    for name, truth in every_truth().items():
        cases = [(repeats, correlation) for repeats in REPEATS for correlation in (MILD, STRONG)]
        each = [of_truth(truth, *case, maps) for case in cases]
        shares = {key: float(np.mean([np.mean(found[key]) for found in each])) for key in _SHOWN}
        bias = np.median([np.median(found["length"]) - found["true octave"][0] for found in each])
        rows.append((name, *(f"{100 * shares[key]:.1f}" for key in _SHOWN), f"{bias:+.2f}"))
        if name in CONSTANT:
            continue
        for found in each:
            for key in ("cell", "margin", "effective"):
                pooled[key] += found[key]
            pooled["oracle"] += over_oracle(found, 1.0)
        if name not in ROUGH:
            least = min(least, *(float(np.mean(found["true"])) for found in each))
    result = {
        f"coverage_{key}": float(np.mean(pooled[key])) for key in ("cell", "margin", "effective")
    }
    result |= {
        "width_over_oracle": float(np.median(pooled["oracle"])),
        "coverage_true_length_least": least,
    }
    return result, rows


_SHOWN = ("cell", "margin", "effective", "true", "crawls")


def main() -> None:
    """Simulate, count, print."""
    options = _options()
    result, rows = measured(options.maps)
    result |= {
        "coverage_paired": paired(options.maps),
        "coverage_few_mild": few(MILD, options.maps),
        "coverage_few_strong": few(STRONG, options.maps),
        "false_no_worse_most": false_no_worse(),
        "false_no_worse_clustered_10": clustered(10, 20 * options.maps),
        "false_no_worse_clustered_50": clustered(50, 20 * options.maps),
        "power_two_over_one": power(2, options.maps) / (power(1, options.maps) or inf),
    }
    wrong = {name: result[name] for name, least in TARGETS.items() if result[name] < least}
    wrong |= {name: result[name] for name, most in LIMITS.items() if result[name] > most}
    if wrong and not options.smoke:
        raise RuntimeError(f"Not what is promised: {wrong}")
    show(
        f"How often 95 % intervals hold the truth, in %: {options.maps} maps a truth at 5 and 10 "
        f"repeats, "
        "haystack correlation .1 and .3 each",
        machine("needlemap", "numpy"),
        (
            "truth",
            "cells",
            "means",
            "length, its grid's",
            "length, its own",
            "an octave or more",
            "bias, octaves",
        ),
        rows,
        [f"{name} {value:.3f}" for name, value in result.items()],
        {"benchmark": "statistics", "maps": options.maps}
        | {name: rounded(value) for name, value in result.items()},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Coverage of intervals and verdicts, by simulation."
    )
    parser.add_argument(
        "--maps", type=int, default=200, help="simulated maps of each truth and condition"
    )
    parser.add_argument(
        "--smoke", action="store_true", help=f"{SMOKE} maps, and nothing is asserted"
    )
    options = parser.parse_args()
    if options.smoke:
        options.maps = SMOKE
    return options
