"""A run as it was read from its folder: run.json and every record, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from needlemap.maps.answers import latest_records
from needlemap.maps.cube import Cube
from needlemap.maps.map import Map
from needlemap.runs.record import Record
from needlemap.runs.session import cube_of_run, map_of
from needlemap.runs.store import RunFolder


@dataclass(frozen=True)
class Loaded:
    """path: as the user gave it. about: what run.json holds. records: one a trial, as `latest_records`.
    notes: what in its folder was left out, in words."""

    path: str
    about: Mapping[str, Any]
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def map(self) -> Map:
        """Its map."""
        return map_of(self.about, self.records)

    @cached_property
    def cube(self) -> Cube:
        """Its scores as an array."""
        return cube_of_run(self.about, self.records)


def load_run(path: str | Path) -> Loaded:
    """Read a run folder. Raises NeedlemapError when there is no run, or it cannot be read."""
    folder = RunFolder(path)
    records = tuple(latest_records(folder.records()))
    return Loaded(str(path), folder.about(), records, tuple(folder.left_out.notes()))
