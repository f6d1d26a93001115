"""Whose run a run.json is: the one door to settings of a run that are followed.

A run was begun here if run.json is signed with a key that only its owner has. The key lies in
a file of the user's state folder, for the user alone; nothing in a run's folder says where.
Machines that share a home share it. A lost key, or a run of another machine, only means that
going on with the run wants a word: what its run.json says is followed then, models, addresses
and files of this machine.

What builds prompts, scores, or sends requests by a run's settings takes a `CheckedRun`. Each
is checked by its own run.json: no other file of its folder, such as suite.json, has a say.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import RUN_FILE, read_regular, write_whole
from needlemap.models import backend_or_default
from needlemap.records.folder import RunFolder
from needlemap.records.run_file import RunFile
from needlemap.secrets import hidden, key_names
from needlemap.settings import Settings, marked
from needlemap.settings.reading import checked
from needlemap.settings.trust import TRUST

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A run whose settings may be followed. about: its run.json as it was checked, which is not
    read again. Made by `of` alone."""

    folder: RunFolder
    about: RunFile

    @classmethod
    def of(cls, path: Path, trusted: bool = False) -> CheckedRun:
        """Open a run that this user began on this machine, or trusts. Raises NeedlemapError for
        another one, for an imported one, and where there is none."""
        folder = RunFolder(path)
        about = folder.about()
        if about.imported:
            raise NeedlemapError(
                f"'{path}' was imported: its prompts are not known, so none can be built again."
            )
        _refuse_stranger(path, about, trusted)
        return cls(folder, about)

    @property
    def is_ours(self) -> bool:
        """Whether this user signed it; else it is followed because it is trusted."""
        return is_ours(self.about)

    def settings(self, **instead: Any) -> Settings:
        """Its settings, with some in place of its own. Raises SettingsError for what this
        version cannot read."""
        return checked({**self.about.settings, **instead}, str(self.folder.path / RUN_FILE))


def signed(about: RunFile) -> RunFile:
    """run.json with a signature of its settings, which are followed; as it is where no key is
    kept."""
    signature = _signature(_signed_part(about), make=True)
    return about.model_copy(update={"signed": signature}) if signature else about


def is_ours(about: RunFile) -> bool:
    """Whether this user signed a run.json's settings."""
    ours = _signature(_signed_part(about), make=False)
    return bool(ours) and hmac.compare_digest(ours.encode(), about.signed.encode())


def check_origin(path: Path, trusted: bool = False, names: Iterable[str] = ("",)) -> None:
    """Raises NeedlemapError where a folder that is gone on with holds a run that this machine
    did not begin, and says what would be followed; not where the user trusts it.

    names: of the folders in it that are gone on with, '' for itself. Which these are follows
    from what is typed, never from suite.json.
    """
    for place in dict.fromkeys((path, *map(path.joinpath, names))):
        if (about := RunFolder(place).run_file) is not None:
            _refuse_stranger(place, about, trusted)


def _refuse_stranger(path: Path, about: RunFile, trusted: bool) -> None:
    """Raises NeedlemapError for a run that this user neither began here nor trusts."""
    if not trusted and not is_ours(about):
        raise NeedlemapError(
            f"'{path}' was not begun by you on this machine. Going on follows what its "
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


def _signed_part(about: RunFile) -> Any:
    """What is signed. Settings of an imported run come from another tool's file, so its
    signature holds for no other run."""
    return {"imported": about.settings} if about.imported else about.settings


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
