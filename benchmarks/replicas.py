"""What the asking process does for a prompt that replicas answer: CPU and bytes, at 1k and 128k
tokens.

    python benchmarks/replicas.py

Two replicas on this machine, of a function that answers at once with a hash of what it was asked.
Counted is the second half of the prompts: the haystack has travelled by then, once to each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from distributed import Client
from distributed.comm.tcp import TCP

from machine import machine
from needlemap.asking import TrialObserver
from needlemap.asking.session import Session
from needlemap.cluster import Processes
from needlemap.cluster.cluster import FOLDER, OwnCluster
from needlemap.cluster.pool import make_replicas
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.settings.reading import configure
from needlemap.sync import run_coroutine
from needlemap.trials.build import Experiment, prepare
from table import rounded, show

REPLICAS = 2
FUNCTION = """
from hashlib import sha256
def answer(messages):
    return sha256(messages[-1]["content"].encode()).hexdigest()
"""


@dataclass(frozen=True)
class Cost:
    """Of one prompt: CPU of the asking process in ms, kB that it sends to its scheduler and on to a
    replica.

    haystack_mb: what it sent before, for each replica.
    """

    cpu_ms: float
    kb: float
    haystack_mb: float


class Meter(TrialObserver):
    """Looks at this process when the first so many prompts are answered. sent: bytes, by all
    connections."""

    def __init__(self, after: int) -> None:
        self._after, self.ended, self.sent, self.texts = after, 0, 0, 0
        self.cpu_s = self.sent_before = 0.0

    def recorded(self, record: Record) -> None:
        """Count one."""
        self.ended += 1
        if self.ended == self._after:
            self.cpu_s, self.sent_before = cpu_s(), self.sent


def cpu_s() -> float:
    """CPU seconds of this process so far, all threads."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured_cost(experiment: Experiment, folder: Path) -> Cost:
    """The cost of a prompt beyond the first ones. Raises RuntimeError where a replica saw another
    prompt."""
    jobs = Processes(folder / FOLDER, REPLICAS)
    model = make_replicas(experiment.settings, OwnCluster(jobs, folder / FOLDER, REPLICAS))
    meter = Meter(len(experiment.trials) // 2)
    write, scatter = TCP.write, Client.scatter

    async def counted(self: Any, *given: Any, **named: Any) -> int:
        sent: int = await write(self, *given, **named)
        meter.sent += sent
        return sent

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        meter.texts += 1
        return scatter(self, *given, **named)

    TCP.write, Client.scatter = counted, noted
    try:
        run_coroutine(Session.open(experiment, folder).run(model, meter))
        ended_s = cpu_s()
    finally:
        TCP.write, Client.scatter = write, scatter
    check(experiment, folder, meter.texts)
    rest = len(experiment.trials) - len(experiment.trials) // 2
    sent = meter.sent - meter.sent_before
    return Cost(
        1e3 * (ended_s - meter.cpu_s) / rest,
        sent / rest / 1e3,
        meter.sent_before / max(1, meter.texts) / 1e6,
    )


def check(experiment: Experiment, folder: Path, texts: int) -> None:
    """Raises RuntimeError where a replica saw another prompt, or a haystack travelled twice."""
    wanted = {
        trial.key: sha256(trial.prompt.messages[-1].data).hexdigest() for trial in experiment.trials
    }
    said = {record.key: record.answer for record in RunFolder(folder).records()}
    if said != wanted:
        raise RuntimeError(
            f"{sum(said.get(key) != text for key, text in wanted.items())} prompts differ there"
        )
    if not 1 <= texts <= REPLICAS:
        raise RuntimeError(f"one haystack was sent {texts} times to {REPLICAS} replicas")


def costs(length: int, depths: int, folder: Path) -> Cost:
    """What a length costs."""
    given = {
        "model": "python/hashed:answer",
        "lengths": [length],
        "depths": f"0:100:{depths}",
        "repeats": 1,
    }
    settings = configure(None, {**given, "max_answer_tokens": 100, "concurrency": 1})
    return measured_cost(prepare(settings), folder / str(length))


def main() -> None:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="few prompts")
    smoke = parser.parse_args().smoke
    depths = 12 if smoke else 100
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "hashed.py").write_text(FUNCTION)
        here = Path.cwd()
        os.chdir(folder)
        try:
            if not smoke:
                costs(500, 4, folder)  # what a first time takes
            found = {length: costs(length, depths, folder) for length in (1_000, 128_000)}
        finally:
            os.chdir(here)
            sys.path[:] = [each for each in sys.path if each != str(folder)]
    short, long = found[1_000], found[128_000]
    result = {
        "benchmark": "replicas",
        "cpu_128k_over_1k": rounded(long.cpu_ms / short.cpu_ms),
        "kb_128k": rounded(long.kb),
        "cpu_ms_1k": rounded(short.cpu_ms),
        "cpu_ms_128k": rounded(long.cpu_ms),
        "kb_1k": rounded(short.kb),
        "haystack_mb": rounded(long.haystack_mb),
    }
    rows = [
        [f"{length:,}", f"{cost.cpu_ms:.2f}", f"{cost.kb:.1f}"] for length, cost in found.items()
    ]
    notes = [f"the haystack of 128k tokens: {long.haystack_mb:.1f} MB, once to each replica"]
    header = ["tokens", "CPU ms a prompt", "kB a prompt"]
    show(
        "A prompt that replicas answer",
        machine("distributed", "numpy"),
        header,
        rows,
        notes,
        result,
    )


if __name__ == "__main__":
    main()
