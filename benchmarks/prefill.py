"""What sharing prefixes saves: prompt tokens computed and wall time, by mode, beside asking one by
one.

    python benchmarks/prefill.py [--smoke] [--skip-wall]

Tokens: real prompts (generated haystack, cl100k_base), counted over one walk; beside `bins` the
factor that no choice of positions inside the bins can exceed (of haystack tokens alone). The fair
yardstick stands before them: a server with prefix caching that is asked the plain grid in its
order, with a cache of 300,000 tokens, of a million, and with room for all, when the order is all
the same. Wall:
see `sides/walls.py`; without torch that part is null. Cold: one prompt with nothing cached, beside
transformers' own `generate` (`sides/cold.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter

import numpy as np

from machine import machine
from needlemap.grid import Depths, Lengths, make_grid
from needlemap.plan import laned, ordered
from needlemap.plan.bins import bin_edges, chain_tokens, lower_bound, make_bins
from needlemap.plan.cover import places
from needlemap.plan.summary import WalkedTrials, any_order, summarise
from needlemap.settings.reading import configure
from needlemap.text.tokens import Cuts
from needlemap.trials.build import Experiment, prepare
from sides.cold import measure_cold
from sides.slots import cached_of_planned
from sides.walls import MODES as WALLS
from sides.walls import Cost, Wall, measure
from table import rounded, show

MODES = ("exact", "bins")
ROOMS = {"300k": 300_000, "1M": 1_000_000, "all": None}  # tokens that a server's cache holds
_BLOCKS = (
    8_000  # of a server's cache in the longest prompt at most, as many tokens each as that takes
)
GRIDS = {
    "10x10_16k": ("1k:16k:10", "0:100:10"),
    "15x15_128k": ("1k:128k:15", "0:100:15"),
    "35x35_128k": ("1k:128k:35", "0:100:35"),
    "35x35_1M": ("1k:1M:35", "0:100:35"),
}
LARGE = {"200x100_128k": ("1k:128k:200", "0:100:100"), "100x200_128k": ("1k:128k:100", "0:100:200")}
SMOKE = {"15x15_128k": ("400:1200:3", "0:100:3"), "35x35_128k": ("400:1600:4", "0:100:4")}
REPORTED = (
    ("exact", "35x35_128k"),
    ("bins", "35x35_128k"),
    ("bins", "15x15_128k"),
)
_OUTSIDE = 400  # tokens of a prompt that are not haystack, where no prompt is made
_SENTENCE = 20  # tokens, where there is no text


@dataclass(frozen=True, slots=True)
class Counted:
    """A grid's tokens. factors: times fewer than without a cache, by mode; caching: the same of a
    server with prefix caching, by its room; bound: the most that bins can reach.

    plan_s: seconds to choose the positions of mode bins, to order the walk and to cut it.
    prepare_s: to make all prompts, planning included; None where none is made.
    """

    asked: int
    factors: dict[str, float]
    caching: dict[str, float]
    bound: float
    plan_s: float
    prepare_s: float | None


def main() -> None:
    """Measure, compare, print."""
    options = _options()
    counted = {name: count(*grid) for name, grid in (SMOKE if options.smoke else GRIDS).items()}
    counted |= {} if options.smoke else {name: plan_alone(*grid) for name, grid in LARGE.items()}
    reason = "--skip-wall" if options.skip_wall else _missing()
    walls = [] if reason else measure(options.smoke)
    slots = {} if options.skip_wall else cached_of_planned(options.smoke)
    _report(counted, walls, {} if reason else measure_cold(options.smoke), slots, reason)


def count(lengths: str, depths: str) -> Counted:
    """Tokens of a grid in every mode, from real prompts."""
    grid = {"lengths": lengths, "depths": depths, "tokenizer": "cl100k_base"}
    factors: dict[str, float] = {}
    for mode in MODES:
        experiment = prepare(configure(None, {**grid, "mode": mode}))
        factors[mode] = summarise(WalkedTrials.of(experiment, 1)).factor
    caching = yardsticks(prepare(configure(None, {**grid, "mode": "single"})))
    start = perf_counter()
    experiment = prepare(configure(None, {**grid, "mode": "bins"}))
    prepare_s = perf_counter() - start
    sizes = sizes_of(experiment)
    least = lower_bound(make_bins(sizes, bin_edges(experiment.grid.depths)))
    bound = sum(sizes) * len(experiment.grid.depths) / least
    return Counted(
        experiment.tokens_asked, factors, caching, bound, planning_s(experiment, sizes), prepare_s
    )


def yardsticks(plain: Experiment) -> dict[str, float]:
    """What a server with prefix caching saves of tokens, asked in the order of the grid, by its
    room."""
    walked = WalkedTrials.of(plain, 1)
    block = max(16, max(walked.sizes) // _BLOCKS)
    return {name: 1 / (1 - any_order(walked, room, block)) for name, room in ROOMS.items()}


def sizes_of(experiment: Experiment) -> list[int]:
    """Haystack tokens of each length."""
    sizes = {trial.cell.length_tokens: trial.prompt.haystack_tokens for trial in experiment.trials}
    return [sizes[length] for length in experiment.grid.lengths]


def planning_s(experiment: Experiment, sizes: Sequence[int]) -> float:
    """Seconds to choose positions, to order the walk and to cut it into lanes."""
    longest = max(
        (trial.prompt for trial in experiment.trials), key=lambda prompt: prompt.haystack_tokens
    )
    cuts = Cuts.of(max((span.text for span in longest.context_spans), key=len))
    start = perf_counter()
    places("bins", experiment.grid, sizes, cuts)
    laned(ordered(experiment.trials, "bins"), "bins", 4)
    return perf_counter() - start


def plan_alone(lengths: str, depths: str) -> Counted:
    """Positions alone, for a text that has a sentence end every 20 tokens."""
    grid = make_grid(Lengths.parse(lengths), Depths.parse(depths))
    sizes = [length - _OUTSIDE for length in grid.lengths]
    at = np.arange(sizes[-1] + 1, dtype=np.int32)
    cuts = Cuts(at, at - at % _SENTENCE, at, at)
    start = perf_counter()
    found = places("bins", grid, sizes, cuts)
    plan_s = perf_counter() - start
    bins = make_bins(sizes, bin_edges(grid.depths))
    chosen = np.array([position for _, position in found]).reshape(bins.low.shape)
    asked = sum(sizes) * len(grid.depths)
    factor = asked / chain_tokens(chosen, bins.sizes)
    return Counted(asked, {"bins": factor}, {}, asked / lower_bound(bins), plan_s, None)


def _missing() -> str | None:
    """Why the wall part cannot run."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    return f"no {' and no '.join(missing)}: pip install 'needlemap[hf]'" if missing else None


def _report(
    counted: dict[str, Counted],
    walls: Sequence[Wall],
    cold: Mapping[str, tuple[float, float]],
    slots: Mapping[str, float],
    reason: str | None,
) -> None:
    notes = [f"Wall time not measured: {reason}."] if reason else _wall_lines(walls)
    notes += [
        f"one cold prompt of {length}, times transformers' generate: CPU s {cpu_s:.2f}, "
        f"memory {peak:.2f}"
        for length, (cpu_s, peak) in cold.items()
    ]
    notes += [
        f"four lanes on four slots of llama-server, {memory}: {found:.3f} of the share that the "
        f"plan finds cached"
        for memory, found in slots.items()
    ]
    equal = sum(wall.equal for wall in walls) / max(1, sum(wall.prompts for wall in walls))
    first = {wall.mode: wall for wall in walls[:3]}
    result: dict[str, object] = {"benchmark": "prefill"}
    result |= {f"{mode}_{grid}": rounded(counted[grid].factors[mode]) for mode, grid in REPORTED}
    result |= {
        f"caching_{room}_15x15_128k": rounded(counted["15x15_128k"].caching[room]) for room in ROOMS
    }
    result |= {f"wall_{mode}": rounded(_faster(first[mode])) if walls else None for mode in WALLS}
    result |= {"equal_answers": equal if walls else None}
    result |= {f"shared_{name}": _least_fewer(walls, name) for name in ("windows", "recurrent")}
    for at, name in enumerate(("hf_cold_over_generate", "hf_cold_memory_over_generate")):
        result[name] = rounded(max(each[at] for each in cold.values())) if cold else None
    result |= {"llama_cpp_four_slots": rounded(min(slots.values())) if slots else None}
    result |= {f"plan_s_{name}": rounded(found.plan_s) for name, found in counted.items()}
    show(
        "Prompt tokens, times fewer than without a cache",
        machine("needlemap", "numpy", "torch", "transformers"),
        (
            *(
                "grid",
                "asked",
                *(f"server, {room}" for room in ROOMS),
                *MODES,
                "bins at most",
            ),
            *("plan s", "prompts s"),
        ),
        [_row(name, found) for name, found in counted.items()],
        notes,
        result,
    )


def _faster(wall: Wall) -> float:
    return wall.alone.wall_s / wall.walked.wall_s


def _least_fewer(walls: Sequence[Wall], name: str) -> float | None:
    """Times fewer tokens in mode bins, of the model whose description has this word."""
    return next(
        (rounded(wall.fewer) for wall in walls if name in wall.about and wall.mode == "bins"), None
    )


def _row(name: str, found: Counted) -> tuple[str, ...]:
    factors = {
        mode: f"{found.factors[mode]:.2f}" if mode in found.factors else "" for mode in MODES
    }
    return (
        name,
        f"{found.asked / 1e6:,.1f}M",
        *(f"{found.caching[room]:.2f}" if found.caching else "" for room in ROOMS),
        factors["exact"],
        factors["bins"],
        f"{found.bound:.2f}",
        f"{found.plan_s:.2f}",
        "" if found.prepare_s is None else f"{found.prepare_s:.2f}",
    )


def _wall_lines(walls: Sequence[Wall]) -> list[str]:
    """The second table, line by line."""
    heads = ("tokens", "fewer", "wall s", "CPU s", "faster", "by CPU s", "equal")
    lines = ["float32, CPU, one thread; answers of 4 tokens; one by one: transformers' generate"]
    for wall in walls:
        alone, walked = wall.alone, wall.walked
        if wall.mode == "single":
            lines += ["", wall.about, " " * 28 + "".join(f"{head:>10}" for head in heads)]
        lines.append(f"{wall.mode + ', one by one':<28}{_costs(alone, 1.0)}")
        faster = f"{_faster(wall):>10.2f}{alone.cpu_s / walked.cpu_s:>10.2f}"
        costs = _costs(walked, wall.fewer)
        lines.append(
            f"{wall.mode + ', one cache':<28}{costs}{faster}{wall.equal:>6}/{wall.prompts}"
        )
    return lines


def _costs(cost: Cost, fewer: float) -> str:
    return f"{cost.computed:>10,}{fewer:>10.2f}{cost.wall_s:>10.2f}{cost.cpu_s:>10.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What sharing prefixes saves.")
    parser.add_argument("--skip-wall", action="store_true", help="count tokens only")
    parser.add_argument("--smoke", action="store_true", help="tiny grids: does it work at all?")
    return parser.parse_args()


if __name__ == "__main__":
    main()
