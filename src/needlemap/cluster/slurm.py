"""Start replicas as jobs of a Slurm cluster, and read their states, through Slurm's own commands.

The controller (squeue) knows running jobs and those that ended lately. The accounting (sacct),
which many sites do not have, knows older ones. If the controller does not answer, a job's state is
unknown, and nothing is concluded from that.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from needlemap.cluster import MODULE, PYTHON, Jobs, JobState, Phase
from needlemap.errors import NeedlemapError, SettingsError, did_you_mean

AUTO = "auto"
# An option of sbatch at sites whose quotas are called reserved, spot and auto.
_QUOTA = "quotatype"
_ENDED = {
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "PREEMPTED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "REVOKED",
}
_WAITING = {
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
}
# How long one of Slurm's commands may take.
_LIMIT_S = 30
# The name of an option of sbatch.
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
# A value that needs no quotation marks.
_PLAIN = re.compile(r"[A-Za-z0-9./:=,+@%_-]+")
_GONE = JobState(Phase.ENDED, "gone from Slurm's queue")


def directive(name: str, value: str | None) -> str:
    """Return a line of the batch script that sets an option of sbatch.

    sbatch splits lines at blanks. It knows quotation marks, but no escapes inside them. A value
    that could become another option is quoted, and one that cannot be quoted is refused.

    value: None for an option without a value. Raises SettingsError for a value that is refused.

    >>> directive("chdir", "/a b"), directive("time", "4:00:00")
    ('#SBATCH --chdir="/a b"', '#SBATCH --time=4:00:00')
    """
    if value is None:
        return f"#SBATCH --{name}"
    if len(value.splitlines()) > 1 or not value.isprintable():
        odd = "a line break or another sign that is not printed, and what is behind it would run"
        raise SettingsError(
            f"sbatch's option --{name} would hold {odd}: {value!r}. Use a folder or a value "
            f"without one."
        )
    if '"' in value or "\\" in value:
        raise SettingsError(
            f"sbatch's option --{name} cannot hold a quotation mark or a backslash: {value!r}. Use "
            f"a folder or a value without one; blanks need none."
        )
    if _PLAIN.fullmatch(value):
        return f"#SBATCH --{name}={value}"
    return f'#SBATCH --{name}="{value}"'


class Slurm(Jobs):
    """Replicas as jobs of the Slurm cluster that this machine belongs to."""

    def __init__(
        self,
        folder: Path,
        *,
        partition: str | None = None,
        qos: str | None = None,
        gpus_each: int = 0,
        time: str | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Submit no job yet.

        folder: for logs; all nodes must see it. qos: 'auto' lets the site choose. arguments:
        further options of sbatch, as KEY=VALUE or KEY.
        """
        super().__init__(folder)
        self._partition = partition
        self._qos = qos
        self._gpus_each = gpus_each
        self._time = time
        self._arguments = list(arguments)
        # The last states of the jobs that ended. Slurm forgets them after some time.
        self._ended: dict[str, JobState] = {}

    def start(self, count: int, file: Path) -> list[str]:
        """Submit one array of jobs, and return their names.

        Raises NeedlemapError with Slurm's own message and, if it helps, what the site has.
        """
        if not shutil.which("sbatch"):
            raise NeedlemapError(
                "--slurm needs sbatch, which is not on this machine. Run it on a login node of the "
                "cluster, or use --workers N here."
            )
        process = subprocess.run(
            ["sbatch", "--parsable"],
            input=self.script(count, file),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        if process.returncode:
            raise NeedlemapError(self._refusal_message(process.stderr))
        array = process.stdout.strip().partition(";")[0]
        return [f"{array}_{number}" for number in range(count)]

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return Slurm's states, without a second look at jobs that ended."""
        open_jobs = [job for job in jobs if job not in self._ended]
        states = job_states(open_jobs) if open_jobs else {}
        self._ended |= {job: state for job, state in states.items() if state.phase is Phase.ENDED}
        return {**self._ended, **states}

    def end(self, jobs: Sequence[str]) -> None:
        """Cancel jobs. A job that has ended already is not an error."""
        open_jobs = [job for job in jobs if job not in self._ended]
        if open_jobs:
            output_of("scancel", *open_jobs)

    def notes(self) -> list[str]:
        """Return a note if Slurm ignores the QOS."""
        if self._qos in (None, AUTO) or qos_checked():
            return []
        return [
            f"this Slurm does not look at QOS, so '-q {self._qos}' is accepted and changes nothing"
        ]

    def script(self, count: int, file: Path) -> str:
        """Return the batch script."""
        options = {"array": f"0-{count - 1}", **self._options()}
        lines = [directive(name, value) for name, value in options.items()]
        command = shlex.join([*PYTHON, "-m", MODULE, str(file)])
        return "\n".join(["#!/bin/bash", *lines, f"exec {command}", ""])

    def _options(self) -> dict[str, str | None]:
        """Return options of sbatch in the order of the script, or None for one without a value."""
        options: dict[str, str | None] = {
            "job-name": "needlemap",
            "nodes": "1",
            "ntasks": "1",
            "chdir": os.getcwd(),
            "open-mode": "append",
            # Slurm replaces %j and the like in the folder's name, too.
            "output": f"{self._folder}/".replace("%", "%%") + "%A_%a.log",
        }
        if self._partition is not None:
            options["partition"] = self._partition
        if self._qos is not None and self._qos != AUTO:
            options["qos"] = self._qos
        if self._time is not None:
            options["time"] = self._time
        if self._gpus_each:
            options["gpus-per-node"] = str(self._gpus_each)
        return {**options, **self._further_options()}

    def _further_options(self) -> dict[str, str | None]:
        """Return the option for the QOS 'auto', and the options that were typed.

        Raises SettingsError for a text that is not an option.
        """
        options: dict[str, str | None] = {}
        if self._qos == AUTO and _QUOTA in sbatch_options():
            options[_QUOTA] = AUTO
        for argument in self._arguments:
            key, equals, value = argument.partition("=")
            name = key.strip("-").replace("_", "-")
            if not _OPTION.fullmatch(name):
                raise SettingsError(
                    f"--slurm-arg takes KEY=VALUE, an option of sbatch, got '{argument}'."
                )
            options[name] = value if equals else None
        return options

    def _refusal_message(self, message: str) -> str:
        """Return a message on why sbatch refused the jobs, and on what the site would accept.

        message: what sbatch printed.
        """
        reasons = [
            re.sub(r"^sbatch: (error: )?(Batch job submission failed: )?", "", line)
            for line in message.splitlines()
            if line.startswith("sbatch: ")
        ]
        lower = message.lower()

        advice = ""
        if "partition" in lower:
            advice = f"Partitions here: {', '.join(partition_labels()) or 'sinfo lists none'}."
        elif "qos" in lower:
            advice = f"QOS that you may use: {', '.join(qos_granted()) or 'sacctmgr lists none'}."
        elif "option" in lower:
            name = next((name for name in self._further_options() if f"--{name}" in message), "")
            if name:
                advice = did_you_mean(name, sbatch_options()).partition(" Known:")[0]

        reason = "; ".join(reasons) or message.strip()
        return f"Slurm refused the jobs: {reason}. {advice}".rstrip()


def output_of(*command: str) -> str | None:
    """Return what a command prints, or None if it is missing, fails or takes too long."""
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout if process.returncode == 0 else None


def arrays(jobs: Iterable[str]) -> list[str]:
    """Return the arrays that jobs belong to, each once.

    >>> arrays(["12_0", "12_1", "15"])
    ['12', '15']
    """
    return list(dict.fromkeys(job.partition("_")[0] for job in jobs))


def job_states(jobs: Sequence[str]) -> dict[str, JobState]:
    """Return the states of jobs and array tasks."""
    if output_of("scontrol", "ping") is None:
        return dict.fromkeys(jobs, JobState(Phase.UNKNOWN))

    states: dict[str, JobState] = {}
    # One array at a time, because Slurm refuses a list that holds a job it has forgotten.
    for array in arrays(jobs):
        queue = output_of("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r", "-j", array)
        states |= _states_in(queue)
    missing = [job for job in jobs if job not in states]
    if missing:
        names = ",".join(arrays(missing))
        accounting = output_of("sacct", "-n", "-X", "-P", "--format=JobID,State", "-j", names)
        states |= ended_states(accounting)
    return {job: states.get(job, _GONE) for job in jobs}


def state_of(word: str, reason: str = "") -> JobState:
    """Return a job's state.

    word: Slurm's own, e.g. `CANCELLED by 0`. reason: why the job waits; 'None' if it does not.

    >>> state_of("PENDING", "PartitionDown").phase, state_of("CANCELLED by 0").phase
    (<Phase.PENDING: 'pending'>, <Phase.ENDED: 'ended'>)
    """
    name = word.partition(" ")[0].rstrip("+")
    if name in _WAITING:
        return JobState(Phase.PENDING, word, "" if reason == "None" else reason)
    return JobState(Phase.ENDED if name in _ENDED else Phase.RUNNING, word)


def partition_labels() -> list[str]:
    """Return the names of the site's partitions, with notes on the default one and those not up."""
    output = output_of("sinfo", "-h", "-o", "%P|%a") or ""
    labels = list[str]()
    for line in output.splitlines():
        name, available = line.split("|")
        notes = list[str]()
        if name.endswith("*"):
            notes.append("default")
        if available != "up":
            notes.append(available)
        label = name.rstrip("*")
        if notes:
            label = f"{label} ({', '.join(notes)})"
        labels.append(label)
    # sinfo can list a partition twice.
    return list(dict.fromkeys(labels))


def qos_granted() -> list[str]:
    """Return the QOS that the user may use, as far as the accounting knows."""
    user = f"user={getpass.getuser()}"
    output = output_of("sacctmgr", "-n", "-P", "show", "assoc", user, "format=qos") or ""
    return sorted({name for line in output.splitlines() for name in line.split(",") if name})


def qos_checked() -> bool:
    """Return False if Slurm takes any QOS and ignores it, as it does without accounting."""
    config = output_of("scontrol", "show", "config") or ""
    match = re.search(r"AccountingStorageEnforce\s*=\s*(\S+)", config)
    return match is None or "qos" in match[1]


def sbatch_options() -> set[str]:
    """Return the long options that this site's sbatch knows."""
    return set(re.findall(r"--([a-z][a-z0-9-]+)", output_of("sbatch", "--help") or ""))


def _states_in(text: str | None) -> dict[str, JobState]:
    """Return states by job. text: lines with a job, its state and maybe why it waits."""
    rows = [line.split("|", 2) for line in (text or "").splitlines()]
    return {job: state_of(*words) for job, *words in rows}


def ended_states(text: str | None) -> dict[str, JobState]:
    """Return the states of jobs that ended, as `_states_in` does.

    A job that the controller has forgotten does not run, even if the accounting reports that it
    does.
    """
    return {job: state for job, state in _states_in(text).items() if state.phase is Phase.ENDED}
