"""Whether a run was begun here: by a signature in run.json, made with a key that only its owner has.

The key lies in a file of the user's state folder, for the user alone; nothing in a run's folder says where.
Machines that share a home share it. A lost key, or a run of another machine, only means that going on with
the run wants a word: what its run.json says is followed then, models, addresses and files of this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.files import read_regular, write_whole
from needlemap.records.families import families_of
from needlemap.records.folder import RUN_FILE, RunFolder
from needlemap.secrets import hidden, key_names
from needlemap.settings.settings import marked

SIGNED = "signed"  # the name under which a file holds its signature
TRUST = "--trust-run"
_KEY_BYTES = 32
_PILOTS = "pilots/*"  # runs inside a run's folder, of run --difficulty auto
_HOME_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


def signed(row: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """A file's content with a signature of the part that is followed; without one where no key is kept."""
    signature = _signature(part, make=True)
    return {**row, SIGNED: signature} if signature else dict(row)


def is_ours(row: Mapping[str, Any], part: Any) -> bool:
    """Whether this user signed that part of a file's content."""
    ours = _signature(part, make=False)
    return bool(ours) and hmac.compare_digest(ours.encode(), str(row.get(SIGNED)).encode())


def check_origin(path: Path, trusted: bool = False) -> None:
    """Raises NeedlemapError for a run, or a suite's or difficulty's runs, that this machine did not begin,
    and says what would be followed; not where the user trusts it."""
    if trusted:
        return
    for run in (run for run in (*families_of(path).folders, *path.glob(_PILOTS)) if RunFolder(run).exists):
        about = RunFolder(run).about()
        if not is_ours(about, about["settings"]):
            raise NeedlemapError(
                f"'{run}' was not begun by you on this machine. Going on follows what its {RUN_FILE} says: "
                f"{'; '.join(followed(about['settings']))}. If you trust that, type the same with {TRUST}"
            )


def followed(settings: Mapping[str, Any]) -> list[str]:
    """What a run's settings make this machine open or ask, in words."""
    model = str(settings["model"])
    lines = [f"model {model}"]
    address = settings.get("base_url")
    lines += [f"address {hidden(str(address))}"] if address else []
    keys = [*key_names(settings)] or [_HOME_KEYS.get(model.partition("/")[0], "")]
    lines += [f"key of ${', $'.join(keys)}"] if any(keys) else []
    for name in marked("opened"):
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
    file = _state() / "run-key"
    with suppress(OSError, RuntimeError, NeedlemapError):
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
    """The folder of what programs remember of themselves (XDG Base Directory Specification)."""
    named = os.environ.get("XDG_STATE_HOME", "")
    home = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return home / "needlemap"
