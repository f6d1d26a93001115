"""A run's families on disk, and whether the run was begun here.

One family lies in the run's folder, several in folders of their own, by suite.json.

A run was begun here if run.json is signed with a key that only its owner has. The key lies in
a file of the user's state folder, for the user alone; nothing in a run's folder says where.
Machines that share a home share it. A lost key, or a run of another machine, only means that
going on with the run wants a word: what its run.json says is followed then, models, addresses
and files of this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from needlemap.errors import NeedlemapError
from needlemap.files import (
    AB_FILE,
    CHECK_FILE,
    RUN_FILE,
    STORM_FILE,
    SUITE_FILE,
    folder_name,
    is_regular,
    make_folder,
    plain_name,
    read_regular,
    write_whole,
)
from needlemap.models import backend_or_default
from needlemap.records.document import DocumentKind
from needlemap.records.folder import RunFolder
from needlemap.records.run_file import RunFile, RunKind
from needlemap.secrets import hidden, key_names
from needlemap.settings import Settings, marked
from needlemap.settings.trust import TRUST
from needlemap.version import __version__

SUITE_SCHEMA = 1
_KEY_BYTES = 32
_PILOTS = "pilots/*"  # runs inside a run's folder, of run --difficulty auto


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
        if is_regular(self.path / AB_FILE):
            return "ab"
        if is_regular(self.path / STORM_FILE):
            return "storm"
        return "check" if is_regular(self.path / CHECK_FILE) else "suite"

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


def signed(about: RunFile) -> RunFile:
    """run.json with a signature of its settings, which are followed; as it is where no key is
    kept."""
    signature = _signature(about.settings, make=True)
    return about.model_copy(update={"signed": signature}) if signature else about


def is_ours(about: RunFile) -> bool:
    """Whether this user signed a run.json's settings."""
    ours = _signature(about.settings, make=False)
    return bool(ours) and hmac.compare_digest(ours.encode(), about.signed.encode())


def check_origin(path: Path, trusted: bool = False) -> None:
    """Raises NeedlemapError for a run, or a suite's or difficulty's runs, that this machine
    did not begin, and says what would be followed; not where the user trusts it."""
    if trusted:
        return
    for run in (
        run for run in (*families_of(path).folders, *path.glob(_PILOTS)) if RunFolder(run).exists
    ):
        about = RunFolder(run).about()
        if not is_ours(about):
            raise NeedlemapError(
                f"'{run}' was not begun by you on this machine. Going on follows what its "
                f"{RUN_FILE} says: "
                f"{'; '.join(followed(about))}. If you trust that, type the same with "
                f"{TRUST}"
            )


def followed(about: RunFile) -> list[str]:
    """What a run's settings make this machine open or ask, in words."""
    settings, model = about.settings, about.named.model
    lines = [f"model {model}"]
    address = settings.get("base_url")
    lines += [f"address {hidden(str(address))}"] if address else []
    keys = [*key_names(settings)] or [backend_or_default(model.partition("/")[0]).key_variable]
    lines += [f"key of ${', $'.join(keys)}"] if any(keys) else []
    for name in marked("executes_or_opens"):
        value = settings.get(name)
        given = value not in (None, "", "auto", [], {})
        lines += [f"{name.replace('_', ' ')} {hidden(str(value))}"] if given else []
    return lines


def _signature(part: Any, *, make: bool) -> str:
    """HMAC-SHA-256 of JSON; '' without a key. make: one, where there is none yet."""
    key = _key(make)
    text = json.dumps(part, sort_keys=True, ensure_ascii=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else ""


def _key(make: bool) -> bytes:
    """This user's key; b'' where there is none, or where a home keeps no files."""
    with suppress(OSError, RuntimeError, NeedlemapError):  # also nobody's home, in a container
        file = _state() / "run-key"
        if make and not file.exists():
            _make_key(file)
        return read_regular(file) if file.stat().st_uid == os.getuid() else b""
    return b""


def _make_key(file: Path) -> None:
    """Write a key, unless another process was quicker."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f"{file.name}-{secrets.token_hex(4)}")
    write_whole(draft, secrets.token_hex(_KEY_BYTES).encode())
    try:
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()


def _state() -> Path:
    """The folder of what programs remember of themselves (XDG Base Directory
    Specification)."""
    named = os.environ.get("XDG_STATE_HOME", "")
    home = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return home / "needlemap"
