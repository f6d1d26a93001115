"""How often does `ab` say something false, does it see quiet faults, how soon does it decide real
servers?

    python benchmarks/ab.py [--runs N] [--smoke]

Pairs are simulated: one prompt a haystack, as `ab --until decided` sends them, whose loss and gain
differ by haystack on the logit scale, in opposite directions. The mean loss over haystacks is
exactly the margin, where neither verdict is true, and all looks are looked at. Quiet faults are
those of mutants.py in tests/wings/servers/gallery. Servers are asked where NEEDLEMAP_LLAMA_SERVER
names one (`eval "$(bash .ci/servers)"`) and NEEDLEMAP_SHARED holds a trained model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from time import monotonic

import numpy as np

from machine import machine
from needlemap.asking.campaign import RunObserver
from needlemap.models import Logprobs
from needlemap.servers.ab.arms import ArmTrial, judge_arms, tripwire
from needlemap.servers.ab.campaign import Ab, AbOptions, ArmsInBlocks
from needlemap.servers.ab.file import Arm
from needlemap.settings.suites import choose_each
from needlemap.stats import Array
from needlemap.stats.exact import mcnemar
from needlemap.stats.sequential import BETS, Bets
from needlemap.stats.verdicts import FAIL, HIGH_ALPHA, LOW_ALPHA, NOT_ENOUGH_DATA
from table import rounded, show

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS / "wings" / "servers" / "gallery"))
sys.path.insert(0, str(TESTS / "wings" / "servers" / "real_servers"))
from mutants import BestSixteenKeys, Engine, Faulty, FirstRowOfAChunk, FourBitCache  # noqa: E402

MARGIN = 0.02
DISCORDANCE = (0.0, 0.02, 0.05, 0.1, 0.2)
SPREAD = (0.0, 0.6, 1.2)  # logits
PROMPTS, MOST = 1, 20_000  # of a haystack; haystacks: 20,000 pairs
CHUNK = 50  # runs at a time
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
NOISE = 0.02  # nats
PAIRS = 200


class BestSixtyFourKeys(BestSixteenKeys):
    """Attention sees the sixty-four best keys only."""

    kept = 64


QUIET: dict[str, type[Engine]] = {
    "keys and values in 4 bits": FourBitCache,
    "best 64 keys": BestSixtyFourKeys,
    "first row of a chunk lost": FirstRowOfAChunk,
}


def level(mean: float, spread: float) -> float:
    """The logit around which haystacks lie that have this mean chance."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        found = float((WEIGHTS / (1 + np.exp(-middle - spread * NODES))).sum() / WEIGHTS.sum())
        low, high = (middle, high) if found < mean else (low, middle)
    return low


def drawn(
    random: np.random.Generator,
    size: tuple[int, int],
    loss: float,
    discordance: float,
    spread: float,
) -> Array:
    """Mean differences of haystacks: (runs, haystacks)."""
    lost, gained = (max(discordance, loss) + loss) / 2, (max(discordance, loss) - loss) / 2
    shift = spread * random.standard_normal(size)
    falls = 1 / (1 + np.exp(-level(lost, spread) - shift)) if lost else np.zeros(size)
    rises = 1 / (1 + np.exp(-level(gained, spread) + shift)) if gained else np.zeros(size)
    total = np.zeros(size)
    for _ in range(PROMPTS):
        chance = random.random(size)
        total += (chance > 1 - rises).astype(float) - (chance < falls)
    return total / PROMPTS


def decided(means: Array) -> tuple[Array, Array]:
    """Haystacks until FAIL and until PASS is first above, infinite where never: (runs,)
    each."""
    found = []
    for sign, alpha in ((-1.0, LOW_ALPHA), (1.0, HIGH_ALPHA)):
        values, bound = (1 + sign * means) / 2, (1 - sign * MARGIN) / 2
        kinds, codes = np.unique(values, return_inverse=True)
        growth = np.log1p(BETS * ((kinds - bound) / bound)[:, None])
        wins = np.zeros(values.shape)
        for part in range(0, len(values), CHUNK):
            here = growth[codes.reshape(values.shape)[part : part + CHUNK]].cumsum(axis=1)
            wins[part : part + CHUNK] = np.logaddexp.reduce(here, axis=-1) - log(len(BETS))
        above = wins >= -log(alpha)
        found.append(np.where(above.any(axis=1), above.argmax(axis=1) + 1, np.inf))
    return found[0], found[1]


def check_decided(means: Array, times: tuple[Array, Array]) -> None:
    """What is simulated is what `ab` says. Raises RuntimeError."""
    for row, worse, no_worse in zip(means, *times, strict=True):
        after, word = Bets.of(((-row).tolist(), (-row).tolist()), MARGIN).first
        first = min(worse, no_worse)
        if (np.inf if word == NOT_ENOUGH_DATA else after) != first:
            raise RuntimeError(f"ab decides after {after} haystacks, the simulation after {first}.")


def false_rates(runs: int) -> tuple[float, float, list[tuple[str, ...]]]:
    """The worst share of runs that ever say FAIL, and PASS, and a row a condition."""
    random, rows = np.random.default_rng(20_262), list[tuple[str, ...]]()
    most = [0.0, 0.0]
    for discordance in DISCORDANCE:
        for spread in SPREAD:
            said, after = np.zeros(2), list[str]()
            for start in range(0, runs, CHUNK):
                means = drawn(random, (min(CHUNK, runs - start), MOST), MARGIN, discordance, spread)
                times = decided(means)
                if not start:
                    check_decided(means[:3], (times[0][:3], times[1][:3]))
                said += [np.isfinite(each).sum() for each in times]
            for loss in (0.0, 0.05, 0.1):
                worse, no_worse = decided(
                    drawn(random, (min(CHUNK, runs), 6_000), loss, discordance, spread)
                )
                middle = float(np.median(worse if loss else no_worse))
                after.append(f"{PROMPTS * middle:,.0f}" if np.isfinite(middle) else ">6,000")
            most = [max(before, each / runs) for before, each in zip(most, said, strict=True)]
            shares = [f"{each / runs:.3f}" for each in said]
            rows.append((f"{100 * discordance:g} %, {spread:g}", *shares, *after))
    return most[0], most[1], rows


def asked_of(engine: type[Engine], folder: Path, pairs: int) -> list[ArmTrial]:
    """An ab of the model in the box against itself with a fault."""
    flags = {"lengths": "192,256", "depths": "10,60", "quiet": True, "seed": 3}
    arms = Arm("ref", "demo/retriever"), Arm("new", "demo/retriever")
    asked = AbOptions(arms, flags, partial(choose_each, "demo"), 100 * MARGIN, pairs)
    make = {"new": lambda _: Faulty(engine)}
    blocks = ArmsInBlocks(Ab.of(asked, folder), RunObserver(), lambda _: None, make)
    return asyncio.run(blocks.run())


def moved_by_chance(found: list[ArmTrial], random: np.random.Generator) -> list[ArmTrial]:
    """The same prompts with both later askings being the first one's, each moved by noise."""
    made = []
    for trio in found:
        assert trio.reference is not None
        told = trio.reference.logprobs
        assert told is not None
        others = [
            trio.reference.model_copy(update={"logprobs": _noisy(told, shift)})
            for shift in random.normal(0, NOISE, 2)
        ]
        made.append(replace(trio, other=others[0], repeat=others[1]))
    return made


def _noisy(told: Logprobs, shift: float) -> Logprobs:
    return replace(told, nats=tuple(min(0.0, each + shift) for each in told.nats))


def graded(faults: int, pairs: int, clean: int) -> tuple[int, int, list[str]]:
    """How many quiet faults the tripwire sees and answers do not show, alarms of equal arms,
    notes."""
    found, notes, random = 0, list[str](), np.random.default_rng(5)
    trios: list[ArmTrial] = []
    for name, engine in list(QUIET.items())[:faults]:
        with tempfile.TemporaryDirectory() as folder:
            trios = asked_of(engine, Path(folder) / "ab", pairs)
        judged, wire = judge_arms(trios, MARGIN), tripwire(trios)
        assert wire is not None
        found += wire.tripped and judged.loss.word != FAIL
        notes.append(
            f"{name}: answers {judged.loss.word} "
            f"({judged.loss.lost} lost of {judged.loss.n}); "
            f"{wire.beyond} "
            f"moved, of its own {wire.again_beyond}; median {wire.median:.1e} nats"
        )
    alarms = 0
    for _ in range(clean):
        wire = tripwire(moved_by_chance(trios, random))
        assert wire is not None
        alarms += wire.tripped
    return found, alarms, notes


def mcnemar_apart(tables: int) -> float:
    """The largest difference from statsmodels' exact p over random tables."""
    from statsmodels.stats.contingency_tables import mcnemar as peer

    random, most = np.random.default_rng(7), 0.0
    for lost, gained in random.integers(0, 200, (tables, 2)).tolist():
        theirs = peer([[5, lost], [gained, 5]], exact=True).pvalue
        most = max(most, abs(min(1.0, float(theirs)) - mcnemar(lost, gained)))
    return most


@contextmanager
def llama(gguf: Path, folder: Path, kind: str) -> Iterator[str]:
    """The address of a llama-server whose keys and values are kept in some type."""
    from conftest import Servers

    started = Servers(folder)
    size = ("-c", 4096, "-np", 4, "-t", 1, "-tb", 1, "-fa", "on")
    cache = ("--cache-type-k", kind, "--cache-type-v", kind, "--alias", "tiny", "--jinja")
    binary = os.environ["NEEDLEMAP_LLAMA_SERVER"]
    try:
        yield started.start(
            "tiny", binary, "-m", gguf, *size, *cache, "--host", "127.0.0.1", "--port"
        ).base_url
    finally:
        started.end()


def servers(folder: Path) -> dict[str, dict[str, object]]:
    """Two real servers, f16 against q8 and q4 keys and values; what came of it, in which time and
    tokens."""
    shared = Path(os.environ.get("NEEDLEMAP_SHARED", ""))
    checkpoint, gguf = shared / "data" / "tiny_retriever", folder / "tiny.gguf"
    if not os.environ.get("NEEDLEMAP_LLAMA_SERVER") or not checkpoint.is_dir():
        return {}
    converter = os.environ["NEEDLEMAP_GGUF_CONVERTER"]
    script = [
        sys.executable,
        str(TESTS / "wings" / "servers" / "real_servers" / "convert.py"),
        converter,
        str(checkpoint),
        str(gguf),
    ]
    subprocess.run(script, check=True, capture_output=True)
    (folder / "magic.yaml").write_text(_MAGIC.format(essays=shared / "data" / "PaulGrahamEssays"))
    (folder / "chat.yaml").write_text(
        'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'
    )
    return {kind: _decided(folder, checkpoint, gguf, kind) for kind in ("q8_0", "q4_0")}


_MAGIC = """\
needle: The magic number for {{city}} is {{number}}.
question: What is the magic number for {{city}}?
keywords: ['{{number}}']
draw: {{city: [Berlin, Oslo, Paris, Madrid, Rome, Lima], number: '1000:9999'}}
haystack: folder
haystack_path: {essays}
template: chat.yaml
max_answer_tokens: 20
lengths: [160, 220]
depths: [10, 60]
"""


def _decided(folder: Path, checkpoint: Path, gguf: Path, kind: str) -> dict[str, object]:
    out, began = folder / kind, monotonic()
    with llama(gguf, folder, "f16") as first, llama(gguf, folder, kind) as second:
        needlemap = str(Path(sys.executable).with_name("needlemap"))
        command = [needlemap, "ab", "magic.yaml", "--json", "--quiet", "-o", str(out)]
        command += ["--arm", f"f16={first}", "--arm", f"{kind}={second}", "--model", "openai/tiny"]
        command += ["--tokenizer", str(checkpoint), "--until", "decided"]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not ended.stdout:
        raise RuntimeError(ended.stderr[-2000:])
    told = json.loads(ended.stdout)
    lines = [
        line for file in out.glob("*/records-*.jsonl") for line in file.read_text().splitlines()
    ]
    tokens = sum(json.loads(line)["prompt_tokens"] or 0 for line in lines)
    wire = told["log_probabilities"]
    return {
        "verdict": told["result"]["word"],
        "exit": ended.returncode,
        "pairs": told["pairs"],
        "lost": told["lost"],
        "gained": told["gained"],
        "moved": wire and wire["tripped"],
        "median_nats": wire and wire["median"],
        "prompt_tokens": tokens,
        "seconds": rounded(monotonic() - began),
    }


def main() -> None:
    """Simulate, ask, check, print."""
    options = _options()
    worse, no_worse, rows = false_rates(options.runs)
    found, alarms, notes = graded(*(1, 16, 5) if options.smoke else (len(QUIET), PAIRS, 100))
    apart = mcnemar_apart(20 if options.smoke else 1_000)
    with tempfile.TemporaryDirectory() as folder:
        real = {} if options.smoke else servers(Path(folder))
    result = {
        "benchmark": "ab",
        "runs": options.runs,
        "false_worse_most": rounded(worse, 4),
        "false_no_worse_most": rounded(no_worse, 4),
        "graded_found": found,
        "graded_false_alarms": alarms,
        "mcnemar_apart": apart,
        "servers": real,
    }
    told = ("-0: PASS", "-5: FAIL", "-10: FAIL")
    show(
        f"Verdicts at a margin of 2 points, {options.runs:,} runs of up to 20,000 pairs",
        machine("needlemap", "numpy", "statsmodels"),
        ("flips, spread", "false FAIL", "false PASS", *told),
        rows,
        [
            "False where the mean loss is exactly the margin. Right columns: median pairs to the "
            "verdict.",
            *notes,
            *(f"f16 against {kind}: {json.dumps(each)}" for kind, each in real.items()),
        ],
        result,
    )
    broken = worse > 0.05 or no_worse > 0.05 or apart > 1e-9 or found < len(QUIET) or alarms
    if broken and not options.smoke:
        raise RuntimeError(f"ab does not hold what it promises: {result}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Errors of ab's verdicts, quiet faults, real servers."
    )
    parser.add_argument("--runs", type=int, default=400, help="simulated runs a condition")
    parser.add_argument("--smoke", action="store_true", help="few runs, one fault, no servers")
    options = parser.parse_args()
    if options.smoke:
        options.runs = 3
    return options


if __name__ == "__main__":
    main()
