"""A folder is one start's at a time, from before it is read."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path
from threading import Thread, Timer

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.lock import LOCK, hold_folder, is_held, lock_folder

ASKED = ("--tokenizer", "cl100k_base", "--max-answer-tokens", "40")
WAITS = """
import time
from pathlib import Path
def waits(messages):
    while not Path("go").exists():
        time.sleep(0.02)
    return "?"
"""
RUN = ("run", "--task", "passkey", "--model", "python/waiting:waits", "--no-canary")
COMMANDS = {
    "ab": (
        *("ab", "passkey", "--arm", "a=python/waiting:waits", "--arm", "b=python/waiting:waits"),
        *("--lengths", "300", "--depths", "50", "--until", "4", "--on-undecided", "pass"),
    ),
    "check": (
        *("check", "--model", "python/waiting:waits", "--max-length", "600"),
        *("--probe", "pattern"),
    ),
    "suite": ("run", "suite:suite.yaml", "--model", "python/waiting:waits", "--no-canary"),
    "seek": (*RUN, "--seek", "85", "--lengths", "300,900"),
    "run": (*RUN, "--lengths", "300,400", "--depths", "0:100:3"),
}


def test_a_folder_is_held_until_its_run_ends(tmp_path):
    held = lock_folder(tmp_path)
    assert held is not None
    with held, pytest.raises(NeedlemapError, match="Another needlemap is writing to"):
        lock_folder(tmp_path)
    again = lock_folder(tmp_path)
    assert again is not None
    again.close()


@pytest.mark.parametrize("kind", ["pipe", "hard link", "link", "folder"])
def test_a_lock_that_a_stranger_put_there_is_refused_in_words(tmp_path, kind):
    other = tmp_path / "other"
    other.write_text("mine")
    folder = tmp_path / "r"
    folder.mkdir()
    lock = folder / LOCK
    make = {
        "pipe": lambda: os.mkfifo(lock),
        "hard link": lambda: os.link(other, lock),
        "link": lambda: lock.symlink_to(other),
        "folder": lock.mkdir,
    }
    make[kind]()
    with pytest.raises(NeedlemapError, match="is a link, or no file"):
        lock_folder(folder)
    assert other.read_text() == "mine"


def test_a_file_system_without_locks_stops_nobody(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = lock_folder(tmp_path)
    assert lock is not None
    lock.close()


def test_inside_a_held_folder_records_are_written_and_nobody_else_comes_in(tmp_path):
    folder = tmp_path / "r"
    met = list[str]()

    def other() -> None:
        with pytest.raises(NeedlemapError) as error, hold_folder(folder):
            pass
        met.append(str(error.value))

    with hold_folder(folder):
        with hold_folder(folder):
            Writer(RunFolder(folder)).close()
        thread = Thread(target=other)
        thread.start()
        thread.join()
        assert is_held(folder)
    assert not is_held(folder)
    assert met == [
        f"Another needlemap is writing to '{folder}'. Wait until it ends, or give another folder "
        f"with -o."
    ]


def test_a_folder_that_was_made_for_nothing_is_taken_away(tmp_path):
    with hold_folder(tmp_path / "runs" / "r"):
        pass
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "runs" / "r"):
        (tmp_path / "runs" / "r" / "kept").touch()
    assert (tmp_path / "runs" / "r" / "kept").exists()


def test_a_lock_that_is_deleted_before_it_is_got_is_made_anew(tmp_path, monkeypatch):
    """Another start may take its empty folder away between the opening and the lock."""
    folder, flock, tries = tmp_path / "r", fcntl.flock, list[int]()

    def vanishing(file: int, how: int) -> None:
        if not tries:
            (folder / LOCK).unlink()
            folder.rmdir()
        tries.append(how)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", vanishing)
    with hold_folder(folder):
        assert (folder / LOCK).exists()
    assert len(tries) == 2


def test_whoever_only_looks_keeps_nobody_out(tmp_path):
    with open(tmp_path / LOCK, "a+b") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        leaving = Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        leaving.start()
        with hold_folder(tmp_path):
            assert is_held(tmp_path)
        leaving.join()


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "run" else pytest.mark.long) for kind in COMMANDS],
)
def test_of_two_starts_on_a_new_folder_one_is_refused_and_the_folder_goes_on(needlemap, kind):
    """Both drew a seed, both wrote the folder's file: no later start could go on with either."""
    folder = needlemap.folder
    (folder / "waiting.py").write_text(WAITS)
    families = {name: {"task": "passkey", "depths": [50]} for name in ("one", "two")}
    suite = {"settings": {"lengths": [300]}, "families": families}
    (folder / "suite.yaml").write_text(json.dumps(suite))
    command = (*COMMANDS[kind], *ASKED, "-o", "r")
    starts = [needlemap.start(*command) for _ in range(2)]
    while all(start.poll() is None for start in starts):
        time.sleep(0.02)
    (folder / "go").touch()
    refused, other = sorted(starts, key=lambda start: start.poll() is None)
    assert refused.communicate()[1].startswith("needlemap: Another needlemap is writing to 'r'.")
    assert refused.returncode == 2
    assert "Traceback" not in other.communicate()[1]
    assert other.returncode != 2
    again = needlemap.process(*command, code=None)
    assert again.returncode == other.returncode, again.stderr


@pytest.mark.parametrize("folder", [Path("/sys"), Path("/sys/r"), Path(os.devnull) / "r"])
def test_nothing_is_held_where_nothing_can_be_written(folder):
    """Not even by root, who may write into folders that are closed to all others."""
    with hold_folder(folder):
        assert not is_held(folder)
