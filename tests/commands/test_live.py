"""What a run shows while it goes on: a map that fills in on a terminal, lines in a log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from needlemap.records.record import Record
from needlemap.reports.live import ProgressLines
from needlemap.reports.run_notes import Tally

CODES = re.compile(rb"\x1b\[(\??)(\d*)(?:;[\d;]*)?([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Terminal:
    """A terminal of one size that a command writes to, and what stands on it: lines as they are on
    screen."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.frames: list[list[str]] = []
        self.cursor_shown = True

    def run(self, command: list[str], folder: Path, environment: dict[str, str]) -> int:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        environment = environment | {"TERM": "xterm-256color"}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            self.read(_all(ours))
        return process.returncode

    def read(self, data: bytes) -> None:
        """Do as a progress display's few control codes say; keep the screen before each erasure."""
        lines, row, written = [""], 0, False
        for found in CODES.finditer(data):
            text = found[0]
            if found[3] in (b"A", b"K") and written:
                self.frames.append(lines.copy())
                written = False
            if text == b"\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif found[3] == b"A":
                row -= int(found[2] or 1)
                assert row >= len(lines) - self.rows, "the display is taller than its terminal"
            elif found[3] == b"K":
                lines[row] = ""
            elif found[1] == b"?" and found[2] == b"25":
                self.cursor_shown = found[3] == b"h"
            elif found[3] is None and text != b"\r":
                lines[row] += text.decode()
                written = True
        self.frames.append(lines)

    @property
    def left(self) -> list[str]:
        """What a user sees in the end."""
        return [line.rstrip() for line in self.frames[-1]]


def _all(descriptor: int) -> bytes:
    data = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            try:
                data += file.read(65536)
            except OSError:  # the other side is closed
                return data


@pytest.mark.parametrize(
    ("rows", "columns"), [(24, 80), pytest.param(50, 200, marks=pytest.mark.long)]
)
def test_on_a_terminal_the_map_fills_in_and_leaves_a_clean_screen(needlemap, wire, rows, columns):
    wire.schedule("slow:0.3", "slow:0.3", "slow:0.3", "400", cycle=True)
    terminal = Terminal(rows, columns)
    program = str(Path(sys.executable).with_name("needlemap"))
    grid = ("--lengths", "300:500:5", "--depths", "0:100:8")
    command = [program, "run", *needlemap.asking(wire), *grid]
    assert terminal.run(command, needlemap.folder, needlemap.environment) == 3
    assert terminal.cursor_shown

    drawn = ["\n".join(frame) for frame in terminal.frames[:-1]]
    under_way = [frame for frame in drawn if "/40 scored" in frame and " left" in frame]
    assert len(under_way) >= 2
    last = under_way[-1]
    assert " failed · " in last
    assert "rejected: http://127.0.0.1:" in last
    assert "Unsupported value: 'temperature'" in last or columns == 80
    assert "·" in last
    assert "×" in last
    assert "tokens" in last

    assert terminal.left[0].startswith("openai/m · single · 5 lengths x 8 depths x 1 = 40 trials")
    totals = re.findall(r"overall 100\.0 \(n=\d+, 10 missing\)", "\n".join(terminal.left))
    assert len(totals) == 1
    assert not any("/40 scored" in line for line in terminal.left)
    assert any(line.lstrip().startswith("100% ") for line in terminal.left)
    assert any(line.lstrip().startswith("mean ") for line in terminal.left)
    assert "run: r" in terminal.left


def record(**changed) -> Record:
    return Record(
        key="k", task="t", model="m", length_tokens=1, depth=0, repeat=0, seed=0, **changed
    )


def test_in_a_log_each_kind_of_failure_is_said_once(capsys):
    lines = ProgressLines(Tally(10, 0))
    for _ in range(3):
        lines.recorded(record(failure="timed out", error="No answer within 1 s."))
    lines.recorded(record(failure="server error", error="It answered 500."))
    assert (
        capsys.readouterr().err
        == "timed out: No answer within 1 s.\nserver error: It answered 500.\n"
    )


def trial(key: str, tokens: int, shared: int = 0) -> Any:
    """A trial as far as a tally reads it."""
    return SimpleNamespace(
        key=key, prompt=SimpleNamespace(asked_tokens=tokens), shared_tokens=shared
    )


def test_a_tally_shows_what_is_known():
    tally = Tally(10, 3)
    assert tally.line() == "3/10 scored"
    tally.add(record(score=1.0, answer="a", prompt_tokens=1500, usd=0.5))
    tally.add(record(failure="timed out"))
    assert tally.line() == "4/10 scored · 1 failed · 1,500 tokens · $0.5000"
    tally.add(record(score=1.0, answer="a", usd=None))
    assert "$" not in tally.line()  # an unknown price is not added to known ones


def test_the_time_left_is_by_the_tokens_that_are_left_to_compute():
    """Short prompts come first: by trials it was five times too short."""
    tally = Tally(3, 0)
    tally.plan([trial("k", 1_500), trial("b", 4_500, shared=3_000), trial("c", 15_500)])
    tally.started -= 10
    tally.add(record(score=1.0, answer="a"))
    assert tally.line() == "1/3 scored · 0.1/s · 1 min left"
    assert "left" not in tally.line(over=True)


INTERRUPTING = """
import os, signal
asked = []
def answer(messages):
    asked.append(messages)
    if len(asked) == 7:
        os.kill(os.getpid(), signal.SIGINT)
    return "7"
"""


def test_an_interrupted_run_leaves_its_map_on_the_screen(needlemap):
    (needlemap.folder / "mine.py").write_text(INTERRUPTING)
    program = str(Path(sys.executable).with_name("needlemap"))
    flags = (
        "--model",
        "python/mine:answer",
        "--lengths",
        "900",
        "--depths",
        "0:100:9",
        "--concurrency",
        "1",
    )
    terminal = Terminal(50, 100)
    assert (
        terminal.run([program, "run", *flags, "-o", "r"], needlemap.folder, needlemap.environment)
        == 130
    )
    assert any(line.startswith("overall 0.0 (n=") for line in terminal.left)
    said = [line for line in terminal.left if line]
    assert said[-1].startswith("needlemap: interrupted. What was scored is kept")
