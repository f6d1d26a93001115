"""The jobs that people have (tools/jobs.py): typed from pages and help alone, and done at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from needlemap.settings import Settings

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "jobs.py"
QUICK = "42,52,53"  # these send nothing
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Of timeout, grep, pip, pytest, jupyter and llama-server, not of needlemap.
THEIRS = {"--preserve-status", "--inplace", "--alias", "--port"}

sys.path.insert(0, str(TOOL.parent))
from jobs_list import JOBS  # noqa: E402 - a tool is no package


def test_there_are_sixty_jobs_and_each_says_what_must_be_seen():
    assert [job.number for job in JOBS] == list(range(1, 61))
    assert all(job.not_run or (job.lines and job.fact) for job in JOBS)


def test_every_flag_of_a_job_stands_in_readme_or_on_a_page():
    """Nothing is typed that only its authors know."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = set(FLAG.findall("".join(page.read_text("utf-8") for page in pages)))
    # The page of settings says that each is a flag.
    shown |= {f"--{name.replace('_', '-')}" for name in Settings.model_fields}
    lines = "\n".join(line for job in JOBS for line in job.lines)
    wrong = {"--lenghts"}  # mistyped on purpose
    assert set(FLAG.findall(lines)) - THEIRS - wrong - {"--help-all"} <= shown


def test_no_job_fails():
    """Those that send nothing. All sixty take half an hour: python tools/jobs.py."""
    line = [sys.executable, str(TOOL), "--only", QUICK]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    last = json.loads(ended.stdout.splitlines()[-1])
    assert (last["failed"], last["at_once"], last["jobs"]) == (0, 3, 3)
