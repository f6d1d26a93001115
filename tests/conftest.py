"""Fixtures that several test files share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

collect_ignore = ["servers"]  # programs, not tests
ROOT = Path(__file__).parent.parent
SERVER = Path(__file__).parent / "servers" / "wire.py"


class Wire:
    """A running wire server. root: for Anthropic's SDK; base_url: for OpenAI's."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, str(SERVER), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.root = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.base_url = f"{self.root}/v1"

    def log(self) -> list[dict[str, Any]]:
        """What was asked since the test began, in order of arrival."""
        requests: list[dict[str, Any]] = self._ask("/log")["requests"]
        return requests

    def schedule(self, *faults: str, cycle: bool = False) -> None:
        """The faults that the next requests meet, one each, then 'ok' (or from the start again)."""
        self._ask("/schedule", {"faults": faults, "cycle": cycle})

    def reset(self) -> None:
        """Forget log, schedule and prompt cache."""
        self._ask("/reset", {})

    def stop(self) -> None:
        """End the process; again does nothing."""
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.root + path, data=data), timeout=10) as reply:
            return json.load(reply)


@pytest.fixture(scope="session")
def _wire_process() -> Iterator[Wire]:
    server = Wire()
    yield server
    server.stop()


@pytest.fixture
def wire(_wire_process: Wire) -> Wire:
    """A real HTTP server that speaks the OpenAI and Anthropic wire formats, as new."""
    _wire_process.reset()
    return _wire_process


class Wires:
    """Starts servers with options of their own: wires("--max-context", "100")."""

    def __init__(self) -> None:
        self.running: list[Wire] = []

    def __call__(self, *options: str) -> Wire:
        self.running.append(Wire(*options))
        return self.running[-1]


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Wire servers for tests that need their own."""
    started = Wires()
    yield started
    for server in started.running:
        server.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and vectors that is not in the repository, or a skip."""
    folder = Path(os.environ.get("NEEDLEMAP_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set NEEDLEMAP_SHARED")
    return folder
