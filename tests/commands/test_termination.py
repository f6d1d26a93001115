"""SIGTERM, as `kill`, a container or a cluster's time limit sends it, ends a run as Ctrl-C does."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from needlemap.commands.announce import terminable

SAID = "needlemap: interrupted. What was scored is kept; to go on: the same command with -o r\n"
GRID = ("--lengths", "300:500:5", "--depths", "0:100:8", "--concurrency", "1")


def wait_for_a_record(folder: Path) -> None:
    """Until a run has kept something."""
    until = time.monotonic() + 250
    while not any(file.stat().st_size for file in (folder / "r").glob("records-*.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_was_scored_is_kept_also_where_ctrl_c_is_ignored_as_behind_an_ampersand(
    needlemap, wire
):
    wire.schedule("slow:0.2", cycle=True)
    command = [
        str(Path(sys.executable).with_name("needlemap")),
        "run",
        *needlemap.asking(wire),
        *GRID,
    ]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(
        ignoring, cwd=needlemap.folder, env=needlemap.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_a_record(needlemap.folder)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=250)
    assert process.returncode == 143
    assert said.endswith(SAID)
    assert "Traceback" not in said
    kept = len(needlemap.records())
    assert 0 < kept < 40
    wire.schedule()
    again = needlemap.run(wire, *GRID)
    assert f"{kept} already scored, {40 - kept} to ask" in again.stderr


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130)],
)
def test_on_a_terminal_the_cursor_is_shown_again(needlemap, wire, how, code):
    wire.schedule("slow:0.2", cycle=True)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [
        str(Path(sys.executable).with_name("needlemap")),
        "run",
        *needlemap.asking(wire),
        *GRID,
    ]
    environment = needlemap.environment | {"TERM": "xterm-256color"}
    with subprocess.Popen(
        command, cwd=needlemap.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        wait_for_a_record(needlemap.folder)
        process.send_signal(how)
        shown = everything(ours)
    assert process.returncode == code
    assert b"\x1b[?25l" in shown  # the map was there
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
    assert "What was scored is kept" in shown.decode()


def everything(descriptor: int) -> bytes:
    data = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            try:
                data += file.read(65536)
            except OSError:  # the other side is closed
                return data


def test_afterwards_the_signal_is_as_it_was():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable() as ending:
        signal.raise_signal(signal.SIGTERM)
    assert ending.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    with terminable() as ending:
        pass
    assert ending.code == 130
