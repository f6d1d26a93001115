"""Does `needlemap storm` find faults of serving state, blame no honest server, and shrink what it
finds to a script that shows it?

    python benchmarks/storm.py [--faults NAME,NAME] [--clean N] [--cpu-s S] [--smoke]

The faults are those of tests/storm/boxed_engine.py, an engine in a box with one fault each, after
public threads, and those of reported_faults.py, whose author had not read the storm's operations
("independent"). A fault is found if a storm ends with exit code 1 within so many CPU seconds.
Beside it stands what a storm of as many requests finds that only asks fresh prompts. Clean storms
are of the sound engine with other caches, slots, limits and noise. Coverage is that of the bound at
every look over simulated storms whose faults come singly and in runs of 1 to 50 inside a family.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from machine import machine
from table import rounded, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "storm"))
from boxed_engine import FAULTS, Engine
from boxed_reader import Boxed
from reported_faults import REPORTED, make_engine

from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.maps.rare import highest_rate
from needlemap.models import Answer, Decoding
from needlemap.prompts import Prompt
from needlemap.storm.act import Round
from needlemap.storm.operations.fresh import Fresh
from needlemap.storm.plan import make_round
from needlemap.storm.repro import write_repro
from needlemap.storm.shrink import SELDOM, Shrinking, Shrunk
from needlemap.storm.storm import Storm, StormOptions
from needlemap.storm.storming import StormInRounds

ROOT = Path(__file__).resolve().parents[1]
FLAGS = {
    "model": "openai/box",
    "base_url": "http://127.0.0.1:1/v1",
    "tokenizer": "cl100k_base",
    "max_answer_tokens": 60,
}
SMALL: dict[str, Any] = {"pages": 300, "host": 400}
KV = 4_800  # tokens of 300 pages
HONEST: tuple[dict[str, Any], ...] = (
    SMALL,
    {**SMALL, "cache": False},
    {"pages": 120, "host": 0},
    {**SMALL, "slots": 1},
    {**SMALL, "noise": 0.01},
    {**SMALL, "noise": 0.03},
    {**SMALL, "step_s": 0.0005},
    {**SMALL, "limited": 12},
)
THREADS = {name: fault.thread for name, fault in FAULTS.items()}
THREADS |= {name: fault.thread for name, (fault, _) in REPORTED.items()}
SMOKE = ("turn", "poisoned")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", default=",".join(THREADS), help="Names, with commas.")
    parser.add_argument("--clean", type=int, default=200, help="Storms of sound engines.")
    parser.add_argument("--cpu-s", type=float, default=300.0, help="CPU seconds of a storm.")
    parser.add_argument("--clean-rounds", type=int, default=15, help="Rounds of a clean storm.")
    parser.add_argument("--scripts", type=int, default=20, help="Runs of each script.")
    parser.add_argument("--covers", type=int, default=1_000, help="Simulated storms.")
    parser.add_argument("--smoke", action="store_true", help="Two faults, one clean storm.")
    options = parser.parse_args()
    names = SMOKE if options.smoke else tuple(filter(None, options.faults.split(",")))
    cpu_s = min(options.cpu_s, 60.0) if options.smoke else options.cpu_s
    clean = 1 if options.smoke else options.clean
    scripts = 1 if options.smoke else options.scripts
    rows, found, alone, small, often, fails, wrong, plays = [], set(), set(), 0, 0, 0, 0, 0
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "storm"
            code, seconds, requests = stormed(name, folder, cpu_s)
            fresh = stormed_fresh(name, Path(place) / "fresh", requests)
            found |= {name} if code == 1 else set()
            alone |= {name} if fresh == 1 else set()
            shrunk = shrunk_of(name, folder, cpu_s) if code == 1 else None
            failed = 0
            if shrunk and shrunk.rate >= SELDOM:
                often += 1
                small += len(shrunk.sequence.acts) <= 6
                storm = Storm.of(asked(), folder)
                write_repro(storm, shrunk, folder)
                plays += scripts
                failed = sum(played(folder, name, number) == 1 for number in range(scripts))
                fails += failed
                wrong += sum(played(folder, "", number) == 1 for number in range(scripts))
        size = f"{len(shrunk.sequence.acts)} of {shrunk.was}" if shrunk else "-"
        rate = f"{shrunk.failed} of {shrunk.of}" if shrunk else "-"
        script = f"{failed} of {scripts}" if shrunk and shrunk.rate >= SELDOM else "-"
        verdict = "found" if code == 1 else f"code {code}"
        lone = "found" if fresh == 1 else f"code {fresh}"
        rows.append((name, verdict, f"{seconds:.1f}", f"{requests:,}", lone, size, rate, script))
        print(*rows[-1], sep=" · ", file=sys.stderr, flush=True)
    alarms = sum(alarmed(number, options.clean_rounds) for number in range(clean))
    covers = covered(50 if options.smoke else options.covers)
    result = {
        "benchmark": "storm",
        "faults": len(names),
        "found": len(found),
        "independent": len(REPORTED.keys() & set(names)),
        "independent_found": len(REPORTED.keys() & found),
        "fresh_found": len(alone),
        "shrunk_to_6": rounded(small / often) if often else None,
        "repro_fails": rounded(fails / plays) if plays else None,
        "repro_clean": wrong,
        "clean": clean,
        "alarms": alarms,
        "bound_covers": rounded(covers),
    }
    header = ("fault", "verdict", "CPU s", "requests", "fresh", "shrunk", "replays", "script")
    notes = [f"{name}: {THREADS[name]}" for name in names]
    show("Faults of serving state, found by storm", machine(), header, rows, notes, result)


def asked() -> StormOptions:
    """What all storms are asked."""
    return StormOptions(FLAGS, max_length=2_000, load=4, kv_tokens=KV)


def stormed(name: str, folder: Path, cpu_s: float) -> tuple[int, float, int]:
    """A storm of a faulty engine: exit code, CPU seconds, requests."""
    began = process_time()
    asking = Timed(Storm.of(asked(), folder, 1), cpu_s, Boxed(make_engine(name, **SMALL)))
    found = asyncio.run(asking.run())
    return found.code, process_time() - began, sum(asking._sent.values())


def stormed_fresh(name: str, folder: Path, requests: int) -> int:
    """The exit code of a storm of as many requests that only asks fresh prompts."""
    storm = FreshStorm.of(asked(), folder, 1)
    asking = Counted(storm, requests, Boxed(make_engine(name, **SMALL)))
    return asyncio.run(asking.run()).code


class Alone(Fresh):
    """A family's further operations are fresh prompts too."""

    share = 1.0


class FreshStorm(Storm):
    """Asks fresh prompts alone."""

    def round(self, number: int) -> Round:
        return make_round(self.seed, number, self.limits, (Alone(),))


class Timed(StormInRounds):
    """A storm that ends after so many CPU seconds."""

    def __init__(self, storm: Storm, cpu_s: float, model: Boxed) -> None:
        super().__init__(storm, make=lambda _: model)
        self.until_s = process_time() + cpu_s

    def _ends(self) -> bool:
        return super()._ends() or process_time() > self.until_s


class Counted(StormInRounds):
    """A storm that ends after so many requests."""

    def __init__(self, storm: Storm, requests: int, model: Boxed) -> None:
        super().__init__(storm, make=lambda _: model)
        self.requests = requests

    def _ends(self) -> bool:
        return super()._ends() or sum(self._sent.values()) >= self.requests


class ShrinkingFor(Shrinking):
    """Shrinks until so many CPU seconds are spent."""

    def __init__(self, storm: Storm, cpu_s: float, model: Boxed) -> None:
        super().__init__(storm, make=lambda _: model)
        self.until_s = process_time() + cpu_s

    def _once(self, *given: Any, **more: Any) -> Any:
        if process_time() > self.until_s:
            self.stopped = self.stopped or "its time is spent"
        return super()._once(*given, **more)


def shrunk_of(name: str, folder: Path, cpu_s: float) -> Shrunk | None:
    """The shortest sequence, found on a fresh faulty engine; None where no replay shows it."""
    engine = Boxed(make_engine(name, **SMALL, seed=2))
    asking = ShrinkingFor(Storm.of(asked(), folder), cpu_s, engine)
    try:
        asyncio.run(asking.run())
    except NeedlemapError:
        return None
    return asking.shrunk


def played(folder: Path, fault: str, seed: int) -> int:
    """The script's exit code against a fresh engine over HTTP."""
    engine = [sys.executable, str(ROOT / "tests" / "storm" / "reported_faults.py")]
    small = ["--pages", str(SMALL["pages"]), "--host-pages", str(SMALL["host"])]
    command = [*engine, "--fault", fault, "--seed", str(seed), *small]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
            script = [sys.executable, str(folder / "repro.py"), url, "box"]
            return subprocess.run(script, capture_output=True, timeout=600).returncode
        finally:
            server.kill()


class Limited(Boxed):
    """A server that takes no more than so many requests at once: the next is to come again; 0 for
    one without a limit."""

    def __init__(self, engine: Engine, every: int) -> None:
        super().__init__(engine)
        self.every, self.seen = every, 0

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        self.seen += 1
        if self.every and self.seen % self.every == 0:
            raise Unmeasured(Failure.RATE_LIMITED, "slow down", transient=True, retry_after_s=0.01)
        return await super().answer(prompt, decoding)


def alarmed(number: int, rounds: int) -> bool:
    """Whether a storm of a sound engine blames it."""
    kind = dict(HONEST[number % len(HONEST)])
    limited = kind.pop("limited", 0)
    with tempfile.TemporaryDirectory() as place:
        storm = Storm.of(asked(), Path(place) / "storm", 1_000 + number)
        engine = Limited(Engine("", **kind, seed=number), limited)
        asking = StormInRounds(storm, make=lambda _: engine, rounds=rounds)
        code = asyncio.run(asking.run()).code
    kinds = {**kind, "limited": limited}
    print(f"clean {number}: {kinds}: code {code}", file=sys.stderr, flush=True)
    return code in (1, 5)


def covered(storms: int) -> float:
    """Share of simulated storms whose bound was never below the rate at any look: it falls with
    each family without a fault, so its lowest are those before the next fault, and the last."""
    held = 0
    for number in range(storms):
        random = Random(f"covers:{number}")
        rate = 10 ** random.uniform(-3, -1)
        run = random.choice((1, 1, 2, 5, 10, 20, 50))
        size = max(run, random.choice((1, 4, 8, 50)))
        share, faulty, low = run / size, 0.0, False
        rate = min(rate, share)
        for family in range(1_000):
            if random.random() < rate / share:
                low |= highest_rate(round(faulty, 6), family) < rate
                faulty += share
        held += not low and highest_rate(round(faulty, 6), 1_000) >= rate
    return held / storms


if __name__ == "__main__":
    main()
