"""The help: `--help` opens with examples that work as they stand there, then model, grid and task.
Rare flags are in `--help-all`."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
import typer.main

from needlemap.cli import app
from needlemap.settings import Settings, marked

COMMANDS = tuple(typer.main.get_command(app).commands)
PLANNED = ("check", "storm", "ab")  # typed with --plan here; tests of their own type them whole
HEAVY = ("run", "plan")  # the demo's grid and prompts of 128k; both are typed in the docs too
OWN = ("--base-url", "http://127.0.0.1:8000/v1", "--tokenizer", "qwen3", "--lengths", "1k,4k")

NEEDLEHAYSTACK = {"model": "m", "context_length": 1000, "depth_percent": 0, "score": 10}


def examples(shown):
    """The commands that a help shows."""
    (found,) = re.findall(r"^  Examples:\n((?:    .*\n)+)", shown, re.MULTILINE)
    return [shlex.split(line) for line in found.replace("\\\n", " ").splitlines()]


@pytest.fixture
def work(typed, wire):
    """Types a line in a folder with runs, as a user has them, and a server behind each address."""
    environment = {
        "OPENAI_API_KEY": "no-key-of-anybody",
        "OPENAI_BASE_URL": wire.base_url,
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def type_line(*words):
        served = [re.sub(r"http://127.0.0.1:800\d", wire.root, word) for word in words]
        ended = typed(*served, environment=environment, code=None)
        undecided = 4 if "--margin" in words else 0  # six trials are too few for it
        assert ended.returncode in (0, undecided), ended.stderr
        return ended.stdout

    (typed.folder / "answers.jsonl").write_text(json.dumps({"answer": "7", "reference": "7"}))
    type_line("run", *OWN, "--depths", "0:100:3", "-o", "own")
    type_line("report", "own", "-o", "summary.csv", "--format", "opencompass")
    (typed.folder / "results").mkdir()
    (typed.folder / "results" / "m_len_1000_results.json").write_text(json.dumps(NEEDLEHAYSTACK))
    for name in ("before", "after"):
        shutil.copytree(typed.folder / "own", typed.folder / name)
    return type_line


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.long if command in HEAVY else ())
        for command in COMMANDS
    ],
)
def test_examples_of_a_help_work_as_typed(work, command):
    lines = examples(work(command, "--help"))
    assert len(lines) in (2, 3)
    for program, *words in lines:
        assert program == "needlemap"
        assert words[0] == command
        # These need a package that few have.
        if not {"--gguf", "--like"} & {*words}:
            work(*words, *["--plan"] * (command in PLANNED and "--plan" not in words))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_a_command_and_help_all_shows_its_rare_flags_too(typed, command):
    short, every = (typed(command, flag).stdout for flag in ("--help", "--help-all"))
    assert ", rare cases:" not in short
    assert (", rare cases:" in every) == (f"All flags: needlemap {command} --help-all" in short)
    assert not re.search(r"^  \S+.* <[a-z]", every, re.MULTILINE)  # a Python type
    sections = re.findall(r"^(\w+):$", short, re.MULTILINE)
    asks = "Grid" if "Grid" in sections else "Options"  # what a check asks are flags of its own
    assert [each for each in sections if each in ("Model", asks, "Task")] == [
        each for each in ("Model", asks, "Task") if each in sections
    ]


def test_clusters_prices_and_rare_cases_wait_for_help_all(typed):
    short, every = (typed("run", flag).stdout for flag in ("--help", "--help-all"))
    for flag in ("--slurm", "--cluster", "--prices", "--trust-run"):
        assert flag not in short
        assert flag in every
    for name in set(Settings.model_fields) - set(marked("rare", "older")):
        assert f"--{name.replace('_', '-')}" in short
    assert len(short.splitlines()) < 100


@pytest.mark.parametrize("command", ["check", "storm", "ab"])
def test_a_command_that_asks_one_server_does_not_speak_of_several_models(typed, command):
    shown = " ".join(typed(command, "--help-all").stdout.split())
    assert "repeat the flag, in YAML" not in shown
    assert "baseline/bm25" not in shown
    assert "the one that it" in shown


def test_the_help_of_ab_knows_that_its_grid_is_the_suite_s(typed):
    shown = " ".join(typed("ab", "--help").stdout.split())
    assert "(default: as in suite:long-ab)" in shown
    assert "(default 1k:16k:8:log)" not in shown


def test_help_is_a_word_too(needlemap):
    assert needlemap("help").stdout == needlemap("--help").stdout
    assert needlemap("help", "list").stdout == needlemap("list", "--help").stdout
    assert "No such command 'nosuch'" in needlemap("help", "nosuch", code=2).stderr


def test_the_first_help_has_an_example_and_says_where_the_docs_are(typed):
    shown = typed("--help").stdout
    assert "needlemap run --base-url http://127.0.0.1:8000/v1" in shown
    assert "docs/README.md" in shown
