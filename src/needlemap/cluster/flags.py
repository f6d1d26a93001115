"""The flags of `run` that say where copies of the model are."""

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

MOST = 32  # jobs at a time, where nobody says


def _copies(default: Any, words: str, *names: str, **more: Any) -> Any:
    """A flag that says who asks, shown in a group of its own."""
    return flag(default, words, *names, rich_help_panel=later("Replicas"), **more)


@dataclass(frozen=True, slots=True)
class CopiesFlags:
    """Of `run`: copies of the model, and where they are; None, False and () where nothing is
    said. None changes an answer."""

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
        """Raises SettingsError for flags that do not fit."""
        given = [
            each.name for each in fields(self) if getattr(self, each.name) not in (None, False, [])
        ]
        if self.slurm and self.workers is not None:
            raise SettingsError("--workers is for this machine. With --slurm: --max-num-workers.")
        if self.cluster is not None:
            _check_cluster(self.cluster, given)
        elif not self.slurm:
            for name in ("partition", "qos", "max_num_workers", "time", "slurm_arg"):
                if name in given:
                    raise SettingsError(
                        f"{flag_name(name)} goes with --slurm. On this machine: --workers N."
                    )
        if not self.wanted and given:
            with_what = "--cluster" if given[0] == "cluster_trusted" else "--workers N or --slurm"
            raise SettingsError(f"{flag_name(given[0])} goes with {with_what}.")

    @property
    def wanted(self) -> bool:
        """Return True if the model has copies elsewhere."""
        return bool(self.slurm or self.workers or self.cluster)

    @property
    def most(self) -> int:
        """Return the largest number of copies at a time."""
        return MOST

    def model(self, settings: Settings, run: Path) -> Model:
        """Return the model whose copies answer. run: where they keep their logs. Raises
        SettingsError."""
        from needlemap.cluster.cluster import Cluster, dask_distributed
        from needlemap.cluster.copies import make_replicas

        # What is missing is said before anything is written.
        dask_distributed()
        if self.cluster is not None:
            return make_replicas(settings, Cluster(self.cluster, self.max_num_workers))
        if self.slurm and not settings.save:
            raise SettingsError(
                "--no-save keeps no run folder, and Slurm's jobs read theirs. Leave it out."
            )
        return make_replicas(settings, self._own_cluster(run))

    def script(self, run: Path, most: int) -> str:
        """Return what would start them, for so many prompts."""
        return self._own_cluster(run).script(most)

    def _own_cluster(self, run: Path) -> OwnCluster:
        """Return the cluster that this program starts, on Slurm or on this machine."""
        from needlemap.cluster import Jobs, Processes
        from needlemap.cluster.cluster import FOLDER, OwnCluster
        from needlemap.cluster.slurm import Slurm

        jobs: Jobs
        folder, count, gpus = run / FOLDER, self.workers or 1, self.gpus_per_worker
        if self.slurm:
            count = self.max_num_workers or MOST
            jobs = Slurm(
                folder,
                partition=self.partition,
                qos=self.qos,
                time=self.time,
                gpus_each=gpus or 0,
                arguments=tuple(self.slurm_arg or ()),
            )
        else:
            jobs = Processes(folder, count, 1 if gpus is None else gpus)
        return OwnCluster(jobs, folder, count, dashboard=self.dashboard)


def _check_cluster(address: str, given: list[str]) -> None:
    for name in given:
        if name not in ("cluster", "cluster_trusted", "max_num_workers"):
            raise SettingsError(
                f"--cluster is one that is there already: leave {flag_name(name)} out."
            )
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls") or not rest:
        raise SettingsError(f"--cluster takes tls://HOST:PORT or tcp://HOST:PORT, got '{address}'.")
    if scheme == "tcp" and "cluster_trusted" not in given:
        raise SettingsError(
            f"Traffic to '{address}' is not encrypted, and anyone who reaches one of its ports can "
            f"run code there. If nobody else can reach it: --cluster-trusted. Otherwise: "
            f"tls://HOST:PORT."
        )
