"""A folder is one run's at a time."""

from __future__ import annotations

import errno
import fcntl

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records.folder import lock_folder


def test_a_folder_is_held_until_its_run_ends(tmp_path):
    with (
        lock_folder(tmp_path),
        pytest.raises(NeedlemapError, match="Another needlemap is writing to"),
    ):
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


def test_a_file_system_without_locks_stops_nobody(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock_folder(tmp_path).close()
