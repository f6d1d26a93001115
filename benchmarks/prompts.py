"""All prompts of a grid as text: needlemap beside the original tool and beside a plain memory copy.

    python benchmarks/prompts.py [--essays FOLDER] [--peer-python PYTHON] [--peer-cells N] [--smoke]

CPU seconds, user and system, of whole fresh processes (cold) or of one stage (alone). The original
tool is needlehaystack 0.1.0 from PyPI where --peer-python (default: this Python) has it, else its
way of working, rewritten. Its tokenizer is tiktoken, with the published vocabulary. Every 25th
prompt of ours is tokenised again by tiktoken and must have exactly the asked length.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import tiktoken

from essays import essays
from machine import machine, run
from needlemap.grid import Depths, Lengths, make_grid, percent
from ranks import write_ranks
from sides.needlemap_parts import RESERVE_TOKENS, Side
from table import rounded, show

SIDES = Path(__file__).parent / "sides"
_VERIFIED = 25  # every so many prompts


@dataclass(frozen=True, slots=True)
class Peer:
    """What the original tool costs. cells_s: all cells; cold_s: with start, imports and
    vocabulary."""

    name: str
    cells: int
    cells_s: float
    cold_s: float


def main() -> None:
    """Measure, verify, print."""
    options = _options()
    with TemporaryDirectory() as scratch:
        os.environ["TIKTOKEN_CACHE_DIR"] = scratch
        write_ranks(Path(scratch))
        folder, about = essays(options.essays, Path(scratch) / "essays")
        grid = (str(folder.resolve()), options.lengths, options.depths)
        verified = verify(Side(*grid))
        calm = {"OPENBLAS_NUM_THREADS": "1"}  # as the command line sets it
        parts = [cold("needlemap_parts.py", *grid, **calm) for _ in range(options.runs)]
        settings = [cold("needlemap_settings.py", *grid, **calm) for _ in range(options.runs)]
        idle_threads = [cold("needlemap_parts.py", *grid) for _ in range(options.runs)]
        stages = warm(*grid, passes=options.passes)
        peer = original(options, *grid)
    _report(options, about, verified, peer, (parts, idle_threads, settings), stages)


def cold(side: str, *arguments: str, **environment: str) -> float:
    """CPU seconds of one fresh process that makes all prompts."""
    command = [sys.executable, str(SIDES / side), *arguments]
    return run(command, {**os.environ, **environment}).cpu_s


def warm(*grid: str, passes: int) -> dict[str, float]:
    """CPU seconds of placing, building and copying, each the median of several passes; and the
    bytes."""
    done = run([sys.executable, str(SIDES / "needlemap_parts.py"), *grid, str(passes)])
    return {
        stage: median(found) if isinstance(found, list) else found
        for stage, found in json.loads(done.output).items()
    }


def original(options: argparse.Namespace, folder: str, lengths: str, depths: str) -> Peer:
    """The original tool on the same grid; what was not run is extrapolated from cells spread
    evenly."""
    grid = make_grid(Lengths.parse(lengths), Depths.parse(depths), depth_digits=0)
    has_it = [
        options.peer_python,
        "-c",
        "import importlib.metadata as m; print(m.version('needlehaystack'))",
    ]
    found = subprocess.run(has_it, capture_output=True, text=True)
    python, way = (
        (options.peer_python, "package") if found.returncode == 0 else (sys.executable, "rewritten")
    )
    name = f"needlehaystack {found.stdout.strip()}" if way == "package" else "its way, rewritten"
    wide, deep = (
        json.dumps(grid.lengths),
        json.dumps([int(percent(depth)) for depth in grid.depths]),
    )
    count = options.peer_cells or len(grid.cells)
    ran = run([python, str(SIDES / "needlehaystack_peer.py"), folder, wide, deep, str(count), way])
    done = json.loads(ran.output.splitlines()[-1])
    cells_s = done["cells_cpu_s"] * len(grid.cells) / done["cells"]
    return Peer(name, done["cells"], cells_s, ran.cpu_s - done["cells_cpu_s"] + cells_s)


def verify(side: Side) -> int:
    """Tokenise every 25th prompt whole, with the reference implementation; how many there were.

    Raises RuntimeError for any that has not exactly the asked length.
    """
    reference, checked = tiktoken.get_encoding("cl100k_base"), 0
    for cell, prompt in list(zip(side.cells, side.build_prompts(), strict=True))[::_VERIFIED]:
        found = sum(len(reference.encode_ordinary(message.content)) for message in prompt.messages)
        if found != cell.length_tokens - RESERVE_TOKENS or prompt.tokens != found:
            raise RuntimeError(f"{cell} has {found} tokens and records {prompt.tokens}.")
        checked += 1
    return checked


def _report(
    options: argparse.Namespace,
    about: str,
    verified: int,
    peer: Peer,
    colds: tuple[list[float], list[float], list[float]],
    stages: dict[str, float],
) -> None:
    parts, idle_threads, settings = map(median, colds)
    lengths, depths = Lengths.parse(options.lengths), Depths.parse(options.depths)
    cells = len(make_grid(lengths, depths, depth_digits=0).cells)
    whole = "" if peer.cells == cells else f", extrapolated from {peer.cells} of {cells:,} cells"
    costs = [
        (f"{peer.name}, cold{whole}", peer.cold_s, peer.cold_s),
        ("needlemap, cold", parts, peer.cold_s),
        ("needlemap, cold, with numpy's idle BLAS threads", idle_threads, peer.cold_s),
        ("needlemap, cold, from settings to a run's trials", settings, peer.cold_s),
        (f"{peer.name}, contexts alone", peer.cells_s, peer.cells_s),
        ("needlemap, placing with exact lengths alone", stages["place"], peer.cells_s),
        ("needlemap, building alone", stages["build"], peer.cells_s),
        ("plain copy of as many bytes", stages["copy"], peer.cells_s),
    ]
    rows = [
        (what, f"{cost:.4f}", f"{cells / cost:,.0f}", f"{slow / cost:,.0f}")
        for what, cost, slow in costs
    ]
    show(
        f"{cells:,} prompts ({options.lengths} tokens x {options.depths} percent), "
        f"{stages['bytes'] / 1e6:,.0f} MB, from {about}",
        machine("needlemap", "numpy", "quicktok-v1", "tiktoken"),
        ("", "CPU s", "prompts per CPU s", "times fewer"),
        rows,
        [
            f"{verified} prompts tokenised again whole by tiktoken: each has exactly the asked "
            f"length.",
            f"Cold: a fresh process, median of {options.runs}. Alone: median of {options.passes} "
            f"passes in "
            f"one process. The original tool's contexts have neither template nor exact length.",
        ],
        {
            "benchmark": "prompts",
            "times_peer_cold": rounded(peer.cold_s / parts),
            "times_peer_cold_settings": rounded(peer.cold_s / settings),
            "times_peer_build": rounded(peer.cells_s / stages["build"]),
            "times_memcpy": rounded(stages["build"] / stages["copy"]),
            "peer": peer.name,
            "peer_cells": peer.cells,
            "prompts": cells,
            "verified": verified,
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="All prompts of a grid, beside the original tool.")
    parser.add_argument(
        "--essays", type=Path, help="folder of .txt files; default: the shared essays, or prose"
    )
    parser.add_argument(
        "--peer-python", default=sys.executable, help="a Python that has needlehaystack 0.1.0"
    )
    parser.add_argument(
        "--peer-cells", type=int, default=0, help="so many cells of it, the rest extrapolated"
    )
    parser.add_argument("--lengths", default="1000:128000:35")
    parser.add_argument("--depths", default="0:100:35")
    parser.add_argument("--runs", type=int, default=5, help="cold starts")
    parser.add_argument("--passes", type=int, default=9, help="of the warm stages")
    parser.add_argument("--smoke", action="store_true", help="a tiny grid: does it work at all?")
    options = parser.parse_args()
    if options.smoke:
        options.lengths, options.depths, options.runs, options.passes = (
            "1000:2000:2",
            "0:100:3",
            1,
            1,
        )
    return options


if __name__ == "__main__":
    main()
