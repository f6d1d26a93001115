"""Who is told what happens in a run, and who keeps its records."""

from __future__ import annotations

from typing import Protocol

from needlemap.runs.record import Record
from needlemap.trials.build import Trial


class Watcher(Protocol):
    """Is told what happens in a run."""

    def asked(self, trial: Trial) -> None:
        """A request goes out."""
        ...

    def recorded(self, record: Record) -> None:
        """A trial ended; its record is already kept."""
        ...

    def said(self, event: str) -> None:
        """Something else that people want to know, such as a long wait."""
        ...


class Keeper(Protocol):
    """Keeps records."""

    async def append(self, record: Record) -> None:
        """Return when the record is safe; it becomes so even if the caller is cancelled meanwhile."""
        ...
