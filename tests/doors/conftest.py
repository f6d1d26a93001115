"""The real harnesses, each in a process of its own: their imports warn, and change what others
import.

What is missing skips, with its reason; in CI (NEEDLEMAP_REQUIRE_REAL_PARTS) it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
collect_ignore_glob = ["in_*.py"]  # scripts
HARNESSES = {
    "inspect": ("inspect_ai", ".[inspect]"),
    "lm_eval": ("lm_eval", ".[lm-eval]"),
}
Host = Callable[..., Any]


def started(harness: str, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A process with a harness in it, if that is here."""
    package, remedy = HARNESSES[harness]
    if find_spec(package) is None:
        pytest.skip(f"no {package} here: pip install '{remedy}'")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "INSPECT_DISPLAY": "none"}
    whole = [sys.executable, "-W", "ignore", *command]
    return subprocess.run(
        whole, capture_output=True, text=True, cwd=folder, env=environment, timeout=280
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Runs what it is given in one process, by a script of this folder; what came of each."""

    def run(script: str, *runs: dict[str, Any]) -> Any:
        arguments = [str(HERE / f"{script}.py"), json.dumps({"runs": runs})]
        done = started(script.removeprefix("in_"), arguments, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def inspect(tmp_path: Path) -> Host:
    """Inspect's own command, which is to fail; what it prints."""

    def run(*words: str) -> str:
        done = started("inspect", ["-m", "inspect_ai", *words], tmp_path)
        assert done.returncode == 1
        return done.stdout + done.stderr

    return run
