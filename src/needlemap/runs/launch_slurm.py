"""Workers as one job array of Slurm, submitted with submitit.

submitit keeps a pickle of each job in RUN/slurm, which the job itself reads; this process reads none of them.
States come from Slurm (`slurm_queue.py`), and what workers do from the run's own files.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.runs import slurm_queue
from needlemap.runs.launcher import JobState, Phase
from needlemap.runs.worker import Job

_WARNED_S = 90  # seconds before a time limit, when a worker is told to return its units
AUTO = "auto"
_PYTHON = f"{shlex.quote(sys.executable)} -P"  # no module is taken from the folder that a job starts in
_QUOTA = "quotatype"  # an option of sbatch at sites whose quotas are called reserved, spot and auto


class Slurm:
    """Submits to the cluster that this machine belongs to. folder: of the launch.

    qos 'auto': the site chooses. arguments: further options of sbatch, KEY=VALUE or KEY.
    """

    kind, lasting = "slurm", True

    def __init__(
        self,
        folder: Path,
        *,
        partition: str | None = None,
        qos: str | None = None,
        gpus_per_worker: int = 0,
        time: str | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Raises NeedlemapError when submitit is not installed."""
        try:
            import submitit.slurm.slurm as submitit
            from submitit.core.utils import FailedJobError
        except ImportError:
            raise NeedlemapError("--slurm needs submitit. Run: pip install 'needlemap[slurm]'") from None
        self._submitit, self._refusal = submitit, FailedJobError
        self._folder = folder.absolute()
        self._files = self._folder.parent.parent / "slurm"
        self._partition, self._qos, self._gpus, self._time = partition, qos, gpus_per_worker, time
        self._arguments = list(arguments)
        self._ended: dict[str, JobState] = {}

    def submit(self, count: int) -> list[str]:
        """One array of so many jobs. Raises NeedlemapError with Slurm's own words, and what there is."""
        if not (shutil.which("sbatch") and shutil.which("srun")):
            raise NeedlemapError(
                "--slurm needs sbatch and srun, which are not on this machine. Run it on a login node of the "
                "cluster, or use --workers N here."
            )
        executor = self._submitit.SlurmExecutor(self._files, python=_PYTHON)
        executor.update_parameters(**self._parameters(count))
        try:
            with (
                redirect_stderr(StringIO()),
                executor.batch(),
            ):  # what sbatch says comes with the exception too
                jobs = [executor.submit(Job(str(self._folder))) for _ in range(count)]
        except self._refusal as error:
            raise NeedlemapError(self._refused(str(error))) from None
        return [str(job.job_id) for job in jobs]

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Slurm's states; ends are asked for once."""
        open_jobs = [job for job in jobs if job not in self._ended]
        if open_jobs:
            found = slurm_queue.job_states(open_jobs)
            self._ended |= {job: state for job, state in found.items() if state.phase is Phase.ENDED}
            return {**self._ended, **found}
        return self._ended

    def log(self, job: str) -> Path:
        """What the job prints."""
        return self._files / f"{job}_0_log.out"

    def cancel(self, jobs: Sequence[str]) -> None:
        """scancel; jobs that have ended are no error."""
        left = [job for job in jobs if job not in self._ended]
        if left:
            slurm_queue.ask("scancel", *left)

    def options(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "partition": self._partition,
            "qos": self._qos,
            "gpus_per_worker": self._gpus,
            "time": self._time,
            "arguments": self._arguments,
        }

    def script(self, count: int) -> str:
        """The batch script."""
        command = f"{_PYTHON} -u -m submitit.core._submit {shlex.quote(str(self._files))}"
        made: str = self._submitit._make_sbatch_string(
            command=command, folder=self._files, map_count=count, **self._parameters(count)
        )
        return made

    def notes(self) -> list[str]:
        """What Slurm would not say."""
        if self._qos in (None, AUTO) or slurm_queue.qos_checked():
            return []
        return [f"this Slurm does not look at QOS, so '-q {self._qos}' is accepted and changes nothing"]

    def _parameters(self, count: int) -> dict[str, Any]:
        """By submitit's names. None leaves an option to the site (submitit's time limit is 5 minutes)."""
        added = self._added()
        return {
            "job_name": "needlemap",
            "partition": self._partition,
            "qos": None if self._qos == AUTO else self._qos,
            "time": self._time,
            "gpus_per_node": self._gpus or None,
            "nodes": 1,
            "ntasks_per_node": 1,
            "array_parallelism": count,
            "signal_delay_s": _WARNED_S,
            "stderr_to_stdout": True,
            "wckey": None,
            "additional_parameters": added,
            # Since Slurm 22.05 steps do not inherit this from the job.
            "srun_args": [f"--cpus-per-task={added['cpus-per-task']}"] if "cpus-per-task" in added else [],
        }

    def _added(self) -> dict[str, Any]:
        added: dict[str, Any] = {"chdir": os.getcwd()}
        if self._qos == AUTO and _QUOTA in slurm_queue.sbatch_options():
            added[_QUOTA] = AUTO
        for argument in self._arguments:
            name, equals, value = argument.partition("=")
            if not name.strip("-"):
                raise SettingsError(f"--slurm-arg takes KEY=VALUE, an option of sbatch, got '{argument}'.")
            added[name.strip("-").replace("_", "-")] = value if equals else True
        return added

    def _refused(self, words: str) -> str:
        """Slurm's words, and what it would take."""
        lines = [line for line in words.splitlines() if line.startswith("sbatch: ")]
        said = [re.sub(r"^sbatch: (error: )?(Batch job submission failed: )?", "", line) for line in lines]
        lower = words.lower()
        advice = ""
        if "partition" in lower:
            advice = f"Partitions here: {', '.join(slurm_queue.partitions()) or 'sinfo lists none'}."
        elif "qos" in lower:
            advice = f"QOS that you may use: {', '.join(slurm_queue.qos_granted()) or 'sacctmgr lists none'}."
        elif "option" in lower:
            name = next((name for name in self._added() if f"--{name}" in words), "")
            advice = did_you_mean(name, slurm_queue.sbatch_options()).partition(" Known:")[0] if name else ""
        return f"Slurm refused the jobs: {'; '.join(said) or words.strip()}. {advice}".rstrip()
