"""The machine that measures, in one line, and what a fresh process costs on it, in CPU seconds."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished process: its CPU seconds (user and system, all threads, start and end
    included)."""

    cpu_s: float
    wall_s: float
    output: str


def machine(*packages: str) -> str:
    """CPU model, cores, Python, and the versions of the packages that are measured."""
    versions = [f"{package} {_version(package)}" for package in packages]
    return ", ".join(
        [_cpu(), f"{os.cpu_count()} cores", f"Python {platform.python_version()}", *versions]
    )


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end, its modules compiled as installed ones are. env: None for this
    process's.

    Raises RuntimeError with what it said.
    """
    given = {
        name: value
        for name, value in (env or os.environ).items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=given)
    wall_s, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{done.stderr[-2000:]}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Ran(cpu_s, wall_s, done.stdout)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
