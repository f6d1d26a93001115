"""The pytest plug-in: claims that pass, failures that show what is wrong, and what a collection pays."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

PLUGIN = "needlemap.commands.pytest_plugin"
ROOT = Path(__file__).parents[2]
WIRE = ROOT / "tests" / "servers" / "wire.py"
GRID = ("--lengths", "500,900", "--depths", "0,50,100", "--repeats", "16", "--quiet")
LIGHT = {"needlemap", "needlemap.version", "needlemap.commands", PLUGIN}


class Claims:
    """A folder with a golden, where test files run in a pytest of their own."""

    def __init__(self, command: Any) -> None:
        self.command, self.folder = command, command.folder

    def __call__(self, body: str, *flags: str) -> str:
        """What pytest prints of one test with this body."""
        (self.folder / "test_it.py").write_text(f"def test_it(needle_server):\n    {body}\n")
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", "test_it.py"]
        basetemp = ("--basetemp", str(self.folder / "temporary"))
        done = subprocess.run(
            [*command, *basetemp, "-rs", *flags],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory, command_in: Any) -> Claims:
    command = command_in(tmp_path_factory.mktemp("tests"))
    command("run", "bm25", *GRID, "-o", "reference")
    command("report", "reference", "--format", "golden", "-o", "golden/bm25")
    return Claims(command)


BM25 = ("--needle-model", "baseline/bm25")
LESS = "needle_server('baseline/bm25', model_options={'window': 300})"


def test_a_claim_that_holds_passes_and_one_of_its_lengths_may_be_asked(tests):
    assert "1 passed" in tests("needle_server.assert_no_worse('golden/bm25', margin=5)", *BM25)
    assert "1 passed" in tests("needle_server.assert_same_answers('golden/bm25', lengths='900')", *BM25)


def test_a_failure_shows_the_verdict_the_map_and_a_command_that_shows_the_prompt(tests):
    said = tests(f"{LESS}.assert_no_worse('golden/bm25')")
    assert "1 failed" in said
    assert "needlemap: worse (beside golden/bm25, margin 2 points)" in said
    assert "verdict: worse (the whole 95 % interval is a loss" in said
    assert re.search(r"^ +500 +900$", said, re.M)  # the map
    assert re.search(r"^ +50% +\d+ +\d+ *$", said, re.M)
    (typed,) = re.findall(r"^see the first answer that differs: needlemap (replay .*)$", said, re.M)
    assert "the same bytes as recorded" in tests.command(*shlex.split(typed)).stderr
    assert "Traceback" not in said


def test_answers_that_change_fail_by_their_share(tests):
    said = tests(f"{LESS}.assert_same_answers('golden/bm25')")
    assert re.search(r"needlemap: verdict on answers: fail \(\d+\.\d % differ, 0 % may\)", said)
    assert "first answers that differ, in the order asked (5 shown):" in said
    assert "1 passed" in tests(f"{LESS}.assert_same_answers('golden/bm25', percent=100)")


def test_undecided_fails_unless_the_test_says_otherwise(tests):
    claim = "needle_server.assert_no_worse('golden/bm25', margin=1{})"  # 96 pairs are too few for 1 point
    said = tests(claim.format(""), *BM25)
    assert "needlemap: cannot tell (beside golden/bm25, margin 1 points)" in said
    assert "1 failed" in said
    assert "1 passed" in tests(claim.format(", on_undecided='pass'"), *BM25)
    assert "1 skipped" in tests(claim.format(", on_undecided='skip'"), *BM25)


def test_a_check_passes_or_shows_its_probes(tests):
    asked = "needle_server('demo/retriever', max_answer_tokens=24).assert_checked(max_length='250', {})"
    assert "1 passed" in tests(asked.format("probes=('cut', 'stop')"))
    weak = "needle_server(max_answer_tokens=24).assert_checked(max_length='900', {})"
    said = tests(weak.format("probes=('cut', 'distance')"), "--needle-model", "python/nothing:answers")
    assert "needlemap: check undecided: " in said
    assert re.search(r"^cut +undecided +n=\d+", said, re.M)


@pytest.fixture(autouse=True, scope="module")
def _nothing(tests: Claims) -> None:
    """A model that answers the same to everything."""
    (tests.folder / "nothing.py").write_text("def answers(messages):\n    return 'I do not know.'\n")
    (tests.folder / "conftest.py").write_text(
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))\n"
    )


def test_a_command_starts_a_server_which_ends_with_the_session(tests):
    """The server's model is the first that it lists; its answers are right, and not BM25's."""
    command = f"{sys.executable} {WIRE} --port {{port}}"
    said = tests("needle_server.assert_no_worse('golden/bm25', margin=5)", "--needle-command", command)
    assert "1 passed" in said
    body = f"asked = needle_server(command={command!r})._flags(); assert asked == {{}}"
    (port,) = re.findall(r"'base_url': 'http://127.0.0.1:(\d+)/v1', 'model': 'openai/wire'", tests(body)) or [
        ""
    ]
    assert port
    with socket.socket() as line:
        assert line.connect_ex(("127.0.0.1", int(port))) != 0


def test_what_cannot_be_asked_fails_in_words(tests):
    claim = "needle_server.assert_no_worse('golden/{}')"
    assert "needle_server has nobody to ask: give pytest --needle-model" in tests(claim.format("bm25"))
    missing = tests(claim.format("none"), *BM25)
    assert "needlemap: No run at 'golden/none'" in missing
    ended = tests(claim.format("bm25"), "--needle-command", "sh -c 'echo no such weights; exit 3' {port}")
    assert "The command ended before it answered. It said: no such weights" in ended
    absent = tests(claim.format("bm25"), "--needle-command", "no-such-server {port}")
    assert "'no-such-server' cannot be started: No such file or directory." in absent
    portless = tests(claim.format("bm25"), "--needle-command", "my-server")
    assert "A command to start needs {port}, or the address that it serves" in portless
    for said in (missing, ended, absent, portless):
        assert "Traceback" not in said
        assert "During handling" not in said


def test_a_collection_pays_for_one_file():
    """Whatever else needlemap imports is imported by the first claim."""
    program = (
        f"import pytest, sys; known = set(sys.modules); import {PLUGIN}; print(*set(sys.modules) - known)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name not in sys.stdlib_module_names} == LIGHT


def test_pytest_finds_it_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"needlemap": PLUGIN}
    assert "pytest" in project["optional-dependencies"]
