"""Locks that say early and clearly that a run's folder is taken.

They are advisory: no record rests on them, and on a file system without `flock` they are left
out. The lock is a file of the folder, `.lock`. A command holds its folder from before it reads
anything in it until it ends; the files' own writers inside it then need no lock of their own.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from time import sleep
from typing import IO

from needlemap.errors import NeedlemapError
from needlemap.files import make_folder, open_inside, open_regular

LOCK = ".lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
_TRIES, _PAUSE_S = 5, 0.05  # a process that only tests the lock holds it for a moment
_Identity = tuple[int, int]  # device and inode
_HELD: ContextVar[frozenset[_Identity]] = ContextVar("_HELD", default=frozenset())


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[None]:
    """Hold a folder, which is made if it is not there, against other starts.

    Inside, `lock_folder` locks it no second time. The lock's file, and a folder that was made
    and stays empty, are taken away again. Nothing is held if the folder is None or not
    writable: the code that writes reports it. Raises NeedlemapError when another run holds it.
    """
    opened, missing = None, list[Path]()
    with suppress(OSError):
        if folder is not None:
            missing = [each for each in (folder, *folder.parents) if not each.exists()]
            opened = _made_and_locked(folder)
    if folder is None or opened is None:
        yield
        return
    token = _HELD.set(_HELD.get() | {_identity(folder)})
    try:
        yield
    finally:
        _HELD.reset(token)
        with suppress(OSError):
            (folder / LOCK).unlink()
            for each in missing:  # as far as they are empty
                each.rmdir()
        opened.close()


def lock_folder(folder: Path) -> IO[bytes] | None:
    """Held while the returned file is open; None where the command holds it already. Raises
    NeedlemapError when another run holds it."""
    if _HELD.get() and _identity(folder) in _HELD.get():
        return None
    while True:
        # some file systems want a file open for writing to own it
        opened = open_inside(folder / LOCK, "a+b")
        try:
            _lock(opened)
        except OSError as error:
            if error.errno in _TAKEN:
                opened.close()
                raise NeedlemapError(
                    f"Another needlemap is writing to '{folder}'. Wait until it ends, or give "
                    f"another folder with -o."
                ) from None
        if _is_at(opened, folder / LOCK):
            return opened
        opened.close()


def is_held(folder: Path) -> bool:
    """Whether a run holds a folder. Nothing is written for it; False where its lock cannot be
    read."""
    try:
        with open_regular(folder / LOCK) as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    except NeedlemapError:
        pass
    return False


def _made_and_locked(folder: Path) -> IO[bytes] | None:
    """As `lock_folder`, of a folder that another command may take away meanwhile."""
    while True:
        make_folder(folder)
        with suppress(FileNotFoundError):
            return lock_folder(folder)


def _lock(opened: IO[bytes]) -> None:
    """Lock a file. Raises OSError."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        sleep(_PAUSE_S)
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(opened: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at a path: it may be deleted before it was locked."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    return False


def _identity(folder: Path) -> _Identity:
    status = folder.stat()
    return status.st_dev, status.st_ino
