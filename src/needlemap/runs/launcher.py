"""What a launcher is: it starts workers somewhere, says how they are, and ends them. It reads no records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class Phase(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"  # whoever should know does not answer


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job is. word: the scheduler's own. reason: why it is pending. blameless: whether it ended for no
    fault of what it was doing (preempted, cancelled, its node was lost)."""

    phase: Phase
    word: str = ""
    reason: str = ""
    blameless: bool = False


class Launcher(Protocol):
    """Starts workers for one launch, whose folder it was given."""

    kind: str  # 'processes' or 'slurm'
    lasting: (
        bool  # whether its jobs are meant to outlive the submitting command, so that one Ctrl-C spares them
    )

    def submit(self, count: int) -> Sequence[str]:
        """Start workers; the names of their jobs. Raises NeedlemapError in the scheduler's words."""
        ...

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """How jobs are that this launch started, by this command or an earlier one."""
        ...

    def log(self, job: str) -> Path:
        """Where a job's worker writes what it has to say."""
        ...

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs; those that have ended already are no error."""
        ...

    def options(self) -> dict[str, Any]:
        """Plain values from which the same launcher is made again."""
        ...

    def notes(self) -> Sequence[str]:
        """What the user should know before it submits."""
        ...

    def script(self, count: int) -> str:
        """What `submit` would do, as a shell script."""
        ...
