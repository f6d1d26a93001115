"""Declare the flags of `run` that set where copies of the model are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.commands.arguments import flag, flag_name
from needlemap.errors import SettingsError
from needlemap.settings import MOST_AT_A_TIME, Settings
from needlemap.settings.flags import later

if TYPE_CHECKING:
    from needlemap.cluster.cluster import OwnCluster
    from needlemap.models import Model

# The largest number of jobs at a time by default.
MOST = 32


def _copies(default: Any, text: str, *names: str, **more: Any) -> Any:
    """Return a field as `flag` does, shown under a heading of its own."""
    return flag(default, text, *names, rich_help_panel=later("Replicas"), **more)


@dataclass(frozen=True, slots=True)
class CopiesFlags:
    """Flags of `run` for copies of the model and where they are. No flag changes an answer."""

    workers: int | None = _copies(
        None,
        "Copies on this machine, a GPU each if there are any.",
        min=1,
        max=MOST_AT_A_TIME,
    )
    slurm: bool = _copies(False, "Copies as jobs of Slurm.")
    partition: str | None = _copies(None, "Slurm's partition.", "-p", "--partition", metavar="NAME")
    qos: str | None = _copies(
        None, "Slurm's QOS. auto: the site's choice.", "-q", "--qos", metavar="NAME"
    )
    max_num_workers: int | None = _copies(
        None,
        "Most copies at a time, on Slurm (default 32) or a cluster.",
        min=1,
        max=MOST_AT_A_TIME,
    )
    gpus_per_worker: int | None = _copies(
        None,
        "GPUs of each copy (default: 1 here, none with --slurm).",
        min=0,
        max=MOST_AT_A_TIME,
    )
    time: str | None = _copies(
        None, "Slurm's time limit, e.g. 4:00:00 (default: the partition's).", metavar="TIME"
    )
    slurm_arg: list[str] | None = _copies(
        None, "Any further option of sbatch (repeatable).", metavar="KEY=VALUE"
    )
    cluster: str | None = _copies(
        None, "Copies on the workers of a running Dask cluster.", metavar="tls://HOST:PORT"
    )
    cluster_trusted: bool = _copies(
        False, "Accept tcp:// too: not encrypted, and anyone who reaches it can run code."
    )
    dashboard: bool = _copies(False, "Serve Dask's own page on 127.0.0.1:8787 (needs bokeh).")
    dry_run: bool = _copies(False, "Show what would start the copies, and start nothing.")

    def __post_init__(self) -> None:
        """Raise SettingsError for flags that do not fit together."""
        typed_names = [
            field.name
            for field in fields(self)
            if getattr(self, field.name) not in (None, False, [])
        ]
        if self.slurm and self.workers is not None:
            raise SettingsError("--workers is for this machine. With --slurm: --max-num-workers.")
        if self.cluster is not None:
            _check_cluster(self.cluster, typed_names)
        elif not self.slurm:
            for name in ("partition", "qos", "max_num_workers", "time", "slurm_arg"):
                if name in typed_names:
                    raise SettingsError(
                        f"{flag_name(name)} goes with --slurm. On this machine: --workers N."
                    )
        if not self.wanted and typed_names:
            needed = (
                "--cluster" if typed_names[0] == "cluster_trusted" else "--workers N or --slurm"
            )
            raise SettingsError(f"{flag_name(typed_names[0])} goes with {needed}.")

    @property
    def wanted(self) -> bool:
        """Return True if the model has copies elsewhere."""
        return bool(self.slurm or self.workers or self.cluster)

    def model(self, settings: Settings, run: Path) -> Model:
        """Return the model whose copies answer.

        Raises NeedlemapError if Dask is missing, and SettingsError if Slurm's jobs would have no
        run folder.

        run: the folder where the copies keep their logs.
        """
        from needlemap.cluster.cluster import Cluster, dask_distributed
        from needlemap.cluster.pool import make_replicas

        # A missing package is reported before anything is written.
        dask_distributed()
        if self.cluster is not None:
            return make_replicas(settings, Cluster(self.cluster, self.max_num_workers))
        if self.slurm and not settings.save:
            raise SettingsError(
                "--no-save keeps no run folder, and Slurm's jobs read theirs. Leave it out."
            )
        return make_replicas(settings, self._own_cluster(run))

    def script(self, run: Path, most: int) -> str:
        """Return the script that would start the copies. most: how many prompts there are."""
        return self._own_cluster(run).script(most)

    def _own_cluster(self, run: Path) -> OwnCluster:
        """Return a cluster that this process starts, with jobs of Slurm or processes here."""
        from needlemap.cluster import Jobs, Processes
        from needlemap.cluster.cluster import FOLDER, OwnCluster
        from needlemap.cluster.slurm import Slurm

        jobs: Jobs
        folder = run / FOLDER
        if self.slurm:
            count = self.max_num_workers or MOST
            jobs = Slurm(
                folder,
                partition=self.partition,
                qos=self.qos,
                time=self.time,
                gpus_each=self.gpus_per_worker or 0,
                arguments=tuple(self.slurm_arg or ()),
            )
        else:
            count = self.workers or 1
            gpus_each = 1 if self.gpus_per_worker is None else self.gpus_per_worker
            jobs = Processes(folder, count, gpus_each=gpus_each)
        return OwnCluster(jobs, folder, count=count, dashboard=self.dashboard)


def _check_cluster(address: str, typed_names: list[str]) -> None:
    """Raise SettingsError for a wrong address, or for flags that do not go with --cluster.

    typed_names: the names of all flags that were typed.
    """
    for name in typed_names:
        if name not in ("cluster", "cluster_trusted", "max_num_workers"):
            raise SettingsError(
                f"--cluster is one that is there already: leave {flag_name(name)} out."
            )
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls") or not rest:
        raise SettingsError(f"--cluster takes tls://HOST:PORT or tcp://HOST:PORT, got '{address}'.")
    if scheme == "tcp" and "cluster_trusted" not in typed_names:
        raise SettingsError(
            f"Traffic to '{address}' is not encrypted, and anyone who reaches one of its ports can "
            f"run code there. If nobody else can reach it: --cluster-trusted. Otherwise: "
            f"tls://HOST:PORT."
        )
