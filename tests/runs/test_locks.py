"""A folder is one run's alone, or many workers'."""

from __future__ import annotations

import errno
import fcntl

import pytest

from needlemap.errors import NeedlemapError
from needlemap.runs.store import is_held, lock_folder, lock_launch


def test_workers_share_a_folder_and_keep_others_out(tmp_path):
    both = lock_folder(tmp_path, shared=True), lock_folder(tmp_path, shared=True)
    with pytest.raises(NeedlemapError, match="Another needlemap is writing to"):
        lock_folder(tmp_path)
    for held in both:
        held.close()
    with lock_folder(tmp_path), pytest.raises(NeedlemapError, match="Another needlemap is writing to"):
        lock_folder(tmp_path, shared=True)
    lock_folder(tmp_path).close()


def test_one_command_looks_after_a_launch(tmp_path):
    with lock_launch(tmp_path), pytest.raises(NeedlemapError, match="Another needlemap looks after"):
        lock_launch(tmp_path)


def test_a_file_is_held_while_somebody_has_it_open(tmp_path):
    with lock_folder(tmp_path) as held:
        assert is_held(tmp_path / ".lock") is True
    assert held.closed
    assert is_held(tmp_path / ".lock") is False


def test_a_file_system_without_locks_stops_nobody(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock_folder(tmp_path).close()
    assert is_held(tmp_path / ".lock") is None
