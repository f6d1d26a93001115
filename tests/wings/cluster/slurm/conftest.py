"""A real Slurm: `.ci/slurm start FOLDER` makes one on this machine. Without one these tests are
skipped."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest


class Cluster:
    """Slurm's own commands."""

    def __call__(self, *command: object) -> str:
        """What a command prints."""
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """The states of jobs that have not ended, by name."""
        rows = [line.split("|") for line in self("squeue", "-h", "-r", "-o", "%i|%T").splitlines()]
        return {job: state for job, state in rows if state != "COMPLETING"}

    def running(self, count: int = 1) -> list[str]:
        """The names of jobs, once so many of them run."""
        for _ in range(600):
            found = [job for job, state in self.jobs().items() if state == "RUNNING"]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{count} running jobs did not come about: {self.jobs()}")


@pytest.fixture(scope="session")
def slurm() -> Cluster:
    """The cluster that SLURM_CONF names, and it must be one of our own making: tests take its nodes
    down."""
    pytest.importorskip(
        "distributed", reason="needs distributed: python3 -m pip install '.[cluster]'"
    )
    if not os.environ.get("SLURM_CONF") or not shutil.which("sbatch"):
        pytest.skip('needs a Slurm for tests: eval "$(bash .ci/slurm start FOLDER)"')
    cluster = Cluster()
    if not re.search(r"ClusterName\s*=\s*needlemap\b", cluster("scontrol", "show", "config")):
        pytest.skip("SLURM_CONF names a cluster that is not .ci/slurm's")
    return cluster


@pytest.fixture(autouse=True)
def _nothing_left(slurm: Cluster) -> Iterator[None]:
    """Whatever a test did, its jobs end with it."""
    yield
    slurm("scancel", f"--user={getpass.getuser()}")
