"""A suite's folder: suite.json, and a run's folder for each family. A family not begun yet has none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import is_regular, make_folder, read_regular
from needlemap.runs.budget import Budget
from needlemap.runs.closed_book import every_record
from needlemap.runs.store import RUN_FILE, RunFolder, write_json
from needlemap.settings.settings import Settings
from needlemap.suites import Suite, plain_name
from needlemap.version import __version__

NAME = "suite.json"
SCHEMA = 1


class SuiteFile(BaseModel):
    """suite.json. families: names of the run folders, in their order."""

    schema_version: int = SCHEMA
    suite: str
    families: list[str]
    needlemap: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class SuiteFolder:
    """A suite on disk."""

    path: Path
    suite: str
    families: tuple[str, ...]

    @property
    def runs(self) -> list[Path]:
        """Folders of the families that were begun, in their order."""
        found = [self.path / family for family in self.families]
        return [path for path in found if is_regular(path / RUN_FILE)]

    def beside(self, family: str) -> list[Path]:
        """The folders of the other families."""
        return [self.path / other for other in self.families if other != family]


def budget_beside(settings: Settings, others: Iterable[Path], started_s: float) -> Budget:
    """The limits of one of several runs: what the others have spent counts, as does time since `started_s`,
    by the monotonic clock. Nothing is read where nothing is limited."""
    budget = Budget.of(settings, started_s)
    if settings.limit_usd is None and settings.limit_tokens is None:
        return budget
    for folder in map(RunFolder, others):
        for record in [*folder.every_record(), *every_record(folder)]:
            budget.add(record)
    return budget


def is_suite(path: Path) -> bool:
    """Whether a folder is a suite's."""
    return is_regular(path / NAME)


def open_suite(path: Path) -> SuiteFolder:
    """Read suite.json. Raises NeedlemapError when it is not one of ours."""
    try:
        file = SuiteFile.model_validate_json(read_regular(path / NAME))
    except ValidationError as error:
        raise NeedlemapError(f"'{path / NAME}' is not a suite's: {error.errors()[0]['msg']}.") from None
    if file.schema_version > SCHEMA:
        raise NeedlemapError(
            f"Suite '{path}' was written by a newer needlemap. Run: pip install -U needlemap"
        )
    if not all(map(plain_name, file.families)):  # a stranger's may name any folder of this machine
        raise NeedlemapError(f"'{path / NAME}' names families outside of its folder.")
    return SuiteFolder(path, file.suite, tuple(file.families))


def make_suite(path: Path, suite: Suite) -> SuiteFolder:
    """Write suite.json, or find that of an earlier start. Raises NeedlemapError for another suite's."""
    if is_regular(path / RUN_FILE):
        raise NeedlemapError(f"'{path}' holds a run, not a suite. Give another folder with -o.")
    if is_suite(path):
        found = open_suite(path)
        if (found.suite, found.families) != (suite.name, tuple(suite.families)):
            raise NeedlemapError(
                f"'{path}' holds suite '{found.suite}' ({', '.join(found.families)}), not '{suite.name}' "
                f"({', '.join(suite.families)}). Give another folder with -o."
            )
        return found
    make_folder(path)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file = SuiteFile(suite=suite.name, families=list(suite.families), needlemap=__version__, created=now)
    write_json(path / NAME, json.loads(file.model_dump_json()))
    return SuiteFolder(path, suite.name, tuple(suite.families))
