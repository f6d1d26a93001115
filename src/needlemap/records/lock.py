"""Lock a run's folder, so that a second command learns early and clearly that it is taken.

Locks are advisory: no record rests on them, and on a file system without `flock` they are left
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
# A process that only tests the lock holds it for a moment.
_TRIES = 5
_PAUSE_S = 0.05
# The device and inode of a folder.
_Identity = tuple[int, int]
_HELD: ContextVar[frozenset[_Identity]] = ContextVar("_HELD", default=frozenset())


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[None]:
    """Hold a folder, which is made if it does not exist, against other starts.

    Inside, `lock_folder` does not lock it a second time. Afterwards the lock's file is deleted, and
    so is a folder that was made here and stayed empty. Nothing is held if the folder is None or not
    writable: the code that writes reports it. Raises NeedlemapError if another run holds it.
    """
    lock: IO[bytes] | None = None
    missing_folders: list[Path] = []
    with suppress(OSError):
        if folder is not None:
            missing_folders = [path for path in (folder, *folder.parents) if not path.exists()]
            lock = _make_and_lock(folder)
    if folder is None or lock is None:
        yield
        return

    token = _HELD.set(_HELD.get() | {_identity(folder)})
    try:
        yield
    finally:
        _HELD.reset(token)
        with suppress(OSError):
            (folder / LOCK).unlink()
            # Fails at the first that is not empty.
            for path in missing_folders:
                path.rmdir()
        lock.close()


def lock_folder(folder: Path) -> IO[bytes] | None:
    """Lock a folder for as long as the returned file is open.

    If this command holds the folder already, None is returned. If another run holds it,
    NeedlemapError is raised.
    """
    if _HELD.get() and _identity(folder) in _HELD.get():
        return None
    while True:
        # Some file systems lock a file only for a process that may write it.
        lock = open_inside(folder / LOCK, "a+b")
        try:
            _lock(lock)
        except OSError as error:
            if error.errno in _TAKEN:
                lock.close()
                raise NeedlemapError(
                    f"Another needlemap is writing to '{folder}'. Wait until it ends, or give "
                    f"another folder with -o."
                ) from None
        if _is_at(lock, folder / LOCK):
            return lock
        lock.close()


def is_held(folder: Path) -> bool:
    """Return True if a run holds a folder, and False if its lock cannot be read. Write nothing."""
    try:
        with open_regular(folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    except NeedlemapError:
        pass
    return False


def _make_and_lock(folder: Path) -> IO[bytes] | None:
    """Make and lock a folder, which another command may delete between the two."""
    while True:
        make_folder(folder)
        with suppress(FileNotFoundError):
            return lock_folder(folder)


def _lock(file: IO[bytes]) -> None:
    """Lock a file. Raise OSError if another process holds it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        sleep(_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return True if an open file is the one at a path.

    Another process may have deleted it before it was locked.
    """
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _identity(folder: Path) -> _Identity:
    status = folder.stat()
    return status.st_dev, status.st_ino
