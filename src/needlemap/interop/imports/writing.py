"""An imported run on disk: all records in one file, then run.json, so that a run is whole or not there."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from needlemap.errors import NeedlemapError
from needlemap.files import open_inside
from needlemap.interop.imports.imported import Imported
from needlemap.runs.origin import signed
from needlemap.runs.store import RunFolder, Writer

RECORDS = "records-imported.jsonl"


def refuse_taken(path: Path) -> None:
    """Raises NeedlemapError when a run is there: an import never adds to one."""
    if RunFolder(path).exists or any(path.glob("records-*.jsonl")):
        raise NeedlemapError(f"'{path}' holds a run already. Give another folder with -o.")


def write(run: Imported, path: Path) -> None:
    """The run's folder. Raises NeedlemapError when it is taken, OSError when it cannot be written."""
    refuse_taken(path)
    with closing(Writer(RunFolder(path))) as writer:
        with open_inside(path / RECORDS, "xb") as file:
            file.writelines(record.line() for record in run.records)
            file.flush()
            os.fsync(file.fileno())
        writer.describe(signed(run.about, run.about["settings"]))
