"""RUN/launch.json: what was started for a run, so that another command can look after it. JSON only: a run
folder may come from anywhere, and nothing in it is ever executed or unpickled."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.runs.locks import LOCK, hold
from needlemap.runs.store import write_json

NAME = "launch.json"


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """One launch. number: of its folder under RUN/launches. kind, options: which launcher. jobs: names, in
    the order of their start. workers: how many at a time. cwd: where paths in the settings start. families:
    where the run is one of a suite, the names of all: what they spent counts. ran_s: how long those before it
    were asked, in seconds, since the suite's limit on time counts that too."""

    number: int
    kind: str
    options: dict[str, Any]
    workers: int
    retry: int
    cwd: str
    families: tuple[str, ...] = ()
    ran_s: float = 0.0
    jobs: tuple[str, ...] = ()
    started: str = field(default_factory=lambda: _now())
    ended: str | None = None

    def write(self, run: Path) -> None:
        """Keep it."""
        write_json(run / NAME, asdict(self))

    def close(self, run: Path) -> None:
        """Nothing of it is left."""
        replace(self, ended=_now()).write(run)


def read_launch(run: Path) -> LaunchFile | None:
    """The last launch of a run; None when there was none. Raises NeedlemapError when it cannot be read."""
    file = run / NAME
    if not file.is_file():
        return None
    try:
        row = json.loads(file.read_bytes())
        return LaunchFile(**{**row, "jobs": tuple(row["jobs"]), "families": tuple(row.get("families", ()))})
    except (ValueError, TypeError, KeyError) as error:
        raise NeedlemapError(f"'{file}' is not a launch of this needlemap: {error!r}.") from None


def refuse_launched(run: Path) -> None:
    """Raises NeedlemapError when workers may still be at work on this run, or wait to be."""
    launch = read_launch(run)
    if launch is None or launch.ended is not None:
        return
    again = f"To look after them: needlemap run --attach {run}."
    if launch.kind == "slurm":
        arrays = ", ".join(dict.fromkeys(job.partition("_")[0] for job in launch.jobs)) or "number unknown"
        raise NeedlemapError(
            f"Slurm jobs ({arrays}) work on '{run}', or wait to. {again} If they are gone for good, delete "
            f"{run / NAME}."
        )
    folder = hold(run / LOCK)  # processes of this machine hold it as long as they live
    if folder is None:
        raise NeedlemapError(f"Workers of this machine are at work on '{run}'. {again}")
    folder.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
