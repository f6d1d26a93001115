"""Find the package that reads the results of another tool.

A package registers a `ResultsReader` by an entry point of group `needlemap.results`. None is
imported for a folder that holds a run of ours.
"""

from __future__ import annotations

from pathlib import Path

from needlemap.files import is_run_folder
from needlemap.records.loaded import Loaded
from needlemap.registry import find_kind, installed


class ResultsReader:
    """Reads files of another tool as runs. It writes nothing."""

    def reads(self, path: Path) -> bool:
        """Return True if a file, or a folder without a run of ours, holds such results."""
        raise NotImplementedError

    def load(self, path: Path, metric: str = "") -> list[Loaded]:
        """Return the runs at a path. The first one has the notes on the files.

        metric: the score that counts in a log with several; '' for the first one.

        Raise NeedlemapError if they cannot be read.
        """
        raise NotImplementedError


def reader_of(path: Path) -> ResultsReader | None:
    """Return the reader of the results at a path.

    If the path holds a run of ours, or if no reader knows the format, None is returned.
    """
    if is_run_folder(path):
        return None
    for name in installed("results"):
        reader = find_kind("results", name, ResultsReader)()
        if reader.reads(path):
            return reader
    return None
