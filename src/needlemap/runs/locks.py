"""Advisory locks on a run's folder: one process alone, or many workers together; and one submitting command.

They say early and clearly that a folder is taken. No record rests on them: records files have one writer
each, and units are claimed by hard links (`claims.py`). On a file system without `flock` they are left out.
"""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import IO

from needlemap.errors import NeedlemapError
from needlemap.files import open_inside

LOCK = ".lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


def lock_folder(folder: Path, *, shared: bool = False) -> IO[bytes]:
    """Held while the returned file is open. shared: together with other workers.

    Raises NeedlemapError when a run that is alone holds it, or, for one that wants it alone, anybody.
    """
    held = hold(folder / LOCK, shared=shared)
    if held is None:
        raise NeedlemapError(
            f"Another needlemap is writing to '{folder}'. Wait until it ends, or give another folder with -o."
        )
    return held


def lock_launch(folder: Path) -> IO[bytes]:
    """Held by the command that looks after a run's workers. Raises NeedlemapError when another does."""
    held = hold(folder / ".launch.lock")
    if held is None:
        raise NeedlemapError(
            f"Another needlemap looks after the workers of '{folder}'. End it with Ctrl-C first."
        )
    return held


def hold(file: Path, *, shared: bool = False) -> IO[bytes] | None:
    """A file, locked while it is open; None when somebody else holds it."""
    opened = open_inside(
        file, "a+b"
    )  # some file systems want a file open for reading to share it, writing to own it
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            opened.close()
            return None
    return opened


def is_held(file: Path) -> bool | None:
    """Whether somebody holds a file, by the lock alone; None where the file system knows no locks."""
    with open_inside(file, "a+b") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return True if error.errno in _TAKEN else None
    return False
