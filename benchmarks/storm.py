"""Does `needlemap storm` find faults of serving state, blame no honest server, and shrink what it
finds to a script that shows it?

    python benchmarks/storm.py [--faults NAME,NAME] [--clean N] [--cpu-s S] [--keep FILE] [--smoke]
    python benchmarks/storm.py --real MINUTES [--times N] [--keep FILE]

The faults are those of boxed_engine.py in tests/wings/servers/storm, an engine in a box with one
fault each, after public threads, and those of reported_faults.py, whose author had not read the
storm's operations ("independent"). A fault is found if a storm ends with exit code 1 within so many
CPU seconds.
Beside it stands what a storm of as many requests finds that only asks fresh prompts. Clean storms
are of the sound engine with other caches, slots, limits and noise. Coverage is that of the bound at
every look over simulated storms whose faults come singly and in runs of 1 to 50 inside a family.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from machine import machine
from table import rounded, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/wings/servers/storm"))
from boxed_engine import FAULTS, Engine
from boxed_reader import Boxed
from reported_faults import REPORTED, make_engine

from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.prompts import Prompt
from needlemap.servers.storm.act import Round
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.plan import make_round
from needlemap.servers.storm.repro import write_repro
from needlemap.servers.storm.shrink import SELDOM, Shrinking, Shrunk
from needlemap.servers.storm.storm import Storm, StormOptions
from needlemap.servers.storm.storming import StormInRounds
from needlemap.stats.bets import highest_rate
from needlemap.stats.verdicts import exit_code

TESTS = Path(__file__).resolve().parents[1] / "tests/wings/servers/storm"
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
    parser.add_argument("--clean-seed", type=int, default=1_000, help="Seed of the first of them.")
    parser.add_argument("--scripts", type=int, default=20, help="Runs of each script.")
    parser.add_argument("--covers", type=int, default=1_000, help="Simulated storms.")
    parser.add_argument("--keep", type=Path, help="A line for each part; what it holds is kept.")
    parser.add_argument("--real", type=float, help="Minutes of each storm of a llama-server.")
    parser.add_argument("--times", type=int, default=1, help="With --real: storms of each kind.")
    parser.add_argument("--smoke", action="store_true", help="Two faults, one clean storm.")
    options = parser.parse_args()
    if options.smoke:
        options.cpu_s, options.clean, options.scripts = min(options.cpu_s, 60.0), 1, 1
        options.faults, options.covers = ",".join(SMOKE), 50
    names = tuple(filter(None, options.faults.split(",")))
    kept = Kept(options.keep)
    if options.real:
        real(kept, options.real, options.times)
        return
    limits = {"cpu_s": options.cpu_s, "scripts": options.scripts}
    faults = [kept.part(fault_of, fault=name, **limits) for name in names]
    seeds = range(options.clean_seed, options.clean_seed + options.clean)
    clean = [kept.part(clean_of, clean=seed, rounds=options.clean_rounds) for seed in seeds]
    covers = kept.part(covers_of, covers=options.covers)["share"]
    found = {each["fault"] for each in faults if each["code"] == 1}
    often = [each for each in faults if each["of"] and each["failed"] / each["of"] >= SELDOM]
    plays = options.scripts * len(often)
    result = {
        "benchmark": "storm",
        "faults": len(names),
        "found": len(found),
        "independent": len(REPORTED.keys() & set(names)),
        "independent_found": len(REPORTED.keys() & found),
        "fresh_found": sum(each["fresh"] == 1 for each in faults),
        "shrunk_to_6": share_of(sum(each["size"] <= 6 for each in often), len(often)),
        "repro_fails": share_of(sum(each["fails"] for each in often), plays),
        "repro_clean": sum(each["blames"] for each in often),
        "clean": len(clean),
        "alarms": sum(each["code"] in (1, 5) for each in clean),
        "bound_covers": rounded(covers),
    }
    header = ("fault", "verdict", "CPU s", "requests", "fresh", "shrunk", "replays", "script")
    rows = [row_of(each, options.scripts) for each in faults]
    notes = [f"{name}: {THREADS[name]}" for name in names]
    show("Faults of serving state, found by storm", machine(), header, rows, notes, result)


def real(kept: Kept, minutes: float, times: int) -> None:
    """Storms of llama-server with the gauge, and of a proxy in front of it."""
    from real_storms import real_cases, real_storm, summed  # they need a llama-server

    found = [
        kept.part(real_storm, **case, minutes=minutes, number=number)
        for number in range(times)
        for case in real_cases()
    ]
    header = ("slots", "RAM cache", "proxy", "verdict", "requests", "seconds", "CPU s")
    rows = [
        (
            str(each["slots"]),
            each["ram"],
            each["proxy"] or "-",
            f"code {each['code']}",
            f"{each['requests']:,}",
            str(each["seconds"]),
            str(each["cpu_s"]),
        )
        for each in found
    ]
    notes = [line for each in found if each["code"] == 1 for line in each["said"][:1]]
    result = {"benchmark": "storm", **summed(found)}
    show("llama-server with the gauge, stormed", machine(), header, rows, notes, result)


class Kept:
    """Parts of a benchmark that are measured once: a line of JSON for each in a file, where one is
    given."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        lines = file.read_text("utf-8").splitlines() if file and file.is_file() else []
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def part(self, measure: Callable[..., dict[str, Any]], **asked: Any) -> dict[str, Any]:
        """What is asked of a part and what was measured."""
        for line in self.lines:
            if asked.items() <= line.items():
                return line
        line = asked | measure(**asked)
        text = json.dumps(line)
        print(text, file=sys.stderr, flush=True)
        if self.file:
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(text + "\n")
        return line


def share_of(count: int, of: int) -> float | None:
    """A share as the result holds it; None of nothing."""
    return rounded(count / of) if of else None


def fault_of(fault: str, cpu_s: float, scripts: int) -> dict[str, Any]:
    """What came of a fault. code, fresh: exit codes of its storm and of one of fresh prompts alone.
    size, was: requests of the shrunk sequence and before; failed, of: its replays. fails, blames:
    runs of its script that failed against the faulty engine and against a sound one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "storm"
        code, seconds, requests = stormed(fault, folder, cpu_s)
        fresh = stormed_fresh(fault, Path(place) / "fresh", requests)
        shrunk = shrunk_of(fault, folder, cpu_s) if code == 1 else None
        fails = blames = 0
        if shrunk and shrunk.rate >= SELDOM:
            write_repro(Storm.of(asked(), folder), shrunk, folder)
            fails = sum(played(folder, fault, number) == 1 for number in range(scripts))
            blames = sum(played(folder, "", number) == 1 for number in range(scripts))
    return {
        "code": code,
        "seconds": round(seconds, 1),
        "requests": requests,
        "fresh": fresh,
        "size": len(shrunk.sequence.acts) if shrunk else 0,
        "was": shrunk.was if shrunk else 0,
        "failed": shrunk.failed if shrunk else 0,
        "of": shrunk.of if shrunk else 0,
        "fails": fails,
        "blames": blames,
    }


def row_of(fault: dict[str, Any], scripts: int) -> tuple[str, ...]:
    """A fault in words."""

    def verdict(code: int) -> str:
        return "found" if code == 1 else f"code {code}"

    shrunk = bool(fault["of"])
    played = shrunk and fault["failed"] / fault["of"] >= SELDOM
    return (
        fault["fault"],
        verdict(fault["code"]),
        f"{fault['seconds']:.1f}",
        f"{fault['requests']:,}",
        verdict(fault["fresh"]),
        f"{fault['size']} of {fault['was']}" if shrunk else "-",
        f"{fault['failed']} of {fault['of']}" if shrunk else "-",
        f"{fault['fails']} of {scripts}" if played else "-",
    )


def asked() -> StormOptions:
    """What all storms are asked."""
    return StormOptions(FLAGS, max_length=2_000, load=4, kv_tokens=KV)


def stormed(name: str, folder: Path, cpu_s: float) -> tuple[int, float, int]:
    """A storm of a faulty engine: exit code, CPU seconds, requests."""
    began = process_time()
    asking = Timed(Storm.of(asked(), folder, 1), cpu_s, Boxed(make_engine(name, **SMALL)))
    found = asyncio.run(asking.run())
    return exit_code(found.verdict.word), process_time() - began, asking.sender.sent.total()


def stormed_fresh(name: str, folder: Path, requests: int) -> int:
    """The exit code of a storm of as many requests that only asks fresh prompts."""
    storm = FreshStorm.of(asked(), folder, 1)
    asking = Counted(storm, requests, Boxed(make_engine(name, **SMALL)))
    return exit_code(asyncio.run(asking.run()).verdict.word)


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

    def _is_decided(self) -> bool:
        return super()._is_decided() or process_time() > self.until_s


class Counted(StormInRounds):
    """A storm that ends after so many requests."""

    def __init__(self, storm: Storm, requests: int, model: Boxed) -> None:
        super().__init__(storm, make=lambda _: model)
        self.requests = requests

    def _is_decided(self) -> bool:
        return super()._is_decided() or self.sender.sent.total() >= self.requests


class ShrinkingFor(Shrinking):
    """Shrinks until so many CPU seconds are spent."""

    def __init__(self, storm: Storm, cpu_s: float, model: Boxed) -> None:
        super().__init__(storm, make=lambda _: model)
        self.until_s = process_time() + cpu_s

    def _once(self, *given: Any, **more: Any) -> Any:
        if process_time() > self.until_s:
            self.sender.stopped = self.stopped or "its time is spent"
        return super()._once(*given, **more)


def shrunk_of(name: str, folder: Path, cpu_s: float) -> Shrunk | None:
    """The shortest sequence, found on a faulty engine that is started anew where a replay spoilt
    it; None where no replay shows it."""
    engine = Boxed(make_engine(name, **SMALL, seed=2))
    asking = ShrinkingFor(Storm.of(asked(), folder), cpu_s, engine)
    asking.restart = lambda: setattr(engine, "engine", make_engine(name, **SMALL, seed=2))
    try:
        asyncio.run(asking.run())
    except NeedlemapError:
        return None
    return asking.shrunk


def played(folder: Path, fault: str, seed: int) -> int:
    """The script's exit code against a fresh engine over HTTP."""
    engine = [sys.executable, str(TESTS / "reported_faults.py")]
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


def clean_of(clean: int, rounds: int) -> dict[str, Any]:
    """The exit code of a storm of a sound engine, and which it was. clean: the storm's seed."""
    kind = dict(HONEST[clean % len(HONEST)])
    limited = kind.pop("limited", 0)
    with tempfile.TemporaryDirectory() as place:
        storm = Storm.of(asked(), Path(place) / "storm", clean)
        engine = Limited(Engine("", **kind, seed=clean), limited)
        asking = StormInRounds(storm, make=lambda _: engine, rounds=rounds)
        code = exit_code(asyncio.run(asking.run()).verdict.word)
    return {"engine": {**kind, "limited": limited}, "code": code}


def covers_of(covers: int) -> dict[str, Any]:
    """Share of simulated storms whose bound was never below the rate at any look: it falls with
    each family without a fault, so its lowest are those before the next fault, and the last."""
    held = 0
    for number in range(covers):
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
    return {"share": held / covers}


if __name__ == "__main__":
    main()
