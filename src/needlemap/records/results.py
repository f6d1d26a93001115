"""Find the package that reads the results of another tool.

A package registers a `ResultsReader` by an entry point of group `needlemap.results`. None is
imported for a folder that holds a run of needlemap.
"""

from __future__ import annotations

from pathlib import Path

from needlemap.files import is_run_folder
from needlemap.records.loaded import Loaded
from needlemap.registry import find_kind, installed


class ResultsReader:
    """Reads files of another tool as runs. It writes nothing."""

    def reads(self, path: Path) -> bool:
        """Return True if a path holds results of the tool that this reader is for.

        path: a file, or a folder that does not hold a run of needlemap.
        """
        raise NotImplementedError

    def load(self, path: Path, metric: str = "") -> list[Loaded]:
        """Return the results at a path as runs. The notes on the files are in the first run.

        metric: the name of the score to read if a log has several; '' for the first one.

        Raise NeedlemapError if the results cannot be read.
        """
        raise NotImplementedError


def reader_of(path: Path) -> ResultsReader | None:
    """Return the first installed reader that can read the results at a path.

    Return None if the path holds a run of needlemap, or if no reader knows the format.
    """
    if is_run_folder(path):
        return None
    for name in installed("results"):
        reader = find_kind("results", name, ResultsReader)()
        if reader.reads(path):
            return reader
    return None
