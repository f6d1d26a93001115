"""What starts replicas and says how they are: processes of this machine here, jobs of Slurm next
door."""

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

PYTHON = (sys.executable, "-P")  # no module is taken from the folder that a replica starts in
MODULE = "needlemap.cluster.replica"
NAME = "NEEDLEMAP_REPLICA"
_THREADS = "OMP_NUM_THREADS"
_ENDING_S = 5.0  # for processes that were told to end


class Phase(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"  # whoever should know does not answer


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job is. word: the scheduler's own. reason: why it is pending."""

    phase: Phase
    word: str = ""
    reason: str = ""


class Jobs:
    """Starts replicas for one run, each as a job with a name. folder: for what they have to say.

    host: where to listen for them; None: on every address of this machine. seldom: whether how they
    are is not to be asked all the time.
    """

    host: str | None = None
    seldom = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def start(self, count: int, file: Path) -> list[str]:
        """Start replicas that read this file; their names. Raises NeedlemapError in the
        scheduler's words."""
        raise NotImplementedError

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """How jobs are that were started here."""
        raise NotImplementedError

    def end(self, jobs: Sequence[str]) -> None:
        """End jobs; those that have ended already are no error."""
        raise NotImplementedError

    def script(self, count: int, file: Path) -> str:
        """What `start` would do, as a shell script."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """What the user should know before they start."""
        return []

    def log(self, job: str) -> Path:
        """Where a replica writes what it has to say: standard output and error."""
        return self._folder / f"{job}.log"


class Processes(Jobs):
    """Replicas as processes of this machine, each with GPUs of its own where there are any.

    A process that comes instead of another has its GPUs.
    """

    host = "127.0.0.1"
    seldom = False

    def __init__(self, folder: Path, count: int, gpus_each: int = 1) -> None:
        super().__init__(folder)
        self._count, self._gpus_each = count, gpus_each
        self._devices = list(gpus())
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._places: dict[str, int] = {}  # from 0, of those that live

    def start(self, count: int, file: Path) -> list[str]:
        """Start processes in the places that are free."""
        taken = {place for job, place in self._places.items() if self._children[job].poll() is None}
        free = [place for place in range(self._count) if place not in taken]
        return [self._start(place, file) for place in free[:count]]

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Running, or how they ended."""
        return {job: _state(self._children[job].poll()) for job in jobs}

    def end(self, jobs: Sequence[str]) -> None:
        """SIGTERM, and for those that stay SIGKILL."""
        until = time.monotonic() + _ENDING_S
        for job in jobs:
            self._children[job].terminate()
        for job in jobs:
            try:
                self._children[job].wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._children[job].kill()
                self._children[job].wait()

    def script(self, count: int, file: Path) -> str:
        """One line a process."""
        lines = []
        for place in range(count):
            added = [
                f"{name}={shlex.quote(value)}"
                for name, value in self._added(place, _name(place)).items()
            ]
            lines.append(" ".join([*added, shlex.join([*PYTHON, "-m", MODULE, str(file)]), "&"]))
        return "\n".join([*lines, "wait"])

    def notes(self) -> list[str]:
        """When replicas share GPUs."""
        there, wanted = len(self._devices), self._count * self._gpus_each
        return [f"{self._count} replicas share {there} GPUs"] if 0 < there < wanted else []

    def _start(self, place: int, file: Path) -> str:
        again = sum(name.partition(".")[0] == _name(place) for name in self._children)
        job = _name(place) + (f".{again}" if again else "")
        with open_inside(self.log(job), "ab") as log:
            self._children[job] = subprocess.Popen(
                [*PYTHON, "-m", MODULE, str(file)],
                env={**os.environ, **self._added(place, job)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the asking process's: it ends them
            )
        self._places[job] = place
        return job

    def _added(self, place: int, job: str) -> dict[str, str]:
        """Its name and its share of the machine, beyond the environment that it has anyway."""
        share = max(1, (os.cpu_count() or 1) // self._count)
        added = {NAME: job} | ({} if _THREADS in os.environ else {_THREADS: str(share)})
        if self._devices:
            first = place * self._gpus_each
            mine = [
                self._devices[(first + each) % len(self._devices)]
                for each in range(self._gpus_each)
            ]
            added["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        return added


def gpus() -> Iterator[str]:
    """The GPUs that this machine lets us see, by the names that CUDA_VISIBLE_DEVICES takes."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        yield from filter(None, (name.strip() for name in visible.split(",")))
        return
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        )
        yield from (str(place) for place, _ in enumerate(listed.stdout.splitlines()))


def _name(place: int) -> str:
    return f"process-{place + 1}"


def _state(code: int | None) -> JobState:
    """A process's state by its exit code.

    >>> _state(-9).word, _state(3).word
    ('killed by SIGKILL', 'ended with exit code 3')
    """
    if code is None:
        return JobState(Phase.RUNNING, "running")
    word = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return JobState(Phase.ENDED, word)
