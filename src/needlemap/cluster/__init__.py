"""Copies of a model: processes of this machine, jobs of Slurm, workers of a Dask cluster."""

from needlemap.cluster.jobs import MODULE, PYTHON, Jobs, JobState, Phase, Processes

__all__ = [
    "MODULE",
    "PYTHON",
    "JobState",
    "Jobs",
    "Phase",
    "Processes",
]
