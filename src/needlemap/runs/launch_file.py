"""RUN/launch.json: what was started for a run, so that another command can look after it. JSON only: a run
folder may come from anywhere, and nothing in it is ever executed or unpickled."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import is_regular, read_regular
from needlemap.runs.origin import TRUST, is_ours, signed
from needlemap.runs.store import LOCK, hold, write_json

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
        write_json(run / NAME, signed(asdict(self), asdict(self)))

    def close(self, run: Path) -> None:
        """Nothing of it is left."""
        replace(self, ended=_now()).write(run)


def read_launch(run: Path) -> LaunchFile | None:
    """The last launch of a run; None when there was none. Raises NeedlemapError when it cannot be read."""
    file = run / NAME
    if not is_regular(file):
        return None
    try:
        return _SHAPE.validate_json(read_regular(file))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "its JSON"
        raise NeedlemapError(f"'{file}' is no launch of this needlemap: {where}: {problem['msg']}.") from None


def check_launched_here(run: Path, launch: LaunchFile, trusted: bool) -> None:
    """Raises NeedlemapError for a launch of another machine: going on starts what it says, where it says."""
    row = json.loads(read_regular(run / NAME))
    if not trusted and not is_ours(row, asdict(launch)):
        raise NeedlemapError(
            f"'{run / NAME}' was not written by you on this machine. Going on starts workers as it says: "
            f"{launch.kind} {launch.options} in '{launch.cwd}'. If you trust that, type the same with {TRUST}"
        )


_SHAPE = TypeAdapter(LaunchFile)


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
