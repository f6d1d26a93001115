"""The flags of `needlemap run` that say who asks, and where: copies of the model. None changes an answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from needlemap.errors import SettingsError
from needlemap.settings import Settings

if TYPE_CHECKING:  # what asks is loaded when it asks
    from needlemap.models import Model
    from needlemap.models.replicas.cluster import Cluster, OwnCluster

MOST = 32  # jobs at a time, where nobody says
_GROUP = "Replicas"  # where --help shows them


@dataclass(frozen=True, slots=True)
class ReplicaFlags:
    """What the command line says of replicas; None, False and () where it says nothing."""

    workers: int | None = None
    slurm: bool = False
    partition: str | None = None
    qos: str | None = None
    max_num_workers: int | None = None
    gpus_per_worker: int | None = None
    time: str | None = None
    slurm_arg: tuple[str, ...] = ()
    cluster: str | None = None
    cluster_trusted: bool = False
    dashboard: bool = False
    dry_run: bool = False

    def check(self) -> None:
        """Raises SettingsError for flags that do not fit."""
        given = [each.name for each in fields(self) if getattr(self, each.name) not in (None, False, ())]
        if self.slurm and self.workers is not None:
            raise SettingsError("--workers is for this machine. With --slurm: --max-num-workers.")
        if self.cluster is not None:
            self._check_cluster(given)
        elif not self.slurm:
            for name in ("partition", "qos", "max_num_workers", "time", "slurm_arg"):
                if name in given:
                    raise SettingsError(f"{_flag(name)} goes with --slurm. On this machine: --workers N.")
        if not self.wanted and given:
            with_what = "--cluster" if given[0] == "cluster_trusted" else "--workers N or --slurm"
            raise SettingsError(f"{_flag(given[0])} goes with {with_what}.")

    @property
    def wanted(self) -> bool:
        """Whether the model is to have copies elsewhere."""
        return bool(self.slurm or self.workers or self.cluster)

    def make(self, settings: Settings, run: Path) -> Model:
        """The model that the settings name, here or as copies. run: where those keep their logs."""
        from needlemap.asking.session import make_model, make_replicas

        return make_replicas(settings, self._cluster(settings, run)) if self.wanted else make_model(settings)

    def script(self, run: Path, trials: int) -> str:
        """What would start them."""
        own = self._own(run)
        return own.script(min(own.count, max(1, trials)))

    def _check_cluster(self, given: list[str]) -> None:
        address = str(self.cluster)
        known = ("cluster", "cluster_trusted", "max_num_workers")
        for name in given:
            if name not in known:
                raise SettingsError(f"--cluster is one that is there already: leave {_flag(name)} out.")
        scheme, _, rest = address.partition("://")
        if scheme not in ("tcp", "tls") or not rest:
            raise SettingsError(f"--cluster takes tls://HOST:PORT or tcp://HOST:PORT, got '{address}'.")
        if scheme == "tcp" and not self.cluster_trusted:
            raise SettingsError(
                f"Nothing that goes to '{address}' is encrypted, and whoever reaches one of its ports can "
                f"run code there. Where nobody else can: --cluster-trusted. Else: tls://HOST:PORT."
            )

    def _cluster(self, settings: Settings, run: Path) -> Cluster:
        from needlemap.models.replicas.cluster import BorrowedCluster, dask_distributed

        dask_distributed()  # what is missing is said before anything is written
        if self.cluster is not None:
            return BorrowedCluster(self.cluster, self.max_num_workers)
        if self.slurm and not settings.save:
            raise SettingsError("--no-save keeps no run folder, and Slurm's jobs read theirs. Leave it out.")
        return self._own(run)

    def _own(self, run: Path) -> OwnCluster:
        from needlemap.models.replicas import Jobs, Processes
        from needlemap.models.replicas.cluster import FOLDER, OwnCluster
        from needlemap.models.replicas.slurm import Slurm

        folder = run / FOLDER
        jobs: Jobs
        if self.slurm:
            count = self.max_num_workers or MOST
            chosen = {"partition": self.partition, "qos": self.qos, "time": self.time}
            jobs = Slurm(folder, **chosen, gpus_each=self.gpus_per_worker or 0, arguments=self.slurm_arg)
        else:
            count = self.workers or 1
            gpus = 1 if self.gpus_per_worker is None else self.gpus_per_worker
            jobs = Processes(folder, count, gpus)
        return OwnCluster(jobs, folder, count, dashboard=self.dashboard)


HERE = ReplicaFlags()


def _option(words: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=words, rich_help_panel=_GROUP, **more)


def _typed(
    workers: Annotated[
        int | None, _option("Copies on this machine, a GPU each if there are any.", min=1)
    ] = None,
    slurm: Annotated[bool, _option("Copies as jobs of Slurm.", "--slurm")] = False,
    partition: Annotated[str | None, _option("Slurm's partition.", "-p", "--partition")] = None,
    qos: Annotated[str | None, _option("Slurm's QOS; auto: the site's choice.", "-q", "--qos")] = None,
    max_num_workers: Annotated[
        int | None, _option("Copies at a time, at most, on Slurm (default 32) or a cluster.", min=1)
    ] = None,
    gpus_per_worker: Annotated[
        int | None, _option("GPUs of each (default: 1 here; none asked of Slurm).", min=0)
    ] = None,
    time: Annotated[str | None, _option("Slurm's time limit, as 4:00:00 (default: the partition's).")] = None,
    slurm_arg: Annotated[
        list[str] | None, _option("Any further option of sbatch; repeat.", metavar="KEY=VALUE")
    ] = None,
    cluster: Annotated[
        str | None,
        _option("Copies on the workers of a Dask cluster that is there.", metavar="tls://HOST:PORT"),
    ] = None,
    cluster_trusted: Annotated[
        bool,
        _option("tcp:// too: not encrypted, and who reaches it runs code.", "--cluster-trusted"),
    ] = False,
    dashboard: Annotated[
        bool, _option("Serve Dask's own page on 127.0.0.1:8787 (needs bokeh).", "--dashboard")
    ] = False,
    dry_run: Annotated[
        bool, _option("Print what would start the copies, and start nothing.", "--dry-run")
    ] = False,
) -> ReplicaFlags:
    """What the flags come to: the parameters are the flags. Raises SettingsError."""
    slurm_options = partition, qos, max_num_workers, gpus_per_worker, time, tuple(slurm_arg or ())
    found = ReplicaFlags(workers, slurm, *slurm_options, cluster, cluster_trusted, dashboard, dry_run)
    found.check()
    return found


def with_replicas(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `replicas` becomes these flags."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    made = inspect.signature(_typed, eval_str=True).parameters

    def run(**values: Any) -> None:
        command(replicas=_typed(**{name: values.pop(name) for name in made}), **values)

    positional = [parameter for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    rest = [parameter for parameter in own if parameter.kind is parameter.VAR_KEYWORD]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*positional, *made.values(), *rest])  # type: ignore[attr-defined]
    return run


def _flag(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")
