"""The workflow of docs/ci.md: its steps' own lines, run as far as there is no GitHub and no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
GRID = "--tokenizer cl100k_base --lengths 300,400 --depths 20,70 --margin 20 --until 80"
CHECK = "--model demo/retriever --max-length 200 --max-answer-tokens 24 --probe stop"


@pytest.fixture(scope="module")
def workflow() -> Any:
    (text,) = [part.partition("```")[0] for part in PAGE.read_text().split("```yaml\n")[1:]]
    return yaml.safe_load(text)


@pytest.fixture
def steps(workflow: Any, tmp_path: Path) -> Any:
    """Runs named steps as GitHub does, by `bash -eo pipefail`; their exit codes, and the
    summary."""
    lines = {
        step["name"]: step["run"]
        for step in workflow["jobs"]["long-context"]["steps"]
        if "run" in step
    }
    summary = tmp_path / "summary.md"

    def run(changed: str, *names: str) -> tuple[list[int], str]:
        more = {
            "CHECK": CHECK,
            "AB": f"passkey --arm base=baseline/bm25 --arm pr={changed} {GRID}",
            "GITHUB_STEP_SUMMARY": str(summary),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        done = [
            subprocess.run(
                ["bash", "-eo", "pipefail", "-c", lines[name]],
                cwd=tmp_path,
                env={**os.environ, **more},
                capture_output=True,
                text=True,
                timeout=250,
            )
            for name in names
        ]
        assert all("rror" not in each.stderr for each in done), [each.stderr for each in done]
        return [each.returncode for each in done], summary.read_text()

    return run


NAMES = ("Is it right at length?", "Is it no worse?", "Summary")


def test_a_server_that_is_right_and_no_worse_passes_and_the_summary_says_so(steps, tmp_path):
    codes, summary = steps("baseline/bm25", *NAMES)
    assert codes == [0, 0, 0]
    first = summary.partition("## Is it right at length?\n~~~~~text\n")[2].splitlines()[0]
    assert first == "not asked: probes: length, comb, cache, mates, same"
    assert "verdict: " in summary
    assert "### passkey\n\n![The map](passkey.svg)" in summary
    assert "| 20% | +0.0 | +0.0 |" in summary
    assert (tmp_path / "report" / "passkey.svg").read_text().startswith("<svg")
    assert (tmp_path / "check.xml").read_text().startswith("<?xml")


def test_a_change_that_loses_fails_its_step_and_the_summary_shows_where(steps):
    codes, summary = steps("baseline/random", *NAMES[1:])
    assert codes == [1, 0]
    assert "verdict: worse by more than 20 points" in summary
    assert re.search(
        r"^\| 20% \| -\d+\.\d \| -\d+\.\d \|$", summary, re.MULTILINE
    )  # random answers may be right


def test_what_runs_strangers_code_is_asked_for_by_name(workflow):
    job = workflow["jobs"]["long-context"]
    assert "head.repo.full_name == github.repository" in job["if"]
    assert workflow["permissions"] == {"contents": "read"}
    always = [step.get("if") for step in job["steps"] if step.get("name") in NAMES[1:]]
    assert always == ["always()", "always()"]
