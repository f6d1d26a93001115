"""How soon does recovery tell of a checkpoint what accuracy tells later?

    python benchmarks/recovery.py [--runs 2000] [--picture FILE] [--scores FILE] [--smoke]

From the kept scores of twelve recipes (recovery_recipes.py), twelve snapshots each, on the same
items (recovery_snapshots.py makes them). A gain is seen early at a snapshot where it excludes 0,
one-sided with 99 %, over haystacks (Student's t, cluster-robust), and at the next one too, while
accuracy is under 5 % at both. Recovery is the ratio of summed gains over the items that the oracle
gains on at a recipe's last snapshot; a snapshot whose oracle's sum does not exclude 0 is left out.
A figure beyond its target is an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from math import atanh, inf, isfinite, nan, sqrt, tanh
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from machine import machine
from needlemap.plan.summary import WalkedTrials
from needlemap.settings.reading import configure
from needlemap.stats.cube import linearise
from needlemap.stats.intervals import Z, cluster_mean, robust_error, t_interval
from needlemap.stats.ratio import ratio_interval
from needlemap.trials.build import prepare
from recovery_recipes import LEARNS, LENGTH, THIRD
from recovery_scores import SCORES, Snapshot, excludes_zero, read_scores
from table import rounded, show

Array = NDArray[np.float64]
UNSEEN = 0.05  # accuracy below which a model shows nothing
POWER = 0.8416  # quantile of 80 %
SPREADS = (0.05, 0.2, 0.5, 0.8, 0.95)  # true recoveries that are simulated
ANSWER_TOKENS = 13  # " The locker code for Turin is 51328."


def early(snapshots: Sequence[Snapshot], values: Callable[[Snapshot], Array]) -> int | None:
    """The first of two steps in a row at which something is seen while accuracy is not."""
    for one, other in pairwise(snapshots):
        pair = (one, other)
        if all(each.accuracy < UNSEEN and excludes_zero(values(each)) for each in pair):
            return one.step
    return None


def seen_at(snapshots: Sequence[Snapshot]) -> int | None:
    """The first step from which on accuracy is at least 5 %."""
    dull = [at for at, each in enumerate(snapshots) if each.accuracy < UNSEEN]
    later = snapshots[dull[-1] + 1 :] if dull else snapshots
    return later[0].step if later else None


def items_needed(difference: Array, sign: float) -> float:
    """Items until a mean difference of (haystacks, items) is found at 5 % with power .8; infinite
    where it points the wrong way."""
    sums, counts = np.nansum(difference, axis=1), (~np.isnan(difference)).sum(axis=1).astype(float)
    mean = float(sums.sum() / counts.sum()) if counts.sum() else 0.0
    if mean * sign <= 0:
        return inf
    return float(counts.sum()) * ((Z + POWER) * robust_error(sums, counts) / mean) ** 2


def pairs_to_tell(found: Mapping[str, Sequence[Snapshot]]) -> Iterator[tuple[float, float]]:
    """Of each two recipes whose last accuracies surely differ: items to tell them apart at a third
    of the steps in the order of their ends, by recovery and by accuracy."""
    for one, other in combinations(found.values(), 2):
        apart = t_interval(one[-1].right - other[-1].right)
        if apart is None or apart[1] <= 0 <= apart[2]:
            continue
        sign, (first, second) = float(np.sign(apart[0])), (third(one), third(other))
        linear = first.linear, second.linear
        by_recovery = (
            inf
            if linear[0] is None or linear[1] is None
            else items_needed(linear[0] - linear[1], sign)
        )
        yield by_recovery, items_needed(first.right - second.right, sign)


def third(snapshots: Sequence[Snapshot]) -> Snapshot:
    """That at a third of the steps."""
    return next(each for each in snapshots if each.step == THIRD)


def kendall(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Tau-b with its 95 % interval on Fisher's scale (Fieller, Hartley and Pearson 1957,
    Biometrika 44:470)."""
    signs = [
        (np.sign(first[i] - first[j]), np.sign(second[i] - second[j]))
        for i, j in combinations(range(len(first)), 2)
    ]
    one, other = (sum(pair[at] != 0 for pair in signs) for at in range(2))
    tau = float(sum(a * b for a, b in signs)) / sqrt(one * other) if one and other else 0.0
    centre, reach = atanh(max(-0.999, min(0.999, tau))), Z * sqrt(0.437 / (len(first) - 4))
    return tau, tanh(centre - reach), tanh(centre + reach)


def taus(found: Mapping[str, Sequence[Snapshot]]) -> dict[str, tuple[float, float, float]]:
    """Of three figures at a third of the steps with the last accuracy, over the recipes that have
    all three."""
    kept = [each for each in found.values() if third(each).recovery is not None]
    last = [each[-1].accuracy for each in kept]
    ratios = [third(each).recovery or (nan,) for each in kept]
    return {
        "recovery": kendall([ratio[0] for ratio in ratios], last),
        "accuracy": kendall([third(each).accuracy for each in kept], last),
        "loss": kendall([-third(each).loss for each in kept], last),
    }


def coverage(runs: int, haystacks: int, depths: int) -> dict[tuple[float, float], float]:
    """How often intervals of a recovery hold the true one, by that and by how alike items are.
    Haystacks and their items recover shares of their own (Beta; at .5 nearly all or nothing), the
    oracle's gain differs by haystack (lognormal), and gains have noise of a fifth of a nat."""
    random, held = np.random.default_rng(31), dict[tuple[float, float], float]()
    for truth, alike in product(SPREADS, (3.0, 0.5)):
        hits, moved = 0, truth - share_mean(truth)
        for _ in range(runs):
            near = random.beta(6 * truth, 6 * (1 - truth), (haystacks, 1)).clip(1e-3, 1 - 1e-3)
            share = random.beta(alike * near, alike * (1 - near), (haystacks, depths)) + moved
            oracle = np.repeat(random.lognormal(1.6, 0.3, (haystacks, 1)), depths, axis=1)
            gain = oracle * share + random.normal(0, 0.2, share.shape)
            found = ratio_interval(linearise(gain, oracle))
            hits += found is not None and found[1] <= truth <= found[2]
        held[truth, alike] = hits / runs
    return held


def share_mean(truth: float) -> float:
    """The mean of what `coverage` draws, which the clipping moves a little."""
    draws = np.random.default_rng(1).beta(6 * truth, 6 * (1 - truth), 400_000)
    return float(draws.clip(1e-3, 1 - 1e-3).mean())


def times_generation(haystacks: int) -> float:
    """Tokens computed for three forced passes / for answers to the same items, both with shared
    prefixes, the answers' own tokens included."""
    computed = []
    for scorer in ("recovery", "auto"):
        grid = {"lengths": [LENGTH], "depths": [10, 50, 90], "repeats": haystacks, "seed": 3_100}
        asked = {**grid, "scorer": scorer, "max_answer_tokens": 16}
        walked = WalkedTrials.of(prepare(configure("demo", asked)), 1)
        given = ANSWER_TOKENS * len(walked.sizes)
        computed.append(sum(walked.sizes) - sum(walked.shared) + given)
    return computed[0] / computed[1]


def row_of(name: str, snapshots: Sequence[Snapshot]) -> tuple[str, ...]:
    """A recipe's line of the table."""
    last, at = snapshots[-1], third(snapshots)
    rate = cluster_mean(last.right)
    assert rate is not None
    gain, accurate = early(snapshots, lambda each: each.gain), seen_at(snapshots)
    return (
        name,
        str(gain or "-"),
        str(accurate or "never"),
        f"{100 * at.accuracy:.0f}",
        "-" if at.recovery is None else "{:.2f} [{:.2f}, {:.2f}]".format(*at.recovery),
        f"{at.loss:.2f}",
        f"{100 * rate.score:.0f} [{100 * (rate.low or 0):.0f}, {100 * (rate.high or 0):.0f}]",
        "yes" if last.accuracy >= LEARNS else "no",
    )


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000, help="simulated at each recovery")
    parser.add_argument("--scores", type=Path, default=SCORES, help="of trainings of your own")
    parser.add_argument("--picture", type=Path, help="where the figure is drawn")
    parser.add_argument("--smoke", action="store_true", help="that the program works")
    given = parser.parse_args()
    found = read_scores(given.scores)
    learns = {name: each for name, each in found.items() if each[-1].accuracy >= LEARNS}
    seen = [name for name in learns if early(learns[name], lambda each: each.gain)]
    control = [name for name in found if early(found[name], lambda each: each.control)]
    pairs = list(pairs_to_tell(found))
    ratios = [a / b if isfinite(a) else inf for a, b in pairs if isfinite(a) or isfinite(b)]
    both = [a / b for a, b in pairs if isfinite(a) and isfinite(b)]
    tau = taus(found)
    haystacks, depths = next(iter(found.values()))[0].gain.shape
    held = coverage(100 if given.smoke else given.runs, haystacks, depths)
    times = times_generation(4 if given.smoke else haystacks)
    if given.picture:
        from recovery_picture import draw

        draw(found, tau).save(given.picture)
    result = {
        "benchmark": "recovery",
        "recipes": len(found),
        "recipes_learn": len(learns),
        "recipes_early": len(seen),
        "control_early": len(control),
        "pairs": len(pairs),
        "pairs_by_recovery": sum(isfinite(a) for a, _ in pairs),
        "pairs_by_accuracy": sum(isfinite(b) for _, b in pairs),
        "items_to_tell": rounded(median(ratios)),
        "items_to_tell_where_both": rounded(median(both)),
        **{
            f"tau_{name}": [rounded(each) if each else 0.0 for each in found_tau]
            for name, found_tau in tau.items()
        },
        "coverage": min(held.values()),
        "times_generation": rounded(times),
    }
    show(
        f"Twelve recipes, 48 to {LENGTH} tokens, twelve snapshots each, {haystacks * depths} items",
        machine("numpy"),
        (
            "recipe",
            "gain seen",
            "accuracy seen",
            f"accuracy at {THIRD}",
            f"recovery at {THIRD}",
            "loss",
            "last accuracy",
            "learns",
        ),
        [row_of(name, each) for name, each in found.items()],
        [
            "Steps. Gain seen: excludes 0, twice, while accuracy is under 5 %. Accuracy seen: 5 % "
            "and more from then on.",
            f"Control, another item's value: seen in {len(control)} of {len(found)} recipes.",
            *(
                f"Kendall's tau with the last accuracy, of {name} at {THIRD} steps: "
                + "{:.2f} [{:.2f}, {:.2f}]".format(*each)
                for name, each in tau.items()
            ),
            "Intervals that hold the true recovery, the least by it: "
            + ", ".join(
                f"{min(held[truth, alike] for alike in (3.0, 0.5)):.3f} of {truth}"
                for truth in SPREADS
            ),
        ],
        result,
    )
    if missed := [words for words, held_to in targets(result).items() if not held_to]:
        sys.exit(f"beyond the target: {', '.join(missed)}")


def targets(result: Mapping[str, Any]) -> dict[str, bool]:
    """What was to be shown, and whether it was."""
    return {
        "recipes_early": result["recipes_early"] >= result["recipes_learn"] - 1,
        "control_early": result["control_early"] == 0,
        "items_to_tell": result["items_to_tell"] <= 0.5,
        "coverage": result["coverage"] >= 0.93,
        "times_generation": result["times_generation"] <= 1.25,
    }


if __name__ == "__main__":
    main()
