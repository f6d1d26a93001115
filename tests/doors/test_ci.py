"""The action of action.yml and the workflow of docs/ci.md: the action's own lines, typed without
GitHub and without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPARED = {
    "max-length": "400",
    "check-options": "--probe stop --max-answer-tokens 24 --limit-tokens 20k --on-undecided pass",
    "lengths": "300,400",
    "ab-options": "passkey --depths 20,70 --until 80",
    "tokenizer": "cl100k_base",
    "margin": "20",
}
FORGETFUL = ("--forgets", "0.6", "--forgets-from", "150")  # words: not the check's first prompts
Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def action() -> Any:
    return yaml.safe_load((ROOT / "action.yml").read_text())


@pytest.fixture(scope="module")
def workflow() -> Any:
    text = (ROOT / "docs" / "ci.md").read_text()
    (block,) = [part.partition("```")[0] for part in text.split("```yaml\n")[1:]]
    return yaml.safe_load(block)


@pytest.fixture
def typed(action: Any, tmp_path: Path) -> Typed:
    """Types the action's step as GitHub does, by `bash -eo pipefail`, with some inputs."""
    step = action["runs"]["steps"][-1]

    def run(first: str = "", **inputs: str) -> subprocess.CompletedProcess[str]:
        defaults = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
        given = defaults | {name.replace("_", "-"): value for name, value in inputs.items()}
        values = {
            name: given[re.fullmatch(r"\$\{\{ inputs\.(.+) \}\}", value)[1]]
            for name, value in step["env"].items()
        }
        files = {
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "PATH": f"{first}:{Path(sys.executable).parent}:{os.environ['PATH']}".lstrip(":"),
        }
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=tmp_path,
            env={**os.environ, **values, **files},
            capture_output=True,
            text=True,
            timeout=250,
        )

    return run


@pytest.mark.long
def test_a_server_that_is_right_and_no_worse_passes_and_the_summary_says_so(typed, wires, tmp_path):
    before, after = wires().base_url, wires().base_url
    ended = typed(base_url=after, baseline_url=before, **named(COMPARED))
    assert ended.returncode == 0, ended.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "NOT ENOUGH DATA check: " in summary
    assert "PASS ab: changed loses less than 20 points: " in summary
    assert "### passkey\n\n![The map](report-passkey.svg)" in summary
    assert "| 20% | 0.0 | 0.0 |" in summary
    assert (tmp_path / "needlemap" / "report-passkey.svg").read_text().startswith("<svg")
    assert (tmp_path / "needlemap" / "check.xml").read_text().startswith("<?xml")
    assert (tmp_path / "output").read_text() == "check=0\nab=0\n"


@pytest.mark.long
def test_a_change_that_loses_fails_the_step_and_the_summary_shows_where(typed, wires, tmp_path):
    before, after = wires().base_url, wires(*FORGETFUL).base_url
    ended = typed(base_url=after, baseline_url=before, **named(COMPARED))
    assert ended.returncode == 1, ended.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "FAIL ab: changed loses " in summary
    assert re.search(r"^\| 20% \| \d+\.\d \| \d+\.\d \|$", summary, re.MULTILINE)
    assert (tmp_path / "output").read_text() == "check=0\nab=1\n"


def test_without_a_server_to_compare_with_the_server_itself_is_judged(typed, wires, tmp_path):
    only = {name: COMPARED[name] for name in ("max-length", "check-options", "tokenizer")}
    ended = typed(base_url=wires().base_url, **named(only))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "output").read_text() == "check=0\n"
    assert " ab: " not in (tmp_path / "summary.md").read_text()


def test_a_wrong_setting_fails_the_step_and_its_log_says_what_to_type(typed):
    ended = typed(base_url="http://127.0.0.1:9/v1")
    assert ended.returncode == 2
    assert "correct its address (--base-url" in ended.stderr


@pytest.mark.parametrize(
    ("check", "ab", "ends"),
    [(0, 0, 0), (5, 1, 1), (4, 1, 1), (0, 4, 4), (5, 4, 5), (3, 0, 3), (4, 3, 4), (2, 0, 2)],
)
def test_the_more_serious_of_both_verdicts_is_the_exit_code(typed, tmp_path, check, ab, ends):
    """A check in doubt, 5, hid an ab that was worse, 1."""
    command = tmp_path / "bin" / "needlemap"
    command.parent.mkdir()
    word = {0: "PASS", 1: "FAIL", 4: "NOT ENOUGH DATA", 5: "SUSPECT"}
    lines = [f"check) echo '{word.get(check, 'NO RESULT')} check: 5 % lost.'; exit {check} ;;"]
    lines += [f"ab) echo '{word.get(ab, 'NO RESULT')} ab: so.'; exit {ab} ;;"]
    command.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *lines, "esac", ""]))
    command.chmod(0o755)
    ended = typed(str(command.parent), base_url="http://x/v1", baseline_url="http://y/v1")
    assert ended.returncode == ends, ended.stderr
    assert f"title=needlemap::{word.get(check, 'NO RESULT')} check: 5 %25 lost." in ended.stdout


def test_inputs_are_values_and_never_part_of_the_script(action, typed, tmp_path):
    step = action["runs"]["steps"][-1]
    assert "${{" not in step["run"]
    typed(base_url='x"; touch harmed; echo "$(touch harmed)')
    assert not (tmp_path / "harmed").exists()


def test_the_workflow_gives_the_action_what_it_knows(action, workflow):
    (given,) = [
        step["with"]
        for step in workflow["jobs"]["long-context"]["steps"]
        if step.get("uses", "").endswith("/needlemap")
    ]
    assert set(given) <= set(action["inputs"])
    needed = {name for name, each in action["inputs"].items() if each.get("required")}
    assert needed <= set(given)


def test_what_runs_strangers_code_is_asked_for_by_name(workflow):
    job = workflow["jobs"]["long-context"]
    assert "head.repo.full_name == github.repository" in job["if"]
    assert workflow["permissions"] == {"contents": "read"}


def named(inputs: dict[str, str]) -> dict[str, str]:
    """Inputs as keywords of Python."""
    return {name.replace("-", "_"): value for name, value in inputs.items()}


def test_pull_requests_run_what_ci_runs():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert tests["jobs"]["tests"]["steps"][-1]["run"] == "bash .ci/run"
