"""Does `needlemap check` find public faults, each with the probe that is meant for it, and blame
nobody else?

    python benchmarks/check.py [--clean N] [--smoke] [--no-mutants]
    python benchmarks/check.py --real FILE [--max-length 8k] [--times 3] [--only WORDS] [--keep DIR]
    python benchmarks/check.py --faults FILE [--max-length 8k] [--only WORDS]

The faults are those of mutants.py in tests/wings/servers/gallery, in the model in the box. Each
begins at each of a check's three sizes in turn, and is asked what the probe that is meant for it
needs, at the alpha that a probe has in a check of all. It is found if the probe fails at the size
at which it begins, and at no shorter one. Clean runs are checks of all: of that model with and
without a cache; of a reader that is wrong by chance one time in forty, so that of two equal askings
one pair in twenty differs; and, where `.ci/servers` was run, of llama-server with one slot and with
four, and of transformers serve, with the model of real_servers.

`--real` checks real engines that serve the gauge (`real_engines.py`): two dozen honest ways to run
them, and faults, round by round. FILE gets a line of JSON after each check, and what it holds is
not asked again, so that the same command goes on where it was interrupted: `real_engines.jsonl` is
what was asked so far. A line of a check that asked or judged by other rules counts for nothing, and
is asked again. `--times 0` asks nothing, and shows what FILE holds. `--max-length`: of the honest
configurations that are counted.

`--faults` puts the gallery's faults into the gauge (`gauge_faults.py`), resumable alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from time import process_time
from typing import Any

from gauge_faults import begin_each, rows_of
from machine import machine
from real_engines import CASES, check_each, limits, summed
from table import rounded, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/wings/servers/gallery"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/wings/servers/real_servers"))
from faults import NOISE
from mutants import MUTANTS, SIZES, SOUND, asking, begins_at, examined

from conftest import Served, Servers  # of tests/wings/servers/real_servers
from needlemap.grid import tokens
from needlemap.servers.check import probes as all_probes

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT / "tests" / "wings" / "servers" / "real_servers"
QUICK, FEW = ("cut-and-told",), ("cut", "stop")
TRAINED = ROOT.parent / "shared" / "data" / "tiny_retriever"
# The one kind of fact that the model of real_servers was trained to find.
KNOWS = {
    "needle": "The magic number for {city} is {number}.",
    "question": "What is the magic number for {city}?",
    "keywords": ["{number}"],
    "draw": {"city": ["Berlin", "Oslo", "Paris", "Madrid", "Rome", "Lima"], "number": "1000:9999"},
}
MOST_REAL = 10  # clean runs of real servers
TURNS = (*SOUND, *["noisy"] * 6)  # kinds of clean runs, in turn
WORKERS = 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean", type=int, default=200, help="Clean runs.")
    parser.add_argument(
        "--smoke", action="store_true", help="One mutant's probe, a clean run of two."
    )
    parser.add_argument("--no-mutants", action="store_true", help="Clean runs alone.")
    parser.add_argument("--keep", type=Path, help="Leave the mutants' checks in this folder.")
    parser.add_argument("--real", type=Path, help="Check real engines, a line each in this file.")
    parser.add_argument(
        "--faults", type=Path, help="Faults in the gauge, a line each in this file."
    )
    parser.add_argument("--max-length", default="8k", help="With a file: the longest prompt.")
    parser.add_argument("--times", type=int, default=3, help="With --real: checks of each.")
    parser.add_argument("--probes", default="", help="With --real: of honest ones only these.")
    parser.add_argument("--only", default="", help="With a file: cases whose name holds this.")
    options = parser.parse_args()
    if options.real:
        real(options)
        return
    if options.faults:
        found = begin_each(options.faults, int(tokens(options.max_length)), options.only)
        header, rows, result = rows_of(found)
        title = "Faults of the gallery in the gauge, found by check"
        show(title, machine(), header, rows, [], {"benchmark": "check", **result})
        return
    chosen = [mutant for mutant in MUTANTS if not options.smoke or mutant.name in QUICK]
    sizes = SIZES[1:2] if options.smoke else SIZES
    rows, found, slowest = [], 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for mutant in [] if options.no_mutants else chosen:
            told = []
            for size in sizes:
                began = process_time()
                kept = (options.keep or Path(folder)) / f"{mutant.name}-{size}"
                (finding,) = examined(mutant, kept, {mutant.probe}, size)
                slowest = max(slowest, process_time() - began)
                is_found = begins_at(finding) == finding.sizes[SIZES.index(size)].size
                told.append("found" if is_found else finding.state)
                print(f"{mutant.name}, {size}: {finding.said}", file=sys.stderr, flush=True)
            found += told.count("found")
            rows.append((mutant.name, mutant.probe, *told))
        runs, alarms = clean(
            *(1, FEW) if options.smoke else (options.clean, tuple(all_probes())), Path(folder)
        )
    result = {
        "benchmark": "check",
        "mutants": len(rows) * len(sizes),
        "found": found,
        "clean_runs": sum(runs.values()),
        "false_alarms": sum(alarms.values()),
        "mutant_cpu_s_most": rounded(slowest),
    }
    notes = [
        f"clean, {kind}: {alarms[kind]} of {count} blamed somebody" for kind, count in runs.items()
    ]
    header = ("fault", "meant for", *(f"from {size}" for size in sizes))
    show("Faults of the gallery, found by check", machine(), header, rows, notes, result)


def real(options: argparse.Namespace) -> None:
    """Checks of real engines, and what all lines of their file come to."""
    cases = [case for case in CASES if options.only in case.name]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    asked = options.max_length, options.times, cases, options.keep, options.probes
    found = check_each(options.real, *asked)
    rows, by_name = [], {case.name: case for case in CASES}
    for name, length, some in dict.fromkeys((e.case, e.max_length, e.probes) for e in found):
        mine = [e for e in found if (e.case, e.max_length, e.probes) == (name, length, some)]
        codes = " ".join(str(each.code) for each in mine)
        failed = sorted({n for each in mine for n, state in each.states.items() if state == "fail"})
        rows.append(
            (
                name,
                "fixes" if by_name[name].fixes else "scores",
                length,
                some or (" ".join(mine[0].states) if mine[0].fault else "all"),
                codes,
                f"{max(e.cpu_s for e in mine):.0f}",
                f"{max(e.server_cpu_s for e in mine):.0f}",
                f"{max(moved):.2g}" if (moved := [m for e in mine for m in e.moved]) else "",
                " ".join(failed),
            )
        )
    header = ("engine", "half", "to", "probes", "codes", "CPU s", "server's", "moved", "fails")
    notes = [
        "half: limits are fixed on one and scored on the other. codes: exit codes. CPU s, moved "
        "(nats a token): the most.",
        f"engines: {'; '.join(sorted({each.build for each in found}))}.",
        *limits(found),
    ]
    result = {"benchmark": "check", **summed(found, options.max_length)}
    show("The gauge on real engines", machine(), header, rows, notes, result)


def clean(count: int, probes: Collection[str], folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Checks of servers that nothing is wrong with: how many, and how many of them blame one, by
    kind."""
    runs, alarms = Counter[str](), Counter[str]()
    with real_servers(folder) as served, ProcessPoolExecutor(WORKERS) as pool:
        real = min(MOST_REAL, count // 4) if served else 0
        names = [list(served)[number % len(served)] for number in range(real)]
        names += [TURNS[number % len(TURNS)] for number in range(count - real)]
        flags = [served.get(name, {}) for name in names]
        places = [folder / f"clean-{number}" for number in range(count)]
        for number, found in enumerate(
            pool.map(blamed, names, flags, range(count), places, repeat(probes))
        ):
            runs[names[number]] += 1
            alarms[names[number]] += bool(found)
            print(f"{number + 1} of {count}, {names[number]}: {found}", file=sys.stderr, flush=True)
    return runs, alarms


def blamed(
    name: str, flags: Mapping[str, Any], number: int, folder: Path, probes: Collection[str]
) -> list[str]:
    """What a check of a sound server blames it for. flags: of a real one."""
    NOISE.seed(number)
    own, make = SOUND.get(name, (flags, None))
    findings = asyncio.run(asking(own, folder, probes, make=make).run()).findings
    return [f"{each.probe}: {each.said}" for each in findings if each.state == "fail"]


@contextmanager
def real_servers(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Flags of real servers by their names, where there are any; they end with the block."""
    binary, llama = (
        os.environ.get(f"NEEDLEMAP_{name}", "") for name in ("LLAMA_SERVER", "GGUF_CONVERTER")
    )
    if not binary or not TRAINED.is_dir():
        yield {}
        return
    gguf, started = folder / "tiny.gguf", Servers(folder)
    convert = [sys.executable, REAL / "convert.py", llama, TRAINED, gguf]
    subprocess.run(list(map(str, convert)), check=True, capture_output=True)
    served = {}
    for slots in (1, 4):
        size = ("-c", slots * 2048, "-np", slots, "-t", 1, "-tb", 1, "--alias", "tiny", "--jinja")
        where = ("--host", "127.0.0.1", "--port")
        served[f"llama-server, {slots} slots"] = started.start(
            "tiny", binary, "-m", gguf, *size, *where
        )
    python = Path(os.environ.get("NEEDLEMAP_TRANSFORMERS_PYTHON", sys.executable))
    options = ("--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port")
    (folder / "home" / "hub").mkdir(parents=True)
    serve = (python.with_name("transformers"), "serve", TRAINED, *options)
    home = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    try:
        served["transformers serve"] = started.start(str(TRAINED), *serve, **home)
        yield {name: flags_of(each) for name, each in served.items()}
    finally:
        started.end()


def flags_of(served: Served) -> dict[str, Any]:
    """How a check asks a server of the trained model."""
    (Path(tempfile.gettempdir()) / "needlemap-chat.yaml").write_text(
        'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'
    )
    where = {
        "model": f"openai/{served.model}",
        "base_url": served.base_url,
        "tokenizer": str(TRAINED),
    }
    essays = {"haystack": "folder", "haystack_path": str(TRAINED.parent / "PaulGrahamEssays")}
    template = str(Path(tempfile.gettempdir()) / "needlemap-chat.yaml")
    return {**KNOWS, **where, **essays, "template": template, "max_answer_tokens": 20}


if __name__ == "__main__":
    main()
