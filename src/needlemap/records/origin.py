"""Check whose run a run.json is, before its settings are followed. There is no other door.

A run was started here if run.json is signed with a key that only its owner has. The key lies in
a file of the user's state folder, which only the user may read; nothing in a run's folder shows
where. Machines that share a home share it. If the key is lost, or the run is another machine's,
the user must confirm that it may resume, because its run.json then names the models, addresses
and files of this machine that are used.

Code that builds prompts, scores, or sends requests by a run's settings takes a `CheckedRun`. Each
run is checked by its own run.json: no other file of its folder, e.g. suite.json, decides.
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
    """A run whose settings may be followed. Only `of` makes one.

    Attributes:
        folder: The run's folder.
        about: The run.json that was checked. It is not read again.
    """

    folder: RunFolder
    about: RunFile

    @classmethod
    def of(cls, path: Path, trusted: bool = False) -> CheckedRun:
        """Open a run that this user started on this machine, or trusts.

        Raise NeedlemapError if there is no run, if it is any other run, or if it was imported.
        """
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
        """Return True if this user signed the run. Any other is followed because it is trusted."""
        return is_ours(self.about)

    def settings(self, **instead: Any) -> Settings:
        """Return the run's settings, with those of `instead` in their place.

        Raises SettingsError for settings that this version cannot read.
        """
        return checked({**self.about.settings, **instead}, str(self.folder.path / RUN_FILE))


def sign(about: RunFile) -> RunFile:
    """Return run.json with a signature of its settings, or unchanged if this user has no key."""
    signature = _signature(_signed_part(about), make=True)
    return about.model_copy(update={"signed": signature}) if signature else about


def is_ours(about: RunFile) -> bool:
    """Return True if this user signed a run.json's settings."""
    signature = _signature(_signed_part(about), make=False)
    return bool(signature) and hmac.compare_digest(signature.encode(), about.signed.encode())


def check_origin(path: Path, trusted: bool = False, names: Iterable[str] = ("",)) -> None:
    """Raise NeedlemapError if a folder to be resumed holds a run that another user started.

    The message names what would be followed. A trusted run is not refused.

    names: the folders in it to be resumed, '' for itself. They follow from what is typed, never
    from suite.json.
    """
    folders = (path, *(path / name for name in names))
    for folder in dict.fromkeys(folders):
        about = RunFolder(folder).run_file
        if about is not None:
            _refuse_stranger(folder, about, trusted)


def _refuse_stranger(path: Path, about: RunFile, trusted: bool) -> None:
    """Raise NeedlemapError for a run that this user neither started here nor trusts."""
    if trusted or is_ours(about):
        return
    raise NeedlemapError(
        f"'{path}' was not begun by you on this machine. Going on follows what its {RUN_FILE} "
        f"says: {'; '.join(describe_effects(about))}. If you trust that, type the same with {TRUST}"
    )


def describe_effects(about: RunFile) -> list[str]:
    """Return in words what a run's settings make this machine open or send requests to."""
    settings = about.settings
    model = about.named.model
    lines = [f"model {model}"]
    address = settings.get("base_url")
    if address:
        lines.append(f"address {hidden(str(address))}")

    backend = backend_or_default(model.partition("/")[0])
    variables = list(key_names(settings)) or [backend.key_variable]
    if any(variables):
        lines.append(f"key of ${', $'.join(variables)}")

    for name in marked("executes_or_opens"):
        value = settings.get(name)
        if value not in (None, "", "auto", [], {}):
            lines.append(f"{name.replace('_', ' ')} {hidden(str(value))}")
    return lines


def _signed_part(about: RunFile) -> Any:
    """Return the part of run.json that is signed."""
    # Settings of an imported run come from another tool's file: its signature must not be valid
    # for a run that follows them.
    if about.imported:
        return {"imported": about.settings}
    return about.settings


def _signature(part: Any, *, make: bool) -> str:
    """Return the HMAC-SHA-256 of JSON, or '' if there is no key.

    make: whether to create the key if there is none.
    """
    key = _key(make)
    if not key:
        return ""
    text = json.dumps(part, sort_keys=True, ensure_ascii=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """Return this user's key, or b'' if there is none.

    make: whether to create the key if there is none.
    """
    # In a container a user may have no home, or one that cannot be written.
    with suppress(OSError, RuntimeError, NeedlemapError):
        file = _state() / "run-key"
        if make and not file.exists():
            _make_key(file)
        return read_regular(file) if file.stat().st_uid == os.getuid() else b""
    return b""


def _make_key(file: Path) -> None:
    """Write a key, unless another process has just written one."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f"{file.name}-{secrets.token_hex(4)}")
    write_whole(draft, secrets.token_hex(_KEY_BYTES).encode())
    try:
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()


def _state() -> Path:
    """Return the folder for the state of programs (XDG Base Directory Specification)."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    # The specification: a relative path is invalid and to be ignored.
    if not os.path.isabs(folder):
        return Path.home() / ".local" / "state" / "needlemap"
    return Path(folder) / "needlemap"
