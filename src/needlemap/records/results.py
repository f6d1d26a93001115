"""Results of other tools, which packages read.

A package registers a `ResultsReader` by an entry point of group `needlemap.results`. None is
imported for a folder that holds a run of ours.
"""

from __future__ import annotations

from pathlib import Path

from needlemap.files import is_run_folder
from needlemap.records.loaded import Loaded
from needlemap.registry import find_kind, installed


class ResultsReader:
    """Reads files of other tools as runs; nothing is written."""

    def reads(self, path: Path) -> bool:
        """Return whether a file, or a folder without a run of ours, holds such results."""
        raise NotImplementedError

    def load(self, path: Path, metric: str = "") -> list[Loaded]:
        """Return the runs there. metric: which score of a log with several counts; its first if
        not given. Notes on the files are with the first run. Raises NeedlemapError."""
        raise NotImplementedError


def reader_of(path: Path) -> ResultsReader | None:
    """Return what reads the results at a path; None for a run of ours, and for what nobody
    reads."""
    if is_run_folder(path):
        return None
    readers = (find_kind("results", name, ResultsReader)() for name in installed("results"))
    return next((reader for reader in readers if reader.reads(path)), None)
