"""The model of a run as copies: in a Dask cluster that is there, or in one that is started here."""

from __future__ import annotations

from pathlib import Path

from needlemap.asking.session import check_price, options_of
from needlemap.cluster.flags import MOST, CopiesFlags
from needlemap.errors import SettingsError
from needlemap.models import Model, find_backend
from needlemap.models.replicas import Jobs, Processes
from needlemap.models.replicas.cluster import FOLDER, Cluster, OwnCluster, dask_distributed
from needlemap.models.replicas.pool import Replicas
from needlemap.models.replicas.replica import Recipe
from needlemap.models.replicas.slurm import Slurm
from needlemap.settings import Settings


def model_of(flags: CopiesFlags, settings: Settings, run: Path) -> Model:
    """Return copies of the model that the settings name. run: where they keep their logs. Raises
    SettingsError."""
    # What is missing is said before anything is written.
    dask_distributed()
    if flags.cluster is not None:
        return make_replicas(settings, Cluster(flags.cluster, flags.max_num_workers))
    if flags.slurm and not settings.save:
        raise SettingsError(
            "--no-save keeps no run folder, and Slurm's jobs read theirs. Leave it out."
        )
    return make_replicas(settings, own_cluster(flags, run))


def own_cluster(flags: CopiesFlags, run: Path) -> OwnCluster:
    """Return the cluster that this program starts, on Slurm or on this machine."""
    jobs: Jobs
    folder, count, gpus = run / FOLDER, flags.workers or 1, flags.gpus_per_worker
    if flags.slurm:
        count = flags.max_num_workers or MOST
        jobs = Slurm(
            folder,
            partition=flags.partition,
            qos=flags.qos,
            time=flags.time,
            gpus_each=gpus or 0,
            arguments=tuple(flags.slurm_arg or ()),
        )
    else:
        jobs = Processes(folder, count, 1 if gpus is None else gpus)
    return OwnCluster(jobs, folder, count, dashboard=flags.dashboard)


def make_replicas(settings: Settings, cluster: Cluster) -> Replicas:
    """Return copies of the model that the settings name, in a cluster. Raises SettingsError."""
    check_price(settings)
    options = options_of(settings)
    traits = find_backend(settings.backend).traits(settings.model_name, options)
    recipe = Recipe(settings.backend, settings.model_name, options, traits.weights)
    return Replicas(recipe, cluster, 1 if traits.serial else settings.concurrency)
