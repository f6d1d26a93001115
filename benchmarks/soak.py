"""A long run against a server on this machine: does memory grow, do file descriptors stay open?

    python benchmarks/soak.py

`growth` is the run's memory at its end over what it was after the first tenth, 1 for none;
`descriptors` how many more are open at the end. A tenth of the requests fail, in five ways.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from machine import machine
from needlemap.asking import TrialObserver
from needlemap.asking.session import Session, make_model
from needlemap.records.record import Record
from needlemap.settings.reading import configure
from needlemap.sync import run_coroutine
from needlemap.trials.build import prepare
from table import rounded, show

SERVER = Path(__file__).parent.parent / "tests" / "servers" / "wire.py"
FAULTS = ["ok"] * 90 + ["429-ms:5", "500", "reset", "cut", "invalid-json"] * 2
PAGE_KB = os.sysconf("SC_PAGE_SIZE") / 1024


@dataclass(frozen=True)
class Look:
    """The process after so many trials: its resident memory, and its open file descriptors."""

    trials: int
    mb: float
    descriptors: int


class Watch(TrialObserver):
    """Looks at its own process every so many trials."""

    def __init__(self, every: int) -> None:
        self.every, self.ended, self.looks = every, 0, list[Look]()

    def recorded(self, record: Record) -> None:
        """A trial ended."""
        self.ended += 1
        if self.ended % self.every == 0:
            self.looks.append(look(self.ended))


def main() -> None:
    """Run and report."""
    options = _options()
    watch = Watch(options.trials // 10)
    with server() as address, tempfile.TemporaryDirectory() as folder:
        settings = {
            "model": "openai/m",
            "base_url": address,
            "tokenizer": "cl100k_base",
            "max_answer_tokens": 40,
            "lengths": "200:400:10",
            "depths": "0:100:10",
            "repeats": options.trials // 100,
            "concurrency": 16,
            "retries": 2,
        }
        session = Session.open(prepare(configure(None, settings)), Path(folder) / "run")
        before = len(os.listdir("/proc/self/fd"))
        outcome = run_coroutine(session.run(make_model(session.experiment.settings), watch))
        left_open = len(os.listdir("/proc/self/fd")) - before
    ended = outcome.scored + sum(outcome.failures.values())
    trials = len(session.experiment.trials)  # cells that come to the same prompt share one
    if ended != trials or outcome.over:
        raise RuntimeError(f"{ended} of {trials} trials ended: {outcome}")
    first, last = watch.looks[0], watch.looks[-1]
    show(
        f"{trials:,} trials on a loopback server, 16 at a time: {outcome.scored:,} scored",
        machine("needlemap", "httpx"),
        ("trials", "resident MB", "descriptors"),
        [(f"{each.trials:,}", f"{each.mb:.1f}", str(each.descriptors)) for each in watch.looks],
        [
            f"Not scored: {dict(outcome.failures)}.",
            f"Open when all was closed, and not before: {left_open}.",
        ],
        {
            "benchmark": "soak",
            "growth": rounded(last.mb / first.mb, 4),
            "descriptors": last.descriptors - first.descriptors,
            "left_open": left_open,
            "trials": options.trials,
        },
    )


def look(trials: int) -> Look:
    """This process, now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Look(trials, pages * PAGE_KB / 1024, len(os.listdir("/proc/self/fd")))


@contextmanager
def server() -> Iterator[str]:
    """The address of a server process that fails as in `FAULTS`, again and again."""
    command = [sys.executable, str(SERVER), "--schedule", json.dumps(FAULTS), "--cycle"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A long run: does memory grow?")
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument(
        "--smoke", action="store_true", help="a few hundred trials: does it work at all?"
    )
    options = parser.parse_args()
    if options.smoke:
        options.trials = 300
    return options


if __name__ == "__main__":
    main()
