"""What Slurm says of its jobs, partitions and QOS, through its own commands.

Running jobs and those that ended lately are the controller's (squeue); older ones the accounting's (sacct),
which many sites do not have. Where the controller does not answer, a job's state is unknown, and nothing is
concluded from that.
"""

from __future__ import annotations

import getpass
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from needlemap.runs.launcher import JobState, Phase

_ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"}
_BLAMELESS = {"CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REVOKED"}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_LIMIT_S = 30
UNKNOWN = JobState(Phase.UNKNOWN)
_GONE = JobState(Phase.ENDED, "gone from Slurm's queue")


def ask(*command: str) -> str | None:
    """What a command prints; None when it fails, is missing or does not answer."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def arrays(jobs: Iterable[str]) -> list[str]:
    """The arrays that jobs belong to, each once.

    >>> arrays(["12_0", "12_1", "15"])
    ['12', '15']
    """
    return list(dict.fromkeys(job.partition("_")[0] for job in jobs))


def job_states(jobs: Sequence[str]) -> dict[str, JobState]:
    """The states of jobs and array tasks."""
    if ask("scontrol", "ping") is None:
        return dict.fromkeys(jobs, UNKNOWN)
    found: dict[str, JobState] = {}
    for array in arrays(jobs):  # one by one: Slurm refuses a list that holds a job it has forgotten
        queued = ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r", "-j", array)
        found |= _queued(queued or "")
    missing = [job for job in jobs if job not in found]
    if missing:
        listed = ask("sacct", "-n", "-X", "-P", "--format=JobID,State", "-j", ",".join(arrays(missing)))
        found |= _accounted(listed or "")
    return {job: found.get(job, _GONE) for job in jobs}


def state_of(word: str, reason: str = "") -> JobState:
    """A state in Slurm's words, as `CANCELLED by 0`, with why the job waits.

    >>> state_of("PENDING", "PartitionDown").phase, state_of("CANCELLED by 0").blameless
    (<Phase.PENDING: 'pending'>, True)
    """
    name = word.partition(" ")[0].rstrip("+")
    if name in _WAITING:
        return JobState(Phase.PENDING, word, "" if reason == "None" else reason)
    ended = name in _ENDED or name in _BLAMELESS
    return JobState(Phase.ENDED if ended else Phase.RUNNING, word, "", name in _BLAMELESS)


def partitions() -> list[str]:
    """The partitions that exist, with what is special about them."""
    rows = [line.split("|") for line in (ask("sinfo", "-h", "-o", "%P|%a") or "").splitlines()]
    names: dict[str, None] = {}
    for name, available in rows:
        notes = ["default"] * name.endswith("*") + [available] * (available != "up")
        names[name.rstrip("*") + (f" ({', '.join(notes)})" if notes else "")] = None
    return list(names)


def qos_granted() -> list[str]:
    """The QOS that the user may ask for, as far as the accounting tells."""
    listed = ask("sacctmgr", "-n", "-P", "show", "assoc", f"user={getpass.getuser()}", "format=qos") or ""
    return sorted({name for line in listed.splitlines() for name in line.split(",") if name})


def qos_checked() -> bool:
    """Whether Slurm looks at a QOS at all: without accounting it takes any name and ignores it."""
    found = re.search(r"AccountingStorageEnforce\s*=\s*(\S+)", ask("scontrol", "show", "config") or "")
    return found is None or "qos" in found[1]


def sbatch_options() -> set[str]:
    """The long options that this site's sbatch knows."""
    return set(re.findall(r"--([a-z][a-z0-9-]+)", ask("sbatch", "--help") or ""))


def _queued(text: str) -> Mapping[str, JobState]:
    rows = [line.split("|", 2) for line in text.splitlines()]
    return {job: state_of(word, reason) for job, word, reason in rows}


def _accounted(text: str) -> Mapping[str, JobState]:
    """Only ends: what the controller has forgotten does not run, whatever the accounting believes."""
    rows = [line.split("|", 1) for line in text.splitlines()]
    states = {job: state_of(word) for job, word in rows}
    return {job: state for job, state in states.items() if state.phase is Phase.ENDED}
