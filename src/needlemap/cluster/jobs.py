"""Start replicas and report their states: as processes of this machine, or as other jobs.

`slurm.py` starts them as jobs of Slurm.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from needlemap.files import open_inside

# -P: no module is imported from the folder in which a replica starts.
PYTHON = (sys.executable, "-P")
MODULE = "needlemap.cluster.replica"
NAME = "NEEDLEMAP_REPLICA"
_THREADS = "OMP_NUM_THREADS"
# How long a process may take to end after SIGTERM.
_ENDING_S = 5.0


class Phase(StrEnum):
    """The phase of a job's life. It is unknown if the scheduler does not answer."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job.

    Attributes:
        phase: Of its life.
        word: The scheduler's own word for it.
        reason: Why it is pending; '' if it is not known.
    """

    phase: Phase
    word: str = ""
    reason: str = ""


class Jobs:
    """Base of the classes that start replicas for one run, each as a job with a name.

    Attributes:
        host: Where to listen for replicas; None for every address of this machine.
        seldom: True if `states` should be called seldom.
    """

    host: str | None = None
    seldom = True

    def __init__(self, folder: Path) -> None:
        """Start no job yet. folder: for the logs of replicas."""
        self._folder = folder.absolute()

    def start(self, count: int, file: Path) -> list[str]:
        """Start replicas that read a file, and return the names of their jobs.

        Raises NeedlemapError with the scheduler's message.
        """
        raise NotImplementedError

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return the states of jobs that were started here."""
        raise NotImplementedError

    def end(self, jobs: Sequence[str]) -> None:
        """End jobs. A job that has ended already is not an error."""
        raise NotImplementedError

    def script(self, count: int, file: Path) -> str:
        """Return a shell script that does what `start` would do."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return notes for the user, before replicas are started."""
        return []

    def log(self, job: str) -> Path:
        """Return the file of a replica's standard output and error."""
        return self._folder / f"{job}.log"


class Processes(Jobs):
    """Replicas as processes of this machine, each with GPUs of its own if there are any.

    A process that replaces another has its GPUs.
    """

    host = "127.0.0.1"
    seldom = False

    def __init__(self, folder: Path, count: int, gpus_each: int = 1) -> None:
        """Start at most `count` processes. gpus_each: GPUs of each, if there are any."""
        super().__init__(folder)
        self._count = count
        self._gpus_each = gpus_each
        self._devices = list(gpus())
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        # Each process's place, from 0, which decides its GPUs.
        self._places: dict[str, int] = {}

    def start(self, count: int, file: Path) -> list[str]:
        """Start processes in free places, and return their names."""
        used_places = {
            place for job, place in self._places.items() if self._children[job].poll() is None
        }
        free_places = [place for place in range(self._count) if place not in used_places]
        return [self._start(place, file) for place in free_places[:count]]

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return which processes run, and how the others ended."""
        return {job: _state(self._children[job].poll()) for job in jobs}

    def end(self, jobs: Sequence[str]) -> None:
        """Send SIGTERM to processes, and SIGKILL to those that stay."""
        deadline_s = time.monotonic() + _ENDING_S
        for job in jobs:
            self._children[job].terminate()
        for job in jobs:
            try:
                self._children[job].wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._children[job].kill()
                self._children[job].wait()

    def script(self, count: int, file: Path) -> str:
        """Return a script with a line for each process."""
        command = shlex.join([*PYTHON, "-m", MODULE, str(file)])
        lines = []
        for place in range(count):
            environment = self._environment(place, _name(place))
            variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
            lines.append(" ".join([*variables, command, "&"]))
        return "\n".join([*lines, "wait"])

    def notes(self) -> list[str]:
        """Return a note if replicas share GPUs."""
        devices = len(self._devices)
        if 0 < devices < self._count * self._gpus_each:
            return [f"{self._count} replicas share {devices} GPUs"]
        return []

    def _start(self, place: int, file: Path) -> str:
        job = _name(place)
        earlier = sum(name.partition(".")[0] == job for name in self._children)
        if earlier:
            job = f"{job}.{earlier}"
        with open_inside(self.log(job), "ab") as log:
            self._children[job] = subprocess.Popen(
                [*PYTHON, "-m", MODULE, str(file)],
                env={**os.environ, **self._environment(place, job)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C must reach the process of the run alone, which then ends the replicas.
                start_new_session=True,
            )
        self._places[job] = place
        return job

    def _environment(self, place: int, job: str) -> dict[str, str]:
        """Return variables, besides this process's own, that set a name, threads and GPUs."""
        variables = {NAME: job}
        if _THREADS not in os.environ:
            threads = max(1, (os.cpu_count() or 1) // self._count)
            variables[_THREADS] = str(threads)
        if self._devices:
            first = place * self._gpus_each
            devices = [
                self._devices[index % len(self._devices)]
                for index in range(first, first + self._gpus_each)
            ]
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        return variables


def gpus() -> Iterator[str]:
    """Yield the GPUs that this process can use, by their names in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        yield from filter(None, (name.strip() for name in visible.split(",")))
        return
    with suppress(OSError, subprocess.SubprocessError):
        listing = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        for number in range(len(listing.stdout.splitlines())):
            yield str(number)


def _name(place: int) -> str:
    return f"process-{place + 1}"


def _state(code: int | None) -> JobState:
    """Return a process's state by its exit code, which is None while it runs.

    >>> _state(-9).word, _state(3).word
    ('killed by SIGKILL', 'ended with exit code 3')
    """
    if code is None:
        return JobState(Phase.RUNNING, "running")
    word = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return JobState(Phase.ENDED, word)
