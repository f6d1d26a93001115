"""A run as it was read from its folder: run.json and every record, once, and what statistics make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from needlemap.files import is_regular
from needlemap.maps.cube import AskedPrompt, Cube, latest_records, make_cube, prompts_of
from needlemap.maps.map import Map, make_map, with_scores, with_skipped
from needlemap.maps.smooth import Smoothed, smoothed
from needlemap.records.folder import CLOSED_BOOK, RunFolder
from needlemap.records.record import Record
from needlemap.records.run_file import one_haystack
from needlemap.text import printable


@dataclass(frozen=True)
class Loaded:
    """path: as the user gave it. about: what run.json holds. records: one a trial, as `latest_records`.
    notes: what in its folder was left out, in words. folder: None where another tool's file was read."""

    path: str
    about: Mapping[str, Any]
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    folder: RunFolder | None = None

    @cached_property
    def prompts(self) -> list[AskedPrompt]:
        """What it asked and is still to ask, each prompt with all cells that it stands for."""
        return prompts_of(self.records, self.about["cells"], self.about.get("shared"))

    @cached_property
    def cube(self) -> Cube:
        """Its scores as an array."""
        return make_cube(self.prompts, one_haystack=one_haystack(self.about))

    @cached_property
    def map(self) -> Map:
        """Its map."""
        settings = self.about["settings"]
        map = make_map(
            self.prompts,
            model=called(settings),
            tokenizer=printable(str(self.about["tokenizer"]["name"]), line=True),
            task=printable(str(settings["task"]), line=True),
            scorer=printable(str(self.about["scorer"]["name"]), line=True),
            mode=settings["mode"],
            cube=self.cube,
            depthless=bool(self.about.get("depthless")),
        )
        return with_skipped(map) if self.about.get("stopped") else map

    @cached_property
    def smoothed(self) -> Smoothed:
        """Its smoothed layer, or why there is none."""
        return smoothed(self.cube)

    @property
    def smoothed_map(self) -> Map | None:
        """Its map with the smoothed scores, for drawing; None where they are withheld."""
        return with_scores(self.map, self.smoothed.scores) if self.smoothed.scores else None


def load_run(folder: RunFolder | str | Path) -> Loaded:
    """Read a run. Raises NeedlemapError when there is no run, or it cannot be read."""
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    records = tuple(latest_records(folder.records()))
    return Loaded(folder.given, folder.about(), records, tuple(folder.left_out.notes()), folder)


def load_map(folder: RunFolder | str | Path) -> Map:
    """The map of a run folder."""
    return load_run(folder).map


def called(settings: Mapping[str, Any]) -> str:
    """What reports call a run's model: its label, else BACKEND/NAME; a stranger's may say anything."""
    return printable(str(settings.get("label") or settings["model"]), line=True)


def closed_book_records(folder: RunFolder) -> Iterator[Record]:
    """Every record of questions without a haystack, as written: for limits, since each was paid for."""
    if is_regular(file := folder.path / CLOSED_BOOK):
        yield from folder.records_in(file, folder.about() if folder.exists else {})


def kept(folder: RunFolder) -> list[Record]:
    """The last record of each question without a haystack, scored ones first."""
    found: dict[str, Record] = {}
    for record in closed_book_records(folder):
        if record.scored or record.key not in found:
            found[record.key] = record
    return list(found.values())
