"""A run's own speed: cells per second against an instant server, beside a bare HTTP client; and a
resume.

    python benchmarks/runner.py [--essays FOLDER] [--concurrency N] [--rounds N] [--smoke]

The server is `tests/servers/wire.py --instant`, another process on this machine. The limit is the
HTTP client that needlemap stands on (httpx), posting the very same bodies, made beforehand, with
the same concurrency, and keeping nothing. Ours is a whole run: prompts joined from spans, replies
read within bounds, answers scored, records written and fsynced. The two take turns; shares are
medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, TypeVar
from urllib.request import urlopen

import httpx

from essays import essays
from machine import machine, run
from needlemap.asking.session import Session, make_model
from needlemap.models import Decoding
from needlemap.models.openai import OpenAIModel
from needlemap.reports.live import LiveView
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.trials.build import Experiment, prepare
from table import rounded, show

_HERE = Path(__file__).resolve().parent
_SERVER = _HERE.parent / "tests" / "servers" / "wire.py"
_RESUME = _HERE / "sides" / "resume.py"


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds per cell: on the clock, and of this process's CPU time."""

    wall_s: float
    cpu_s: float


Round = tuple[Speed, Speed]  # ours, the limit
T = TypeVar("T")


def main() -> None:
    """Measure, verify, print."""
    options = _options()
    with TemporaryDirectory() as scratch:
        folder, about = essays(options.essays, Path(scratch) / "essays")
        with server() as url:
            check_bodies(_settings(folder, url, "1000", "50", options), Path(scratch))
        with server("--instant") as url:
            found = {
                name: rounds(
                    _settings(folder, url, str(tokens), f"0:100:{cells}", options),
                    Path(scratch) / name,
                    options.rounds,
                )
                for name, tokens, cells in options.cells
            }
            settings = _settings(folder, url, options.lengths, options.depths, options)
            resumed = resume(settings, Path(scratch) / "finished", options.rounds)
    _report(options, about, found, resumed)


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """A wire server process; its base URL."""
    command = [sys.executable, str(_SERVER), "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def bodies_of(experiment: Experiment) -> list[bytes]:
    """What is sent for each trial."""
    settings = experiment.settings
    decoding = Decoding(settings.max_answer_tokens, settings.temperature)
    model = OpenAIModel(settings.model_name, base_url=settings.base_url)
    return [model.body(trial.prompt, decoding) for trial in experiment.trials]


def check_bodies(settings: Settings, scratch: Path) -> None:
    """Raises RuntimeError unless a run sends, to the last byte, what the bare client will send."""
    experiment = prepare(settings)
    ask(experiment, scratch / "read")
    with urlopen(f"{str(settings.base_url).removesuffix('/v1')}/log", timeout=10) as reply:
        sent = [request["sha256"] for request in json.load(reply)["requests"]]
    if sent != [sha256(body).hexdigest() for body in bodies_of(experiment)]:
        raise RuntimeError(
            "The bare client would not send what a run sends: the two cannot be compared."
        )


def rounds(settings: Settings, scratch: Path, count: int) -> list[Round]:
    """Ours and the limit by turns, after one turn each to warm up."""
    experiment = prepare(settings)
    bodies = bodies_of(experiment)
    turns = [
        (ask(experiment, scratch / str(turn)), post(bodies, settings)) for turn in range(count + 1)
    ]
    return turns[1:]


def timed(work: Coroutine[Any, Any, T], cells: int) -> tuple[Speed, T]:
    """What a cell costs, and what came of it."""
    wall, cpu = perf_counter(), process_time()
    result = asyncio.run(work)
    return Speed((perf_counter() - wall) / cells, (process_time() - cpu) / cells), result


def ask(experiment: Experiment, folder: Path) -> Speed:
    """A whole run into a new folder. Raises RuntimeError when a trial is left without a score."""
    session, model = Session.open(experiment, folder), make_model(experiment.settings)
    speed, outcome = timed(session.run(model, LiveView()), len(session.todo))
    if outcome.scored != len(experiment.trials):
        raise RuntimeError(f"{outcome.scored} of {len(experiment.trials)} scored: {outcome}")
    return speed


def post(bodies: Sequence[bytes], settings: Settings) -> Speed:
    """The limit: post all bodies, as many at a time as a run does, and forget the answers."""
    client = httpx.AsyncClient(timeout=600)
    url = f"{settings.base_url}/chat/completions"
    speed, _ = timed(_post(client, url, bodies, settings.concurrency), len(bodies))
    return speed


async def _post(client: Any, url: str, bodies: Sequence[bytes], concurrency: int) -> None:
    queue = iter(bodies)
    async with client, asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_lane(queue, client, url))


async def _lane(queue: Iterator[bytes], client: Any, url: str) -> None:
    for data in queue:
        response = await client.post(
            url, content=data, headers={"content-type": "application/json"}
        )
        if response.status_code != 200:
            raise RuntimeError(f"Status {response.status_code} from the server.")


def resume(settings: Settings, folder: Path, runs: int) -> list[dict[str, float]]:
    """Finish a run, then find in fresh processes that nothing is left to do: seconds after the
    imports."""
    ask(prepare(settings), folder)
    command = [sys.executable, str(_RESUME), str(folder)]
    return [json.loads(run(command).output) for _ in range(runs)]


def _settings(
    folder: Path, url: str, lengths: str, depths: str, options: argparse.Namespace
) -> Settings:
    return configure(
        None,
        {
            "model": "openai/gpt-4",
            "base_url": url,
            "haystack": "folder",
            "haystack_path": str(folder.resolve()),
            "lengths": lengths,
            "depths": depths,
            "concurrency": options.concurrency,
            "retries": 0,
            "canary": False,  # the server answers without reading
        },
    )


def _report(
    options: argparse.Namespace,
    about: str,
    found: dict[str, list[Round]],
    resumed: list[dict[str, float]],
) -> None:
    shares = {
        name: _share([(a.wall_s, b.wall_s) for a, b in turns]) for name, turns in found.items()
    }
    cpu_shares = {
        name: _share([(a.cpu_s, b.cpu_s) for a, b in turns]) for name, turns in found.items()
    }
    rows = [
        (
            f"{name} tokens, {cells:,} cells",
            f"{1 / median(a.wall_s for a, _ in found[name]):,.0f}",
            f"{1 / median(b.wall_s for _, b in found[name]):,.0f}",
            f"{shares[name]:.2f}",
            f"{1e3 * median(a.cpu_s for a, _ in found[name]):.2f}",
            f"{1e3 * median(b.cpu_s for _, b in found[name]):.2f}",
            f"{cpu_shares[name]:.2f}",
        )
        for name, _, cells in options.cells
    ]
    wall_s, cpu_s, trials = (
        min(one[part] for one in resumed) for part in ("wall_s", "cpu_s", "trials")
    )
    show(
        f"A run against an instant server, {options.concurrency} at a time, beside a bare httpx "
        f"client; "
        f"from {about}",
        machine("needlemap", "httpx", "pydantic"),
        ("", "cells/s", "limit", "share", "CPU ms a cell", "limit's", "share of CPU"),
        rows,
        [
            f"Medians of {options.rounds} rounds by turns. Both clients share this machine with "
            f"the server.",
            f"Resume of a finished run of {trials:,.0f} trials: {wall_s:.3f} s ({cpu_s:.3f} CPU s) "
            f"after the "
            f"imports to know that nothing is left to ask, the least of {options.rounds}.",
        ],
        {
            "benchmark": "runner",
            **{f"share_of_limit_{name}": rounded(share) for name, share in shares.items()},
            **{f"share_of_limit_{name}_cpu": rounded(share) for name, share in cpu_shares.items()},
            "resume_s": rounded(wall_s),
            "resume_cpu_s": rounded(cpu_s),
            "resume_trials": int(trials),
            "concurrency": options.concurrency,
        },
    )


def _share(pairs: Sequence[tuple[float, float]]) -> float:
    return median(limit / ours for ours, limit in pairs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A run's own speed, beside a bare HTTP client.")
    parser.add_argument(
        "--essays", type=Path, help="folder of .txt files; default: the shared essays, or prose"
    )
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", default="1000:128000:35", help="of the run that is resumed")
    parser.add_argument("--depths", default="0:100:35", help="of the run that is resumed")
    parser.add_argument(
        "--smoke", action="store_true", help="a few short cells: does it work at all?"
    )
    options = parser.parse_args()
    options.cells = [("1k", 1_000, 300), ("32k", 32_000, 150), ("128k", 128_000, 150)]
    if options.smoke:
        options.cells = [("1k", 1_000, 3), ("32k", 2_000, 3), ("128k", 4_000, 3)]
        options.lengths, options.depths, options.rounds = "1000:2000:2", "0:100:3", 1
    return options


if __name__ == "__main__":
    main()
