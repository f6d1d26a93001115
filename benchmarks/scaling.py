"""How a run scales with workers, on paper: a 35 x 35 grid to 1,000,000 tokens, mode bins.

    python benchmarks/scaling.py [--lengths 1k:1M:35] [--depths 0:100:35] [--mode bins] [--repeats 1,10]

Real prompts and the real cuts (`plan/lanes.py`, `plan/units.py`); what a worker takes is simulated
(`sides/cluster.py`) with two costs: of tokens alone, and of tokens and attention, which grows with the square
of the context, for the shape of Llama 3 8B. Efficiency is the time of one worker with one cache, divided by
workers and their time; all that is computed again because a worker's cache does not hold it counts.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from machine import machine
from needlemap.plan.cost import Shape
from needlemap.plan.order import ordered, shared
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
from sides.cluster import Cost, Walk, costed_lanes_take, lanes_take, shared_cache_takes, units_take
from table import rounded, show

LLAMA_8B = Shape(layers=32, width=4096, weights=6_979_321_856)  # of all layers, without embeddings
COSTS = {"tokens": Cost(1.0), "attention": Cost.of_shape(LLAMA_8B)}
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


@dataclass(frozen=True, slots=True)
class Scaled:
    """One number of workers at one cost. Efficiencies in [0, 1]: of lanes cut by tokens and by cost, of
    units, the most that whole prompts allow, and of lanes with a cache that all workers share."""

    workers: int
    lanes: float
    costed: float
    units: float
    most: float
    shared_cache: float

    @property
    def best(self) -> float:
        """Of what workers without a common cache can do."""
        return max(self.lanes, self.costed, self.units)


def main() -> None:
    """Simulate, check, print."""
    options = _options()
    rows, result, notes = [], {"benchmark": "scaling"}, []
    for repeats in options.repeats:
        sizes, common = walk_of(options, repeats)
        for name, cost in COSTS.items():
            walk = Walk.of(sizes, common, cost)
            scaled = [scale(walk, workers) for workers in options.workers]
            check(scaled)
            rows += [_row(repeats, name, one) for one in scaled]
            result |= _results(repeats, options.repeats[0], name, scaled)
        tokens = f"{sum(sizes) / 1e6:,.1f}M tokens asked, {(sum(sizes) - sum(common)) / 1e6:,.1f}M computed"
        notes.append(f"{repeats} repeat(s): {tokens} by one cache; longest prompt {max(sizes):,}.")
    show(
        f"Efficiency in %, {options.lengths} tokens x {options.depths} percent, mode {options.mode}",
        machine("needlemap"),
        ("repeats, cost", "workers", "lanes", "by cost", "units", "at most", "one cache for all", "speed-up"),
        rows,
        [*notes, *ABOUT],
        result,
    )


ABOUT = (
    "at most: the longest prompt is one worker's, from its first token on.",
    "speed-up: the best of lanes and units.",
    "by cost: lanes cut by what prompts cost instead of by their tokens, which takes the model's shape.",
    "attention: tokens and tokens x context, Llama 3 8B; at 26,600 tokens of context the two are equal.",
)


def walk_of(options: argparse.Namespace, repeats: int) -> tuple[list[int], list[int]]:
    """Tokens of each prompt in the order of the plan, and what each shares with the one before."""
    given = {"lengths": options.lengths, "depths": options.depths, "mode": options.mode, "repeats": repeats}
    trials = prepare(configure(None, {"model": "openai/gpt-4", "max_answer_tokens": 50, **given})).trials
    walk = ordered(trials, options.mode)
    return [trial.prompt.tokens for trial in walk], shared(walk, options.mode)


def scale(walk: Walk, workers: int) -> Scaled:
    """Efficiencies of so many workers."""
    even = walk.alone / workers
    return Scaled(
        workers,
        even / lanes_take(walk, workers),
        even / costed_lanes_take(walk, workers),
        even / units_take(walk, workers),
        walk.most(workers),
        even / shared_cache_takes(walk, workers),
    )


def check(scaled: list[Scaled]) -> None:
    """Raises RuntimeError where the simulation contradicts itself."""
    for one in scaled:
        if one.best > one.most + 1e-9:
            raise RuntimeError(f"{one} is faster than its longest prompt.")
        if one.workers == 1 and min(one.lanes, one.shared_cache) < 1 - 1e-9:
            raise RuntimeError(f"{one}: one worker does not take what one worker takes.")


def _results(repeats: int, first: int, name: str, scaled: list[Scaled]) -> dict[str, float]:
    """Figures at 64 workers; short names for the first number of repeats and for tokens alone."""
    tail = "" if name == "tokens" else f"_{name}"
    tail += "" if repeats == first else f"_repeats_{repeats}"
    found = {}
    for one in scaled:
        if one.workers == 64:
            found[f"efficiency_64{tail}"] = rounded(one.best)
            found[f"most_64{tail}"] = rounded(one.most)
            found[f"shared_cache_64{tail}"] = rounded(one.shared_cache)
    return found


def _row(repeats: int, name: str, one: Scaled) -> tuple[str, ...]:
    shares = (one.lanes, one.costed, one.units, one.most, one.shared_cache)
    percent = (f"{100 * share:.1f}" for share in shares)
    return (f"{repeats}, {name}", f"{one.workers:,}", *percent, f"{one.best * one.workers:,.1f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How a run scales with workers, on paper.")
    parser.add_argument("--lengths", default="1k:1M:35")
    parser.add_argument("--depths", default="0:100:35")
    parser.add_argument("--mode", default="bins", choices=("exact", "bins", "lattice"))
    parser.add_argument("--repeats", default="1,10", help="numbers of repeats, with commas")
    parser.add_argument("--smoke", action="store_true", help="a tiny grid: does it work at all?")
    options = parser.parse_args()
    options.workers = WORKERS
    if options.smoke:
        options.lengths, options.depths, options.repeats = "400:1600:4", "0:100:4", "1,2"
        options.workers = (1, 2, 64)
    options.repeats = [int(part) for part in options.repeats.split(",")]
    return options


if __name__ == "__main__":
    main()
