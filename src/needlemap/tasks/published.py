"""Prompts of a published set, from a file that the user brings: asked as they are, with nothing hidden."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Draw, Item, Whole
from needlemap.tasks.formats import FORMATS, told_format
from needlemap.tasks.rows import read_rows


class Published(metaclass=Checked):
    """Prompts of a published set, from a file: RULER, MRCR, BABILong, LongBench v2.

    path: a .jsonl, .json, .csv or .parquet file. format: whose rows they are; auto: by their fields. limit:
    the first so many rows.
    """

    name = "published"

    def __init__(
        self,
        *,
        path: str = "",
        format: Literal["auto", "ruler", "mrcr", "mrcr2", "babilong", "longbench"] = "auto",
        limit: int | None = None,
    ) -> None:
        if not path:
            raise SettingsError("Task 'published' needs a file: --task-options path=FILE.jsonl")
        if limit is not None and limit < 1:
            raise SettingsError(f"Option 'limit' must be at least 1, got {limit}.")
        file = Path(path).expanduser()
        rows = read_rows(file)[:limit]
        self.format = told_format(rows[0]) if format == "auto" else format
        self.scorer, self._file = FORMATS[self.format].scorer, file
        self.scorer_options = FORMATS[self.format].scorer_options
        answers = [str(row.get("target", "")).strip() for row in rows]
        self._prompts = [self._read(number, row, answers) for number, row in enumerate(rows, 1)]

    def prompts(self) -> Sequence[Whole]:
        """All prompts, in the file's order."""
        return self._prompts

    def source(self) -> tuple[str, str]:
        """The file's name, and its sha256."""
        with self._file.open("rb") as file:
            digest = sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
        return f"{self.format}:{self._file.name}", digest.hexdigest()

    def item(self, draw: Draw) -> Item:
        """The item of the prompt with the repeat's number."""
        return self._prompts[draw.repeat].item

    def _read(self, number: int, row: dict[str, object], answers: Sequence[str]) -> Whole:
        try:
            return FORMATS[self.format].read(row, answers)
        except (KeyError, TypeError, ValueError) as error:
            why = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SettingsError(
                f"'{self._file}', row {number}: not of the format '{self.format}' ({why}). Formats: "
                f"{', '.join(FORMATS)}; choose with --task-options format=NAME"
            ) from None
