"""Start a Dask cluster for the replicas of one run, or connect to a running one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from needlemap.cluster import Jobs, JobState, Phase
from needlemap.cluster.replica import without_http
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.extras import install_line
from needlemap.files import make_inside, write_whole

# The import takes a second.
if TYPE_CHECKING:
    from distributed import Client

# In the run's folder: logs and, during the run, the file that says how to reach the scheduler.
FOLDER = "replicas"
# A run ends if more replicas than this, for each wanted one, end before their model is loaded.
_MOST_FAILURES = 2
_LOUD_LOGGERS = ("distributed", "distributed.client", "tornado.application")
_CONNECT_S = 10.0
_SCHEDULER = {
    # Our own loop may be busy for long, so a silent worker is not gone. TCP shows which are gone.
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.reuse-broadcast-comm": True,
}


class Cluster:
    """A Dask cluster that somebody else runs. Its workers stay when the run ends.

    Attributes:
        address: Of its scheduler.
        count: How many replicas are wanted; None for as many as there are workers.
    """

    def __init__(self, address: str, count: int | None = None) -> None:
        self.address = address
        self.count = count

    async def open(self) -> Client:
        """Connect with the certificates that Dask's own configuration names.

        Raises NeedlemapError.
        """
        return await connected(self.address)

    async def keep(self, count: int, loaded: Collection[str], alive: int) -> tuple[str, list[str]]:
        """Keep a number of replicas, and return a line on all of them and lines on ended ones.

        count: how many. loaded: names of replicas that ever had the model. alive: how many have
        it now. Raises NeedlemapError if there cannot be so many.
        """
        return f"replicas: {alive} answering, {max(0, count - alive)} not there", []

    async def close(self) -> None:
        """End what was started here."""

    def notes(self) -> list[str]:
        """Return notes for the user, before replicas are started."""
        return []


class OwnCluster(Cluster):
    """A scheduler in this process, with TLS certificates of its own, and replicas as jobs."""

    def __init__(self, jobs: Jobs, folder: Path, count: int, *, dashboard: bool = False) -> None:
        """Start `count` replicas by `jobs`. folder: for logs. dashboard: serve Dask's page."""
        super().__init__("", count)
        self._jobs = jobs
        self._folder = folder.absolute()
        self._dashboard = dashboard
        self._file = self._folder / f"connect-{os.getpid()}.json"
        self._scheduler: Any = None
        self._scratch: TemporaryDirectory[str] | None = None
        # Names of the jobs that have not ended.
        self._live: list[str] = []
        # Names of the jobs whose replica ever had the model.
        self._loaded = set[str]()
        # How many replicas in a row ended before they had the model.
        self._failures = 0
        self._line = ""
        self._next_look_s = 0.0
        self._start_s = time.monotonic()

    def notes(self) -> list[str]:
        """Return notes on the jobs."""
        return self._jobs.notes()

    def script(self, most: int) -> str:
        """Return the script that would start replicas. most: how many have a prompt to answer."""
        return self._jobs.script(min(self.count or most, most), self._file)

    async def open(self) -> Client:
        """Start the scheduler, and write the file from which replicas know how to reach it."""
        distributed = dask_distributed()
        import dask

        # The folder that all of a machine share by default may be another user's, or a link.
        self._scratch = TemporaryDirectory(prefix="needlemap-", ignore_cleanup_errors=True)
        dask.config.set({**_SCHEDULER, "temporary-directory": self._scratch.name})
        security = distributed.Security.temporary()
        self._scheduler = await self._serve(distributed, security)
        self.address = self._scheduler.address

        make_inside(self._folder)
        # A start that was killed could not delete its file.
        for old_file in self._folder.glob("connect-*.json"):
            old_file.unlink()
        connection = {
            "owner": [socket.gethostname(), os.getpid()],
            "address": self.address,
            "host": self._jobs.host,
            "security": {
                "require_encryption": True,
                "tls_ca_file": security.tls_ca_file,
                "tls_worker_key": security.tls_worker_key,
                "tls_worker_cert": security.tls_worker_cert,
            },
        }
        write_whole(self._file, json.dumps(connection).encode())
        return await connected(self.address, security)

    async def keep(self, count: int, loaded: Collection[str], alive: int) -> tuple[str, list[str]]:
        """Start missing replicas, and replace those that ended."""
        now_s = time.monotonic()
        if now_s < self._next_look_s and self._jobs.seldom:
            return self._line, []
        # A long run looks at its jobs every ten seconds, a new one every second.
        self._next_look_s = now_s + min(10.0, max(1.0, (now_s - self._start_s) / 30))
        states = await asyncio.to_thread(self._jobs.states, list(self._live))
        events = self._count_ends(states, loaded)
        missing = count - len(self._live)
        if missing > 0:
            if self._failures > _MOST_FAILURES * count:
                raise NeedlemapError(f"Replicas end before their model is loaded. {events[-1]}")
            self._live += await asyncio.to_thread(self._jobs.start, missing, self._file)
        self._line = _line(states, alive, started=missing)
        return self._line, events

    async def close(self) -> None:
        """End the jobs and the scheduler."""
        if self._live:
            await asyncio.to_thread(self._jobs.end, self._live)
        if self._scheduler is not None:
            await self._scheduler.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        # A link was refused, so nothing behind it is ours.
        if self._file.parent.is_symlink():
            return
        empty_logs = [file for file in self._folder.glob("*.log") if not file.stat().st_size]
        for file in (self._file, *empty_logs):
            file.unlink(missing_ok=True)
        # If something was logged, the folder stays.
        with suppress(OSError):
            self._folder.rmdir()

    def _count_ends(self, states: Mapping[str, JobState], loaded: Collection[str]) -> list[str]:
        """Forget the jobs that ended, count those that failed, and return a line on each.

        loaded: names of replicas that ever had the model.
        """
        # Slurm starts some jobs again by itself, under the name of the same job.
        loaded_jobs = {name.partition("-again-")[0] for name in loaded}
        if loaded_jobs - self._loaded:
            self._failures = 0
        self._loaded |= loaded_jobs
        ended = [job for job in self._live if states[job].phase is Phase.ENDED]
        self._failures += sum(job not in self._loaded for job in ended)
        self._live = [job for job in self._live if job not in ended]
        return [f"{job}: {states[job].word}; log: {self._jobs.log(job)}" for job in ended]

    async def _serve(self, distributed: Any, security: Any) -> Any:
        """Return a running scheduler, with pages for this machine alone if they are typed."""
        options: dict[str, Any] = {
            "security": security,
            "protocol": "tls://",
            "host": self._jobs.host,
            "port": 0,
        }
        if self._dashboard:
            return await distributed.Scheduler(
                dashboard=True, dashboard_address="127.0.0.1:8787", **options
            )
        return await without_http(distributed.Scheduler)(dashboard=False, **options)


async def connected(address: str, security: Any = None) -> Client:
    """Return a client of a scheduler. Raises NeedlemapError if no scheduler answers."""
    if "@" in address:
        raise SettingsError(
            "--cluster takes a scheduler's address, without a user or a password. Type: "
            f"--cluster {address.partition('://')[0]}://{address.rpartition('@')[2]}"
        )
    try:
        with warnings.catch_warnings():
            # Dask warns of versions that differ. Each replica compares needlemap's own.
            warnings.simplefilter("ignore")
            return await dask_distributed().Client(
                address,
                security=security,
                asynchronous=True,
                set_as_default=False,
                timeout=_CONNECT_S,
            )
    except Exception as error:
        message = (
            f"No Dask scheduler can be reached at '{address}': {type(error).__name__}: {error}."
        )
        if address.startswith("tls"):
            message = (
                f"{message} For tls:// Dask's configuration names the certificates "
                f"(distributed.comm.tls.ca-file, client.key, client.cert)."
            )
        raise NeedlemapError(message) from None


def dask_distributed() -> Any:
    """Return the package `distributed`. Raises NeedlemapError with the line that installs it."""
    try:
        # Dask makes the certificates with it.
        import cryptography  # noqa: F401
        import distributed
    except ImportError:
        raise NeedlemapError(
            f"Replicas need distributed and cryptography. Run: {install_line('cluster')}"
        ) from None
    for name in _LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def _line(states: Mapping[str, JobState], alive: int, started: int) -> str:
    """Return a line on all jobs.

    alive: how many replicas have the model. started: how many jobs were started just now.

    >>> _line({"1_0": JobState(Phase.PENDING, "PENDING", "Priority")}, 0, 0)
    'replicas: 1 pending (Priority)'
    """
    counts = Counter(state.phase for state in states.values())
    reasons = {state.reason for state in states.values() if state.phase is Phase.PENDING}
    reasons.discard("")
    pending = "pending"
    if reasons:
        pending = f"pending ({', '.join(sorted(reasons))})"
    count_by_word = {
        "answering": alive,
        "loading": counts[Phase.RUNNING] - alive,
        pending: counts[Phase.PENDING],
        "unknown": counts[Phase.UNKNOWN],
        "started": started,
    }
    parts = [f"{count} {word}" for word, count in count_by_word.items() if count > 0]
    return f"replicas: {', '.join(parts) or 'none'}"
