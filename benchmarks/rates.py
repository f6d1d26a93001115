"""A run against a server with rate limits, beside the least time that the limits themselves allow.

    python benchmarks/rates.py

`times_floor` is the worst of all kinds of limit: 1 is the limit, 1.3 the target.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from machine import machine
from needlemap.asking.session import Session, make_model
from needlemap.reports.live import LiveView
from needlemap.settings.reading import configure
from needlemap.sync import run_coroutine
from needlemap.trials.build import prepare
from table import rounded, show

SERVER = Path(__file__).parent.parent / "tests" / "servers" / "wire.py"
TOKENS = 200  # of a prompt with its answer's budget
ANSWER_TOKENS = 7
LATENCY_S = 0.2


@dataclass(frozen=True)
class Case:
    """A server's limits (see tests/servers/wire_limits.py), and settings of the run."""

    name: str
    limits: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


def cases(rate: float) -> list[Case]:
    """All kinds of limit, each letting so many requests through per second."""
    requests = {"requests_per_minute": 60 * rate, "burst": 1 / 60}  # a second's allowance at a time
    plain = requests | {"headers": "none"}
    window = {"requests_per_minute": 60 * rate, "window_s": 3}
    return [
        Case("requests, OpenAI's headers", requests),
        Case(
            "requests, Anthropic's headers",
            requests | {"headers": "anthropic"},
            {"model": "anthropic/m"},
        ),
        Case("tokens, OpenAI's headers", {"tokens_per_minute": 60 * rate * 155, "burst": 1 / 60}),
        Case("windows of 3 s, OpenAI's headers", window),
        Case("windows of 3 s, Retry-After", window | {"headers": "none", "retry_after": "seconds"}),
        Case("Retry-After in ms, no headers", plain),
        Case("Retry-After in whole s, no headers", plain | {"retry_after": "seconds"}),
        Case("429 and nothing else", plain | {"retry_after": False}),
        Case("our own --requests-per-minute", {}, {"requests_per_minute": 60 * rate}),
        Case("our own --tokens-per-minute", {}, {"tokens_per_minute": 60 * rate * 155}),
    ]


def main() -> None:
    """Measure and report."""
    options = _options()
    chosen = [case for case in cases(options.rate) if options.only in case.name]
    found = {case.name: measure(case, options) for case in chosen}
    ratios = {name: wall_s / floor_s for name, (wall_s, floor_s, _) in found.items()}
    worst = max(ratios.values())
    show(
        f"{options.trials} trials, {options.concurrency} lanes, {LATENCY_S:g} s an answer, against "
        f"limits "
        f"that let {options.rate:g} requests a second through",
        machine("needlemap", "httpx"),
        ("limit", "seconds", "floor", "times", "429s"),
        [
            (name, f"{wall_s:.2f}", f"{floor_s:.2f}", f"{ratios[name]:.2f}", str(refused))
            for name, (wall_s, floor_s, refused) in found.items()
        ],
        ["Floor: what the limit's own allowance takes to let all through, and one answer."],
        {
            "benchmark": "rates",
            "times_floor": rounded(worst),
            **{f"times_{_word(name)}": rounded(ratio) for name, ratio in ratios.items()},
        },
    )


def measure(case: Case, options: argparse.Namespace) -> tuple[float, float, int]:
    """(seconds from first request to last answer, the limit's floor, refusals). Checks that all is
    scored."""
    with server(case.limits) as root, tempfile.TemporaryDirectory() as folder:
        anthropic = case.settings.get("model", "").startswith("anthropic")
        settings = {
            "model": "openai/m",
            "base_url": root if anthropic else f"{root}/v1",
            "tokenizer": "cl100k_base",
            "max_answer_tokens": 40,
            "lengths": str(TOKENS),
            "depths": "50",
            "repeats": options.trials,
            "concurrency": options.concurrency,
            "mode": "single",
            **case.settings,
        }
        session = Session.open(prepare(configure(None, settings)), Path(folder) / "run")
        outcome = run_coroutine(session.run(make_model(session.experiment.settings), LiveView()))
        if outcome.scored != options.trials or outcome.failures:
            raise RuntimeError(f"{case.name}: {outcome}")
        with urlopen(f"{root}/log") as reply:
            log = json.load(reply)["requests"]
    taken = [request for request in log if not request["refused"]]
    wall_s = max(request["time"] for request in taken) + LATENCY_S - log[0]["time"]
    counted = (
        "tokens" if "tokens_per_minute" in case.limits else "prompt_words"
    )  # with the answer's budget?
    floor_s = floor(case, [request[counted] for request in taken], options.rate) + LATENCY_S
    return wall_s, floor_s, len(log) - len(taken)


def floor(case: Case, tokens: Sequence[int], rate: float) -> float:
    """The least seconds between the first and the last of requests that take so many tokens
    each."""
    limits, n = case.limits, len(tokens)
    if "window_s" in limits:
        each = limits["requests_per_minute"] * limits["window_s"] / 60
        return float((math.ceil(n / each) - 1) * limits["window_s"])
    if "tokens_per_minute" in limits:
        per_s = limits["tokens_per_minute"] / 60
        return max(0.0, sum(tokens) / per_s - limits["burst"] * 60)
    if "requests_per_minute" in limits:
        return n / rate - limits["burst"] * 60
    if (
        "tokens_per_minute" in case.settings
    ):  # as the server counts them in the end, but for the last one's
        return (
            (sum(tokens) + ANSWER_TOKENS * n)
            * (n - 1)
            / n
            * 60
            / case.settings["tokens_per_minute"]
        )
    return (n - 1) / rate


@contextmanager
def server(limits: Mapping[str, Any]) -> Iterator[str]:
    """The address of a server process with these limits, each answer taking its time."""
    slow = json.dumps([f"slow:{LATENCY_S}"])
    command = [
        sys.executable,
        str(SERVER),
        "--limit",
        json.dumps(dict(limits)),
        "--schedule",
        slow,
        "--cycle",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def _word(name: str) -> str:
    return "_".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A run against a limited server, beside the limit's floor."
    )
    parser.add_argument("--trials", type=int, default=240)
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--smoke", action="store_true", help="a few trials: does it work at all?")
    options = parser.parse_args()
    if options.smoke:
        options.trials, options.only = 30, "requests"
    return options


if __name__ == "__main__":
    main()
