"""A run's families on disk: one lies in the run's folder, several in folders of their own, by suite.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.files import is_regular, make_folder, read_regular
from needlemap.records.folder import RUN_FILE, write_json
from needlemap.settings.settings import Settings
from needlemap.settings.suites import plain_name
from needlemap.version import __version__

NAME = "suite.json"
SCHEMA = 1


class SuiteFile(BaseModel):
    """suite.json. families: names of their folders, in their order."""

    schema_version: int = SCHEMA
    suite: str
    families: list[str]
    needlemap: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Families:
    """A run's families on disk. suite: its name, '' of a run with one, whose only family is named '' and lies
    in the folder itself. names: of all families, in their order; one that was not begun has no folder."""

    path: Path
    suite: str = ""
    names: tuple[str, ...] = ("",)

    @property
    def is_plain(self) -> bool:
        """Whether the run has one family, without a name."""
        return self.names == ("",)

    @property
    def begun(self) -> list[str]:
        """Names of the families that were begun."""
        if self.is_plain:
            return list(self.names)
        return [name for name in self.names if is_regular(self.folder(name) / RUN_FILE)]

    @property
    def folders(self) -> list[Path]:
        """Where the families that were begun lie."""
        return [self.folder(name) for name in self.begun]

    def folder(self, name: str) -> Path:
        """Where a family lies, or will."""
        return self.path / name

    def beside(self, name: str) -> list[Path]:
        """The folders of the other families."""
        return [self.folder(other) for other in self.names if other != name]


def families_of(path: str | Path) -> Families:
    """The families of a run's folder, by its suite.json; one where there is none. Raises NeedlemapError when
    that is not one of ours."""
    path = Path(path)
    if not is_regular(path / NAME):
        return Families(path)
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
    return Families(path, file.suite, tuple(file.families))


def begin_families(path: Path, suite: str, names: tuple[str, ...]) -> Families:
    """Write suite.json where there are several, or find that of an earlier start. Raises NeedlemapError where
    the folder holds other families."""
    wanted, found = Families(path, suite, names), families_of(path)
    if not wanted.is_plain and is_regular(path / RUN_FILE):
        raise NeedlemapError(f"'{path}' holds a run, not a suite. Give another folder with -o.")
    if not found.is_plain:
        if found != wanted:
            asked = f"'{suite}' ({', '.join(names)})" if suite else "a run with one family"
            raise NeedlemapError(
                f"'{path}' holds suite '{found.suite}' ({', '.join(found.names)}), not {asked}. Give another "
                f"folder with -o."
            )
        return found
    if not wanted.is_plain:
        make_folder(path)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        file = SuiteFile(suite=suite, families=list(names), needlemap=__version__, created=now)
        write_json(path / NAME, json.loads(file.model_dump_json()))
    return wanted


def fresh_folder(settings: Settings, suite: str = "") -> Path:
    """A folder that no run has used: runs/MODEL-TASK-TIME, or runs/MODEL-suite-SUITE-TIME."""
    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in settings.model)
    asked = f"suite-{suite}" if suite else settings.task
    path = Path("runs") / f"{name}-{asked}-{datetime.now():%Y%m%d-%H%M%S}"
    while path.exists():
        path = path.with_name(f"{path.name}-again")
    return path
