"""Find a run's families on disk, and write suite.json for new ones.

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
    """The content of suite.json.

    Attributes:
        families: The names of their folders, in order.
        scores: Weighted means of some families, by name: the weight of each of its families.
        needlemap: The version that wrote the file.
        created: When it was written, in UTC.
    """

    schema_version: int = SUITE_SCHEMA
    suite: str
    families: list[str]
    scores: dict[str, dict[str, float]] = {}
    needlemap: str = ""
    created: str = ""


SUITE = DocumentKind(SUITE_FILE, "suite", SuiteFile, SUITE_SCHEMA)


@dataclass(frozen=True, slots=True)
class Families:
    """A run's families on disk.

    Attributes:
        path: The run's folder.
        suite: The suite's name; '' for a run with one family, which is named '' and lies in the
            folder itself.
        names: The names of all families, in order. A family that was not begun has no folder.
        scores: Weighted means of some families, by name: the weight of each of its families.
    """

    path: Path
    suite: str = ""
    names: tuple[str, ...] = ("",)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)

    @property
    def is_plain(self) -> bool:
        """Return True for a run with one family, which has no name."""
        return self.names == ("",)

    @property
    def kind(self) -> RunKind:
        """Return the command that made the families, by the documents in the folder."""
        if self.is_plain:
            return "run"
        kind: RunKind
        for kind in get_args(RunKind):
            if kind in installed("findings") and is_regular(self.path / f"{kind}.json"):
                return kind
        return "suite"

    @property
    def has_findings(self) -> bool:
        """Return True if the families are parts of a check, an ab or a storm, not of a suite."""
        return self.kind in installed("findings")

    @property
    def started_names(self) -> list[str]:
        """Return the names of the families of a suite that have a run file.

        For a run with one family it is always [''], the family's name. So `load_run` raises an
        error if the folder holds no run.
        """
        if self.is_plain:
            return list(self.names)
        return [name for name in self.names if is_regular(self.folder(name) / RUN_FILE)]

    @property
    def folders(self) -> list[Path]:
        """Return the folders of the families in `started_names`."""
        return [self.folder(name) for name in self.started_names]

    def folder(self, name: str) -> Path:
        """Return the path of a family's folder, which may not exist yet."""
        return self.path / name


def kind_of(folder: Path) -> RunKind:
    """Return the command that made a family's folder, or 'run' if no family has the folder."""
    # A broken suite.json above a run does not concern the run.
    with suppress(NeedlemapError):
        families = families_of(folder.parent)
        if folder.name in families.names:
            return families.kind
    return "run"


def families_of(path: str | Path) -> Families:
    """Return the families that a run's suite.json names, or one family if it has no suite.json.

    Raise NeedlemapError if the suite.json is not one of ours.
    """
    path = Path(path)
    if not SUITE.is_in(path):
        return Families(path)

    file = SUITE.read(path)
    # Somebody else's suite.json may name any folder of this machine.
    if not all(map(plain_name, file.families)):
        raise NeedlemapError(f"'{path / SUITE_FILE}' names families outside of its folder.")
    for score, weights in file.scores.items():
        is_known = bool(weights) and weights.keys() <= {*file.families}
        if not is_known or not all(map(is_weight, weights.values())):
            raise NeedlemapError(
                f"'{path / SUITE_FILE}': score '{score}' gives a weight to a family that the "
                f"suite lacks."
            )
    return Families(path, file.suite, names=tuple(file.families), scores=file.scores)


def is_weight(value: float) -> bool:
    """Return True if a number can be a family's weight in a mean."""
    return 0 < value < inf


def begin_families(
    path: Path,
    suite: str,
    names: tuple[str, ...],
    scores: Mapping[str, Mapping[str, float]] | None = None,
) -> Families:
    """Write suite.json for several families, or return the families of an earlier start.

    Raise NeedlemapError if the folder holds other families.
    """
    families = Families(path, suite, names=names, scores=scores or {})
    if not families.is_plain and is_regular(path / RUN_FILE):
        raise NeedlemapError(f"'{path}' holds a run, not a suite. Give another folder with -o.")

    earlier_families = families_of(path)
    if not earlier_families.is_plain:
        if earlier_families != families:
            title = f"'{suite}' ({', '.join(names)})" if suite else "a run with one family"
            earlier_names = ", ".join(earlier_families.names)
            raise NeedlemapError(
                f"'{path}' holds suite '{earlier_families.suite}' ({earlier_names}), not {title}. "
                f"Give another folder with -o."
            )
        return earlier_families

    if not families.is_plain:
        make_folder(path)
        file = SuiteFile(
            suite=suite,
            families=list(names),
            scores={name: dict(weights) for name, weights in families.scores.items()},
            needlemap=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        SUITE.write(path, file)
    return families


def concurrent_start_error(path: Path) -> NeedlemapError:
    """Return the error of two starts at once on a new folder, on a file system without locks."""
    return NeedlemapError(
        f"'{path}' was begun by another needlemap meanwhile. Type the same again to go on with it, "
        f"or give another folder with -o."
    )


def fresh_folder(settings: Settings, suite: str = "", models: int = 1) -> Path:
    """Return a folder that no run has used.

    For example runs/MODEL-TASK-TIME, runs/MODEL-suite-SUITE-TIME or runs/2-models-TASK-TIME.
    """
    model = folder_name(settings.model) if models == 1 else f"{models}-models"
    task = f"suite-{suite}" if suite else settings.task
    path = Path("runs") / f"{model}-{task}-{datetime.now():%Y%m%d-%H%M%S}"
    while path.exists():
        path = path.with_name(f"{path.name}-again")
    return path
