"""Workers as processes on this machine, one per GPU where there are GPUs. They outlive the command."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from needlemap.files import open_inside
from needlemap.runs.launcher import JobState, Phase
from needlemap.runs.store import is_held

_THREADS = "OMP_NUM_THREADS"
_RUNNING = JobState(Phase.RUNNING, "running")


class Processes:
    """Starts processes in sessions of their own.

    Each holds a lock that it inherits: whoever can take the lock knows that the process is gone, also after
    the command that started it. folder: of the launch.
    """

    kind, lasting = "processes", False

    def __init__(self, folder: Path, *, workers: int, gpus_per_worker: int = 1) -> None:
        self._folder, self._workers, self._gpus_per_worker = folder.absolute(), workers, gpus_per_worker
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, count: int) -> list[str]:
        """Start workers."""
        first = 1 + sum(1 for _ in self._folder.glob("*.alive"))
        return [self._start(number) for number in range(first, first + count)]

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Running while the lock is held; why it ended only where it is our own child."""
        return {job: self._state(job) for job in jobs}

    def log(self, job: str) -> Path:
        """Its standard output and error."""
        return self._folder / f"{job}.log"

    def cancel(self, jobs: Sequence[str]) -> None:
        """SIGTERM: they return their units and end."""
        for job in jobs:
            pid = self._pid(job)
            if pid and self._state(job).phase is Phase.RUNNING:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def options(self) -> dict[str, Any]:
        """Plain values."""
        return {"workers": self._workers, "gpus_per_worker": self._gpus_per_worker}

    def notes(self) -> list[str]:
        """When workers share GPUs."""
        there, wanted = len(list(gpus())), self._workers * self._gpus_per_worker
        return [f"{self._workers} workers share {there} GPUs"] if 0 < there < wanted else []

    def script(self, count: int) -> str:
        """One line a worker."""
        lines = []
        for number in range(1, count + 1):
            added = [f"{name}={shlex.quote(value)}" for name, value in self._added(number).items()]
            lines.append(" ".join([*added, shlex.join(self._command(number)), "&"]))
        return "\n".join([*lines, "wait"])

    def _start(self, number: int) -> str:
        job = _job(number)
        with open_inside(self._alive(job), "xb") as alive, open_inside(self.log(job), "ab") as log:
            fcntl.flock(alive, fcntl.LOCK_EX)
            child = subprocess.Popen(
                self._command(number),
                env={**os.environ, **self._added(number)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[alive.fileno()],
                start_new_session=True,
            )
            alive.write(str(child.pid).encode())
        self._children[job] = child
        return job

    def _command(self, number: int) -> list[str]:
        return [sys.executable, "-P", "-m", "needlemap.runs.worker", str(self._folder), _job(number)]

    def _added(self, number: int) -> dict[str, str]:
        """Its share of the machine, beyond the environment that it has anyway."""
        share = max(1, (os.cpu_count() or 1) // self._workers)
        added = {} if _THREADS in os.environ else {_THREADS: str(share)}
        devices = list(gpus())
        if devices:
            first = (number - 1) * self._gpus_per_worker
            mine = [devices[(first + place) % len(devices)] for place in range(self._gpus_per_worker)]
            added["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        return added

    def _alive(self, job: str) -> Path:
        return self._folder / f"{job}.alive"

    def _state(self, job: str) -> JobState:
        child = self._children.get(job)
        if child is not None:
            code = child.poll()
            return _RUNNING if code is None else JobState(Phase.ENDED, _ended(code))
        held = is_held(self._alive(job))
        if held is None:
            held = _exists(self._pid(job))
        return _RUNNING if held else JobState(Phase.ENDED, "ended")

    def _pid(self, job: str) -> int:
        """0 where the command that started it was killed before it had written that down."""
        return int(self._alive(job).read_text() or 0)


def gpus() -> Iterator[str]:
    """The GPUs that this machine lets us see, by the names that CUDA_VISIBLE_DEVICES takes."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        yield from filter(None, (name.strip() for name in visible.split(",")))
        return
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True)
        yield from (str(place) for place, _ in enumerate(listed.stdout.splitlines()))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return pid > 0


def _job(number: int) -> str:
    return f"process-{number}"


def _ended(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
