"""Storms of a real llama-server that serves the gauge: honest ways to run it, and a proxy in front
of it that spoils one answer in 200, or moves margins behind a cache hit.

    python benchmarks/storm.py --real MINUTES --keep FILE

storms each for so many minutes at most, and keeps a line of each storm in FILE.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "servers"))

from between import SPOILT, Moving, Spoiling, between  # of tests/servers

from needlemap.servers.storm.file import STORM
from real_engines import Case, cpu_s, serving

TOKENS = 1_200  # of the longest prompt: the gauge holds to 16,000, and a small share of a processor
EVERY = 200  # answers, one of which is spoilt
MOVED, NATS = "moved", 0.3  # a token, of answers behind a cache hit


def real_cases() -> Iterator[dict[str, Any]]:
    """What a line is kept for: slots, RAM cache, and what the proxy does, '' without one."""
    for slots, ram in product((1, 4), ("on", "off")):
        yield {"slots": slots, "ram": ram, "proxy": ""}
    for proxy in (*SPOILT, MOVED):
        yield {"slots": 4, "ram": "on", "proxy": proxy}


def real_storm(slots: int, ram: str, proxy: str, minutes: float, number: int) -> dict[str, Any]:
    """What a storm came to. number: of several of one kind, and the proxy's seed. code: its exit
    code; said: what it found; seconds: on the clock; cpu_s: of the storm and the server."""
    case = Case("storm", slots=slots, options=("-cram", 0) * (ram == "off"))
    before = cpu_s()
    with tempfile.TemporaryDirectory() as place, serving(case, TOKENS, Path(place)) as served:
        with altering(served.root, proxy, number) as root:
            asked = ("--model", f"openai/{served.model}", "--base-url", f"{root}/v1", "--load", 4)
            sizes = ("--max-length", TOKENS, "--minutes", minutes)
            folder, began = Path(place) / "storm", monotonic()
            code = "from needlemap.cli import main; main()"
            command = (sys.executable, "-c", code, "storm", *asked, *sizes, "--quiet", "-o", folder)
            ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            seconds = monotonic() - began
        assert ended.returncode in (0, 1, 4, 5), ended.stderr
        found = STORM.read(folder)
    return {
        "code": ended.returncode,
        "requests": found.requests,
        "counts": found.counts,
        "said": found.said,
        "seconds": round(seconds),
        "cpu_s": round(cpu_s() - before),
    }


def altering(root: str, proxy: str, seed: int) -> AbstractContextManager[str]:
    """The address of a proxy in front of a server; the server's own where none is named."""
    if not proxy:
        return nullcontext(root)
    made = Moving(NATS) if proxy == MOVED else Spoiling(proxy, EVERY, seed)
    return between(root, replied=made)


def summed(storms: list[dict[str, Any]]) -> dict[str, object]:
    """Minutes, requests and alarms of honest servers; proxies, and how many of them were found."""
    honest = [each for each in storms if not each["proxy"]]
    spoilt = [each for each in storms if each["proxy"]]
    return {
        "real_configurations": len({(each["slots"], each["ram"]) for each in honest}),
        "real_minutes": round(sum(each["seconds"] for each in honest) / 60, 1),
        "real_requests": sum(each["requests"] for each in honest),
        "real_alarms": sum(each["code"] in (1, 5) for each in honest),
        "real_proxies": len({each["proxy"] for each in spoilt}),
        "real_proxies_found": len({each["proxy"] for each in spoilt if each["code"] == 1}),
    }
