"""Sixty jobs that people have, typed as README and `needlemap help` show them.

python tools/jobs.py               runs all; ends with {"jobs": 60, "at_once": ..., "failed": ...}
python tools/jobs.py --only 11,40  runs some, and prints their output
python tools/jobs.py --list        prints the jobs and their lines

A job is done at once if its lines end with the exit code and the fact that `jobs_list.py` names.
Each has a folder of its own, and `jobs_stub.py` stands in for every server. A job that needs what
this machine lacks stands as `not run`, with the reason. Exits with 1 if a job failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
from jobs_list import JOBS, Job
from jobs_stub import start

ROOT = Path(__file__).parent.parent
LIMIT_S = 1800.0  # of one line: a check takes three minutes if the processor is free
KEYS = re.compile(r"(API_KEY|BASE_URL)$")  # no job may find a key or a server of its own
AT_ONCE, FAILED, NOT_RUN = "at once", "FAILED", "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended. why: what failed, or why it was not run."""

    job: Job
    word: str
    why: str
    seconds: float
    output: str


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user: no keys, and `needlemap` on the path."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, arguments in (("needlemap", "-m needlemap "), ("python3", "")):
        command = bin_folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n', "utf-8")
        command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not KEYS.search(name)}
    path = os.pathsep.join((str(bin_folder), str(Path(sys.executable).parent), kept["PATH"]))
    return {**kept, "PATH": path, "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}


def type_line(line: str, folder: Path, variables: dict[str, str]) -> tuple[str, int | None]:
    """Type a line in a folder. Returns what it prints and its exit code, None if it had no end.

    A line without an end takes what it started in the background with it.
    """
    shell = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    code: int | None = None
    try:
        shown, _ = shell.communicate(timeout=LIMIT_S)
        code = shell.returncode
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        shown, _ = shell.communicate()
    return shown.decode("utf-8", "replace"), code


def do(job: Job, addresses: Mapping[str, str], folder: Path, variables: dict[str, str]) -> Result:
    """Type the lines of a job in its folder."""
    if why := job.missing():
        return Result(job, NOT_RUN, why, 0.0, "")
    folder.mkdir(parents=True)
    for name, content in job.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    begun, output, said, code = monotonic(), "", "", 0
    for line in job.typed(addresses):
        if code:
            return Result(job, FAILED, f"exit code {code} too early", monotonic() - begun, output)
        output += f"$ {line}\n"
        shown, code = type_line(line, folder, variables)
        output, said = output + shown, said + shown
        if code is None:
            return Result(job, FAILED, f"no end in {LIMIT_S:.0f} s", monotonic() - begun, output)

    seconds = monotonic() - begun
    if code != job.code:
        return Result(job, FAILED, f"exit code {code}, wanted {job.code}", seconds, output)
    # Lines are broken at the width of the terminal.
    if not re.search(job.fact, said) and not re.search(job.fact, " ".join(said.split())):
        return Result(job, FAILED, f"nothing like '{job.fact}'", seconds, output)
    return Result(job, AT_ONCE, "", seconds, output)


def chosen(only: str) -> Sequence[Job]:
    """Return the jobs of some numbers, or all. Raises ValueError for a text that is no numbers."""
    numbers = {int(number) for number in only.split(",")} if only else None
    return [job for job in JOBS if numbers is None or job.number in numbers]


def main() -> int:
    """Run the jobs, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description="Do the jobs that people have.")
    parser.add_argument("--only", default="", metavar="N,N", help="numbers of the jobs to do")
    parser.add_argument("--list", action="store_true", help="only print jobs and lines")
    typed = parser.parse_args()
    jobs = chosen(typed.only)
    if typed.list:
        for job in jobs:
            print(f"{job.number:2} {job.text}")
            for line in job.lines:
                print(f"     {line}")
        return 0

    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables, addresses = environment(folder), start()
        for job in jobs:
            result = do(job, addresses, folder / f"job-{job.number}", variables)
            results.append(result)
            took = f"{result.seconds:5.0f} s" if result.word != NOT_RUN else " " * 7
            print(f"{job.number:2}  {result.word:7}  {took}  {job.text}", flush=True)
            if result.why:
                print(f"                        {result.why}")
            if result.word == FAILED or typed.only:
                print("    | " + "\n    | ".join(result.output.splitlines()[-40:]), flush=True)

    words = [result.word for result in results]
    print(
        json.dumps(
            {
                "jobs": len(results),
                "at_once": words.count(AT_ONCE),
                "failed": words.count(FAILED),
                "not_run": words.count(NOT_RUN),
            }
        )
    )
    return int(FAILED in words)


if __name__ == "__main__":
    sys.exit(main())
