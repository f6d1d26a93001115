"""Who asks, and where: what `needlemap run` is told of workers. None of it changes an answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError

MOST = 32  # jobs at a time, where nobody says


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the command line says of workers; None and () where it says nothing."""

    workers: int | None = None
    slurm: bool = False
    partition: str | None = None
    qos: str | None = None
    max_num_workers: int | None = None
    gpus_per_worker: int | None = None
    time: str | None = None
    slurm_arg: tuple[str, ...] = ()
    retry: int | None = None
    attach: Path | None = None
    dry_run: bool = False

    @property
    def wanted(self) -> bool:
        """Whether anything but one process is asked for. Raises SettingsError for flags that do not fit."""
        given = [name for name in self.__slots__ if getattr(self, name) not in (None, False, ())]
        if self.attach is not None and given != ["attach"]:
            raise SettingsError(f"--attach takes no {_flag(given[0])}: what was started goes on as it is.")
        if self.slurm and self.workers is not None:
            raise SettingsError("--workers is for this machine. With --slurm: --max-num-workers.")
        if not self.slurm:
            for name in ("partition", "qos", "max_num_workers", "time", "slurm_arg"):
                if name in given:
                    raise SettingsError(f"{_flag(name)} goes with --slurm. On this machine: --workers N.")
        if not (self.slurm or self.workers or self.attach) and given:
            raise SettingsError(f"{_flag(given[0])} goes with --workers N or --slurm.")
        return bool(given)

    @property
    def most(self) -> int:
        """Workers at a time, at most."""
        return (self.max_num_workers or MOST) if self.slurm else (self.workers or 1)

    def kind(self) -> tuple[str, dict[str, Any]]:
        """Which launcher, and its options."""
        if not self.slurm:
            gpus = 1 if self.gpus_per_worker is None else self.gpus_per_worker
            return "processes", {"workers": self.most, "gpus_per_worker": gpus}
        options = {
            "partition": self.partition,
            "qos": self.qos,
            "gpus_per_worker": self.gpus_per_worker or 0,
            "time": self.time,
            "arguments": list(self.slurm_arg),
        }
        return "slurm", options


def _flag(name: str) -> str:
    return {"partition": "-p", "qos": "-q"}.get(name, f"--{name.replace('_', '-')}")
