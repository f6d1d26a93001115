"""What was added to a run's records since the last look, by whichever process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from needlemap.files import lines_of, open_regular
from needlemap.runs.record import Record
from needlemap.runs.store import parsed, records_files


class Tail:
    """Reads records files as they grow. A line that is not whole yet is left for the next look."""

    def __init__(self, folder: Path, besides: str = "") -> None:
        """besides: the name of a file to leave out."""
        self._folder, self._besides = folder, besides
        self._read: dict[str, int] = {}

    def new(self) -> Iterator[Record]:
        """Records that came since the last call, all at the first."""
        for file in records_files(self._folder):
            if file.name != self._besides:
                yield from self._of(file)

    def _of(self, file: Path) -> Iterator[Record]:
        with open_regular(file) as opened:
            opened.seek(self._read.get(file.name, 0))
            for line in lines_of(opened):
                if not line.endswith(b"\n"):
                    return
                self._read[file.name] = self._read.get(file.name, 0) + len(line)
                record = parsed(line)
                if record is not None:
                    yield record
