"""A run's families on disk.

One family lies in the run's folder, several in folders of their own, by suite.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from needlemap.errors import NeedlemapError
from needlemap.files import (
    RUN_FILE,
    SUITE_FILE,
    folder_name,
    is_regular,
    make_folder,
    plain_name,
)
from needlemap.records.document import DocumentKind
from needlemap.records.run_file import RunKind
from needlemap.registry import installed
from needlemap.settings import Settings
from needlemap.version import __version__

SUITE_SCHEMA = 1


class SuiteFile(BaseModel):
    """suite.json. families: names of their folders, in their order. scores: weighted means of some
    of them, by name; of each its families' weights."""

    schema_version: int = SUITE_SCHEMA
    suite: str
    families: list[str]
    scores: dict[str, dict[str, float]] = {}
    needlemap: str = ""
    created: str = ""


SUITE = DocumentKind(SUITE_FILE, "suite", SuiteFile, SUITE_SCHEMA)


@dataclass(frozen=True, slots=True)
class Families:
    """A run's families on disk. suite: its name, '' of a run with one, whose only family is
    named '' and lies in the folder itself. names: of all families, in their order; one that
    was not begun has no folder. scores: weighted means of some families, by name, in their
    order; of each its families' weights."""

    path: Path
    suite: str = ""
    names: tuple[str, ...] = ("",)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the run has one family, without a name."""
        return self.names == ("",)

    @property
    def kind(self) -> RunKind:
        """What asked the families, by the documents in the folder."""
        if self.is_plain:
            return "run"
        kinds = (name for name in get_args(RunKind) if name in installed("findings"))
        return next((name for name in kinds if is_regular(self.path / f"{name}.json")), "suite")

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


def kind_of(folder: Path) -> RunKind:
    """What asks in a family's folder: what its families' folder is for, 'run' where it stands
    alone."""
    with suppress(NeedlemapError):  # whatever else lies above a run is no matter of its own
        around = families_of(folder.parent)
        if folder.name in around.names:
            return around.kind
    return "run"


def families_of(path: str | Path) -> Families:
    """The families of a run's folder, by its suite.json; one where there is none. Raises
    NeedlemapError when that is not one of ours."""
    path = Path(path)
    if not SUITE.is_in(path):
        return Families(path)
    file = SUITE.read(path)
    if not all(map(plain_name, file.families)):  # a stranger's may name any folder of this machine
        raise NeedlemapError(f"'{path / SUITE_FILE}' names families outside of its folder.")
    for score, weights in file.scores.items():
        if (
            not {*weights} <= {*file.families}
            or not weights
            or not all(map(is_weight, weights.values()))
        ):
            raise NeedlemapError(
                f"'{path / SUITE_FILE}': score '{score}' gives a weight to a family that the "
                f"suite lacks."
            )
    return Families(path, file.suite, tuple(file.families), file.scores)


def is_weight(value: float) -> bool:
    """Whether a number can weigh a family in a mean."""
    return 0 < value < inf


def begin_families(
    path: Path,
    suite: str,
    names: tuple[str, ...],
    scores: Mapping[str, Mapping[str, float]] | None = None,
) -> Families:
    """Write suite.json where there are several, or find that of an earlier start. Raises
    NeedlemapError where the folder holds other families."""
    wanted, found = Families(path, suite, names, scores or {}), families_of(path)
    if not wanted.is_plain and is_regular(path / RUN_FILE):
        raise NeedlemapError(f"'{path}' holds a run, not a suite. Give another folder with -o.")
    if not found.is_plain:
        if found != wanted:
            asked = f"'{suite}' ({', '.join(names)})" if suite else "a run with one family"
            raise NeedlemapError(
                f"'{path}' holds suite '{found.suite}' ({', '.join(found.names)}), not {asked}. "
                f"Give another "
                f"folder with -o."
            )
        return found
    if not wanted.is_plain:
        make_folder(path)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        file = SuiteFile(
            suite=suite,
            families=list(names),
            scores={name: dict(weights) for name, weights in wanted.scores.items()},
            needlemap=__version__,
            created=now,
        )
        SUITE.write(path, file)
    return wanted


def begun_meanwhile(path: Path) -> NeedlemapError:
    """What two starts at once on a new folder say, where no lock kept one of them out."""
    return NeedlemapError(
        f"'{path}' was begun by another needlemap meanwhile. Type the same again to go on with it, "
        f"or give another folder with -o."
    )


def fresh_folder(settings: Settings, suite: str = "", models: int = 1) -> Path:
    """A folder that no run has used: runs/MODEL-TASK-TIME, or runs/MODEL-suite-SUITE-TIME; of
    several models with their number."""
    name = folder_name(settings.model) if models == 1 else f"{models}-models"
    asked = f"suite-{suite}" if suite else settings.task
    path = Path("runs") / f"{name}-{asked}-{datetime.now():%Y%m%d-%H%M%S}"
    while path.exists():
        path = path.with_name(f"{path.name}-again")
    return path
