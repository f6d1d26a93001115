"""The pytest plug-in: claims that pass, failures that show what is wrong, and what a collection
pays."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.deadline import clock, limited_to
from needlemap.servers.pytest_plugin import _StartedServers

PLUGIN = "needlemap.servers.pytest_plugin"
ROOT = Path(__file__).parents[4]
WIRE = ROOT / "tests" / "servers" / "wire.py"
GRID = ("--lengths", "500,900", "--depths", "0,50,100", "--repeats", "16", "--quiet")
LIGHT = {"needlemap", "needlemap.servers", PLUGIN}


class Claims:
    """A folder with a golden, where test files run in a pytest of their own."""

    def __init__(self, command: Any) -> None:
        self.command, self.folder = command, command.folder

    def __call__(self, *bodies: str, flags: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """What became of tests with these bodies, in one session: pass, failure or skipped, and its
        words."""
        tests = [f"def test_{at}(needle_server):\n    {body}\n" for at, body in enumerate(bodies)]
        (self.folder / "test_it.py").write_text("\n".join(tests))
        alone = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
            "test_it.py",
        ]
        written = (
            "--basetemp",
            str(self.folder / "temporary"),
            "--junitxml",
            str(self.folder / "out.xml"),
        )
        done = subprocess.run(
            [*command, *written, *flags],
            cwd=self.folder,
            env={**os.environ, **alone},
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return [told(case) for case in ElementTree.parse(self.folder / "out.xml").iter("testcase")]


def told(case: ElementTree.Element) -> tuple[str, str]:
    """A test case's outcome and words."""
    for part in case:
        if part.tag in ("failure", "error", "skipped"):
            return part.tag, f"{part.get('message')}\n{part.text}"
    return "pass", ""


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory, command_in: Any) -> Claims:
    command = command_in(tmp_path_factory.mktemp("tests"))
    command("run", "bm25", *GRID, "-o", "reference")
    command("report", "reference", "--format", "golden", "-o", "golden/bm25")
    return Claims(command)


BM25 = ("--needle-model", "baseline/bm25")
LESS = "needle_server('baseline/bm25', model_options={'window': 300})"


def test_claims_pass_fail_and_are_skipped(tests):
    """96 pairs are enough for a margin of 5 points, and too few for 1."""
    same, some = (
        "assert_no_worse('golden/bm25', margin=5)",
        "assert_same_answers('golden/bm25', lengths='900')",
    )
    unsure = "needle_server.assert_no_worse('golden/bm25', margin=1{})"
    found = tests(
        f"needle_server.{same}",
        f"needle_server.{some}",
        f"{LESS}.assert_no_worse('golden/bm25')",
        f"{LESS}.assert_same_answers('golden/bm25')",
        f"{LESS}.assert_same_answers('golden/bm25', percent=100)",
        unsure.format(""),
        unsure.format(", on_undecided='pass'"),
        unsure.format(", on_undecided='fail'"),
        flags=BM25,
    )
    outcomes = ["pass", "pass", "failure", "failure", "pass", "skipped", "pass", "failure"]
    assert [outcome for outcome, _ in found] == outcomes
    worse, changed, skipped, few = (found[at][1] for at in (2, 3, 5, 7))
    assert re.search(r"FAIL compare: .* loses .*, allowed 2, .*; these prompts", worse)
    assert re.search(r"^depth +500 +900 +tokens$", worse, re.M)  # the map
    assert re.search(r"^ +50% +\d+ +\d+ *$", worse, re.M)
    (typed,) = re.findall(
        r"^see the first answer that differs: needlemap (replay .*)$", worse, re.M
    )
    assert "the same bytes as recorded" in tests.command(*shlex.split(typed)).stderr
    assert "Traceback" not in worse
    assert re.search(r"FAIL compare: \d+\.\d % of the answers differ, allowed 0", changed)
    assert "first answers that differ, in the order asked (5 shown):" in changed
    for said in (skipped, few):
        assert re.search(r"NOT ENOUGH DATA compare: .*, allowed 1, 96 pairs at", said)


@pytest.mark.long
def test_a_check_passes_or_shows_its_probes(tests):
    """BM25 misses none, so that prompts drawn anew pass each time."""
    asked = (
        "needle_server({}max_answer_tokens=24).assert_checked(max_length='900', "
        "probes=('cut', 'stop'))"
    )
    found = tests(
        asked.format("'baseline/bm25', "),
        asked.format(""),
        "needle_server('gauge/numpy').assert_checked(minutes=0.1, max_length='2k')",
        flags=("--needle-model", "python/nothing:answers"),
    )
    assert [outcome for outcome, _ in found] == ["pass", "failure", "skipped"], found
    assert re.search(r"the first \d+ prompts .* were all missed", found[1][1])
    assert "NOT ENOUGH DATA check: " in found[2][1]


def test_a_storm_passes_below_its_rate_or_shows_what_it_saw(tests, wires_for):
    sound = f"'openai/wire', base_url='{wires_for().base_url}', tokenizer='cl100k_base'"
    lost = f"'openai/wire', base_url='{wires_for('--answer', 'No.').base_url}'"
    claim = "needle_server({}, max_answer_tokens=60).assert_storm({}, minutes=2, max_length='2k')"
    found = tests(claim.format(sound, 20), claim.format(f"{lost}, tokenizer='cl100k_base'", 20))
    assert [outcome for outcome, _ in found] == ["pass", "failure"]
    assert "the first 4 prompts were all missed" in found[1][1]


@pytest.fixture(autouse=True, scope="module")
def _nothing(tests: Claims) -> None:
    """A model that answers the same to everything."""
    (tests.folder / "nothing.py").write_text(
        "def answers(messages):\n    return 'I do not know.'\n"
    )
    (tests.folder / "conftest.py").write_text(
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))\n"
    )


def test_a_command_starts_one_server_which_ends_with_the_session(tests):
    """Its model is the first that it lists; its answers are right."""
    command = f"{sys.executable} {WIRE} --port {{port}}"
    claim = "needle_server.assert_no_worse('golden/bm25', margin=5)"
    shown = "assert needle_server._flags() == {}"
    found = tests(claim, shown, shown, flags=("--needle-command", command))
    assert [outcome for outcome, _ in found] == ["pass", "failure", "failure"]
    ports = {
        re.findall(r"'base_url': 'http://127.0.0.1:(\d+)/v1'", said)[0] for _, said in found[1:]
    }
    assert len(ports) == 1
    assert "'model': 'openai/wire'" in found[1][1]
    with socket.socket() as line:
        assert line.connect_ex(("127.0.0.1", int(ports.pop()))) != 0


def test_the_start_of_a_server_takes_nothing_of_a_claims_minutes(tmp_path):
    """A server that loads for two minutes turned a claim of two minutes red."""
    loads_s = 2
    command = f"sh -c 'sleep {loads_s}; exec {sys.executable} {WIRE} --port {{port}}'"
    with ExitStack() as stack, limited_to(60, "minutes"):
        servers = _StartedServers(tmp_path, stack)
        started_s = monotonic()
        servers.url(command, None)
        assert clock().ran_s + loads_s <= monotonic() - started_s


def test_what_cannot_be_asked_fails_in_words(tests):
    ends = "sh -c 'echo no such weights; exit 3' {port}"
    claim = "{}.assert_no_worse('golden/{}')"
    words = {
        claim.format(
            "needle_server", "bm25"
        ): "needle_server has no model to ask: give pytest --needle-model",
        claim.format(
            "needle_server('baseline/bm25')", "none"
        ): "needlemap: No run at 'golden/none'",
        claim.format(f"needle_server(command={ends!r})", "bm25"): (
            "The command ended before it answered. It said: no such weights"
        ),
        claim.format("needle_server(command='no-such-server {port}')", "bm25"): (
            "'no-such-server' cannot be started: No such file or directory."
        ),
        claim.format("needle_server(command='my-server')", "bm25"): (
            "A command to start needs {port}, or the address that it serves"
        ),
    }
    for (outcome, said), wanted in zip(tests(*words), words.values(), strict=True):
        assert outcome == "failure"
        assert wanted in said
        assert "Traceback" not in said
        assert "During handling" not in said


def test_a_collection_pays_for_one_file():
    """Whatever else needlemap imports is imported by the first claim."""
    program = (
        f"import pytest, sys; known = set(sys.modules); import {PLUGIN}; print(*set(sys.modules) - "
        f"known)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert {name for name in done.stdout.split() if name not in sys.stdlib_module_names} == LIGHT


def test_pytest_finds_it_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"needlemap": PLUGIN}
    assert "pytest" in project["optional-dependencies"]
