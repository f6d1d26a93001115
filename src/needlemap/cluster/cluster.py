"""Where replicas live: a Dask cluster of our own for one run, or one that is there already."""

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

if TYPE_CHECKING:  # it takes a second to import
    from distributed import Client

FOLDER = "replicas"  # in the run's: logs, and while it goes on where the scheduler is
_VAIN = 2  # for each wanted replica, so many that end before their model is loaded are replaced
_LOUD = ("distributed", "distributed.client", "tornado.application")
_CONNECT_S = 10.0
_SCHEDULER = {
    # our own loop may be at work for long; TCP tells who is gone
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.reuse-broadcast-comm": True,
}


class Cluster:
    """A Dask cluster that somebody else runs: its workers stay when the run ends.

    count: replicas that are wanted; None: as many as there are workers.
    """

    def __init__(self, address: str, count: int | None = None) -> None:
        self.address, self.count = address, count

    async def open(self) -> Client:
        """Connect, with the certificates that Dask's own configuration names. Raises
        NeedlemapError."""
        return await connected(self.address)

    async def keep(self, wanted: int, loaded: Collection[str], alive: int) -> tuple[str, list[str]]:
        """See to it that so many are there; how they stand, in a line, and what happened to
        some of them.

        loaded: names of those whose model is; alive: how many of them live. Raises
        NeedlemapError when they cannot be had.
        """
        return f"replicas: {alive} answering, {max(0, wanted - alive)} not there", []

    async def close(self) -> None:
        """End what was started here."""

    def notes(self) -> list[str]:
        """What the user should know before they start."""
        return []


class OwnCluster(Cluster):
    """A scheduler in this process, TLS with certificates made for it, and replicas that jobs
    start."""

    def __init__(self, jobs: Jobs, folder: Path, count: int, *, dashboard: bool = False) -> None:
        super().__init__("", count)
        self._jobs, self._folder, self._dashboard = jobs, folder.absolute(), dashboard
        self._file = self._folder / f"connect-{os.getpid()}.json"
        self._scheduler: Any = None
        self._scratch: TemporaryDirectory[str] | None = None
        self._live: list[str] = []
        self._loaded, self._vain = set[str](), 0
        self._line, self._due_s = "", 0.0
        self._began_s = time.monotonic()

    def notes(self) -> list[str]:
        """Notes on the jobs."""
        return self._jobs.notes()

    def script(self, most: int) -> str:
        """What would start them. most: so many have something to do."""
        return self._jobs.script(min(self.count or most, most), self._file)

    async def open(self) -> Client:
        """Start the scheduler, and write down for replicas how to reach it."""
        distributed = dask_distributed()
        import dask

        self._scratch = TemporaryDirectory(prefix="needlemap-", ignore_cleanup_errors=True)
        # of its own: the folder that all of a machine share may be another user's, or a link
        dask.config.set({**_SCHEDULER, "temporary-directory": self._scratch.name})
        security = distributed.Security.temporary()
        self._scheduler = await self._serve(distributed, security)
        self.address = self._scheduler.address
        make_inside(self._folder)
        for left in self._folder.glob("connect-*.json"):  # of a start that was killed
            left.unlink()
        told = {
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
        write_whole(self._file, json.dumps(told).encode())
        return await connected(self.address, security)

    async def keep(self, wanted: int, loaded: Collection[str], alive: int) -> tuple[str, list[str]]:
        """Start missing replicas, and replace those that end, while others still answer."""
        now = time.monotonic()
        if now < self._due_s and self._jobs.seldom:
            return self._line, []
        self._due_s = now + min(10.0, max(1.0, (now - self._began_s) / 30))
        states = await asyncio.to_thread(self._jobs.states, list(self._live))
        events = self._count_ends(states, loaded)
        missing = wanted - len(self._live)
        if missing > 0:
            if self._vain > _VAIN * wanted:
                raise NeedlemapError(f"Replicas end before their model is loaded. {events[-1]}")
            self._live += await asyncio.to_thread(self._jobs.start, missing, self._file)
        self._line = _line(states, alive, missing)
        return self._line, events

    async def close(self) -> None:
        """End the jobs and the scheduler."""
        if self._live:
            await asyncio.to_thread(self._jobs.end, self._live)
        if self._scheduler is not None:
            await self._scheduler.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._file.parent.is_symlink():  # it was refused, and nothing in it is ours
            return
        empty = [file for file in self._folder.glob("*.log") if not file.stat().st_size]
        for file in (self._file, *empty):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()  # where nothing was logged

    def _count_ends(self, states: Mapping[str, JobState], loaded: Collection[str]) -> list[str]:
        """What happened to those that ended; they are started again."""
        began = {name.partition("-again-")[0] for name in loaded}
        if began - self._loaded:
            self._vain = 0
        self._loaded |= began
        ended = [job for job in self._live if states[job].phase is Phase.ENDED]
        self._vain += sum(job not in self._loaded for job in ended)
        self._live = [job for job in self._live if job not in ended]
        return [f"{job}: {states[job].word}; log: {self._jobs.log(job)}" for job in ended]

    async def _serve(self, distributed: Any, security: Any) -> Any:
        """The scheduler; its pages only where they are asked for, and for this machine."""
        options: dict[str, Any] = {"protocol": "tls://", "host": self._jobs.host, "port": 0}
        if self._dashboard:
            page = {"dashboard": True, "dashboard_address": "127.0.0.1:8787"}
            return await distributed.Scheduler(security=security, **options, **page)
        return await without_http(distributed.Scheduler)(
            security=security, dashboard=False, **options
        )


async def connected(address: str, security: Any = None) -> Client:
    """A client of a scheduler. Raises NeedlemapError where none answers."""
    if "@" in address:
        raise SettingsError(
            "--cluster takes a scheduler's address, without a user or a password. Type: "
            f"--cluster {address.partition('://')[0]}://{address.rpartition('@')[2]}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ: needlemap's own is compared
            return await dask_distributed().Client(
                address,
                security=security,
                asynchronous=True,
                set_as_default=False,
                timeout=_CONNECT_S,
            )
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        tls = (
            " For tls:// Dask's configuration names the certificates "
            "(distributed.comm.tls.ca-file, "
            "client.key, client.cert)."
        )
        raise NeedlemapError(
            f"No Dask scheduler can be reached at '{address}': "
            f"{words}.{tls * address.startswith('tls')}"
        ) from None


def dask_distributed() -> Any:
    """The package. Raises NeedlemapError that says what to install."""
    try:
        import cryptography  # noqa: F401 - makes the certificates
        import distributed
    except ImportError:
        raise NeedlemapError(
            f"Replicas need distributed and cryptography. Run: {install_line('cluster')}"
        ) from None
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def _line(states: Mapping[str, JobState], alive: int, started: int) -> str:
    """How jobs stand, in words.

    >>> _line({"1_0": JobState(Phase.PENDING, "PENDING", "Priority")}, 0, 0)
    'replicas: 1 pending (Priority)'
    """
    counts = Counter(state.phase for state in states.values())
    reasons = sorted(
        {state.reason for state in states.values() if state.phase is Phase.PENDING} - {""}
    )
    loading = max(0, counts[Phase.RUNNING] - alive)
    parts = [f"{alive} answering"] if alive else []
    parts += [f"{loading} loading"] if loading else []
    waiting = f" ({', '.join(reasons)})" if reasons else ""
    parts += [f"{counts[Phase.PENDING]} pending{waiting}"] if counts[Phase.PENDING] else []
    parts += [f"{counts[Phase.UNKNOWN]} unknown"] if counts[Phase.UNKNOWN] else []
    parts += [f"{started} started"] if started > 0 else []
    return f"replicas: {', '.join(parts) or 'none'}"
