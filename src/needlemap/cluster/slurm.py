"""Replicas as jobs of a Slurm cluster, through its own commands, and what it says of them.

Running jobs and those that ended lately are the controller's (squeue); older ones the accounting's
(sacct), which many sites do not have. Where the controller does not answer, a job's state is
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
_QUOTA = "quotatype"  # an option of sbatch at sites whose quotas are called reserved, spot and auto
_ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"}
_ENDED |= {"CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REVOKED"}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_LIMIT_S = 30
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9-]*")  # of sbatch
_PLAIN = re.compile(r"[A-Za-z0-9./:=,+@%_-]+")  # a value that needs no quotation marks
_GONE = JobState(Phase.ENDED, "gone from Slurm's queue")


def directive(name: str, value: str | None) -> str:
    """Return a line of the batch script that sets an option of sbatch; None: one without a value.

    sbatch parts lines at blanks and knows quotation marks, but no escapes inside of them: what
    would become another option is quoted, and what cannot be is refused. Raises SettingsError.

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
    return f"#SBATCH --{name}={value}" if _PLAIN.fullmatch(value) else f'#SBATCH --{name}="{value}"'


class Slurm(Jobs):
    """Submits to the cluster that this machine belongs to. folder: where all nodes see it.

    qos 'auto': the site chooses. arguments: further options of sbatch, KEY=VALUE or KEY.
    """

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
        super().__init__(folder)
        self._partition, self._qos, self._gpus, self._time = partition, qos, gpus_each, time
        self._arguments = list(arguments)
        self._ended: dict[str, JobState] = {}

    def start(self, count: int, file: Path) -> list[str]:
        """One array of so many jobs. Raises NeedlemapError with Slurm's own words, and what
        there is."""
        if not shutil.which("sbatch"):
            raise NeedlemapError(
                "--slurm needs sbatch, which is not on this machine. Run it on a login node of the "
                "cluster, "
                "or use --workers N here."
            )
        done = subprocess.run(
            ["sbatch", "--parsable"],
            input=self.script(count, file),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        if done.returncode:
            raise NeedlemapError(self._refused(done.stderr))
        array = done.stdout.strip().partition(";")[0]
        return [f"{array}_{number}" for number in range(count)]

    def states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Slurm's states; ends are asked for once."""
        open_jobs = [job for job in jobs if job not in self._ended]
        found = job_states(open_jobs) if open_jobs else {}
        self._ended |= {job: state for job, state in found.items() if state.phase is Phase.ENDED}
        return {**self._ended, **found}

    def end(self, jobs: Sequence[str]) -> None:
        """scancel; jobs that have ended are no error."""
        left = [job for job in jobs if job not in self._ended]
        if left:
            ask("scancel", *left)

    def notes(self) -> list[str]:
        """What Slurm would not say."""
        if self._qos in (None, AUTO) or qos_checked():
            return []
        return [
            f"this Slurm does not look at QOS, so '-q {self._qos}' is accepted and changes nothing"
        ]

    def script(self, count: int, file: Path) -> str:
        """The batch script."""
        options = {"array": f"0-{count - 1}", **self._options()}
        lines = [directive(name, value) for name, value in options.items()]
        command = shlex.join([*PYTHON, "-m", MODULE, str(file)])
        return "\n".join(["#!/bin/bash", *lines, f"exec {command}", ""])

    def _options(self) -> dict[str, str | None]:
        """Options of sbatch, in the order of the script; None for one without a value."""
        chosen = {
            "partition": self._partition,
            "qos": None if self._qos == AUTO else self._qos,
            "time": self._time,
            "gpus-per-node": str(self._gpus) if self._gpus else None,
        }
        return {
            "job-name": "needlemap",
            "nodes": "1",
            "ntasks": "1",
            "chdir": os.getcwd(),
            "open-mode": "append",
            # Slurm replaces %j and its like in the folder's name, too.
            "output": f"{self._folder}/".replace("%", "%%") + "%A_%a.log",
            **{name: value for name, value in chosen.items() if value is not None},
            **self._added(),
        }

    def _added(self) -> dict[str, str | None]:
        added: dict[str, str | None] = {}
        if self._qos == AUTO and _QUOTA in sbatch_options():
            added[_QUOTA] = AUTO
        for argument in self._arguments:
            name, equals, value = argument.partition("=")
            if not _OPTION.fullmatch(name.strip("-").replace("_", "-")):
                raise SettingsError(
                    f"--slurm-arg takes KEY=VALUE, an option of sbatch, got '{argument}'."
                )
            added[name.strip("-").replace("_", "-")] = value if equals else None
        return added

    def _refused(self, words: str) -> str:
        """Slurm's words, and what it would take."""
        lines = [line for line in words.splitlines() if line.startswith("sbatch: ")]
        said = [
            re.sub(r"^sbatch: (error: )?(Batch job submission failed: )?", "", line)
            for line in lines
        ]
        lower = words.lower()
        advice = ""
        if "partition" in lower:
            advice = f"Partitions here: {', '.join(partitions()) or 'sinfo lists none'}."
        elif "qos" in lower:
            advice = f"QOS that you may use: {', '.join(qos_granted()) or 'sacctmgr lists none'}."
        elif "option" in lower:
            name = next((name for name in self._added() if f"--{name}" in words), "")
            advice = did_you_mean(name, sbatch_options()).partition(" Known:")[0] if name else ""
        return f"Slurm refused the jobs: {'; '.join(said) or words.strip()}. {advice}".rstrip()


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
        return dict.fromkeys(jobs, JobState(Phase.UNKNOWN))
    found: dict[str, JobState] = {}
    for array in arrays(jobs):  # one by one: Slurm refuses a list that holds a job it has forgotten
        found |= _listed(ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r", "-j", array))
    missing = [job for job in jobs if job not in found]
    if missing:
        listed = ask(
            "sacct", "-n", "-X", "-P", "--format=JobID,State", "-j", ",".join(arrays(missing))
        )
        found |= accounted(listed)
    return {job: found.get(job, _GONE) for job in jobs}


def state_of(word: str, reason: str = "") -> JobState:
    """A state in Slurm's words, as `CANCELLED by 0`, with why the job waits.

    >>> state_of("PENDING", "PartitionDown").phase, state_of("CANCELLED by 0").phase
    (<Phase.PENDING: 'pending'>, <Phase.ENDED: 'ended'>)
    """
    name = word.partition(" ")[0].rstrip("+")
    if name in _WAITING:
        return JobState(Phase.PENDING, word, "" if reason == "None" else reason)
    return JobState(Phase.ENDED if name in _ENDED else Phase.RUNNING, word)


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
    listed = (
        ask("sacctmgr", "-n", "-P", "show", "assoc", f"user={getpass.getuser()}", "format=qos")
        or ""
    )
    return sorted({name for line in listed.splitlines() for name in line.split(",") if name})


def qos_checked() -> bool:
    """Whether Slurm looks at a QOS at all: without accounting it takes any name and ignores
    it."""
    found = re.search(
        r"AccountingStorageEnforce\s*=\s*(\S+)", ask("scontrol", "show", "config") or ""
    )
    return found is None or "qos" in found[1]


def sbatch_options() -> set[str]:
    """The long options that this site's sbatch knows."""
    return set(re.findall(r"--([a-z][a-z0-9-]+)", ask("sbatch", "--help") or ""))


def _listed(text: str | None) -> dict[str, JobState]:
    """States by lines of a job, its state and maybe why it waits."""
    rows = [line.split("|", 2) for line in (text or "").splitlines()]
    return {job: state_of(*words) for job, *words in rows}


def accounted(text: str | None) -> dict[str, JobState]:
    """Only ends: what the controller has forgotten does not run, whatever the accounting
    believes."""
    return {job: state for job, state in _listed(text).items() if state.phase is Phase.ENDED}
