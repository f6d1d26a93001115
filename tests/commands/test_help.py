"""The help: `--help` opens with examples that work as they stand there, then model, grid and task,
and fits one screen. All flags are in `--help-all`."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
import typer.main

from needlemap.cli import OwnCommands, app
from needlemap.commands.command import Command
from needlemap.settings import Settings, marked
from needlemap.settings.reading import read_settings

SCREEN = 48  # lines of 80 columns
COMMANDS = tuple(typer.main.get_command(app).commands)
PLANNED = ("check", "storm", "ab")  # typed with --plan here; tests of their own type them whole
HEAVY = ("run", "plan")  # the demo's grid and prompts of 128k; both are typed in the docs too
OWN = ("--base-url", "http://127.0.0.1:8000/v1", "--lengths", "1k,4k")

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


def flags_in(shown):
    """The flags that a help lists."""
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_one_screen_and_help_all_shows_every_flag(typed, command):
    short, every = (typed(command, flag).stdout for flag in ("--help", "--help-all"))
    assert len(short.splitlines()) <= SCREEN
    assert flags_in(short) <= flags_in(every)
    more = flags_in(every) - flags_in(short)
    assert bool(more) == (f"All flags: needlemap {command} --help-all" in short)
    sections = re.findall(r"^(\w+):$", short, re.MULTILINE)
    asks = "Grid" if "Grid" in sections else "Options"  # what a check asks are flags of its own
    assert [each for each in sections if each in ("Model", asks, "Task")] == [
        each for each in ("Model", asks, "Task") if each in sections
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_flag_names_what_is_typed_behind_it(typed, command):
    """Durations were NUMBER, addresses TEXT; and one bound was `x<=166666.66666666666`."""
    every = typed(command, "--help-all").stdout
    behind = re.findall(r"^  (?:-\w, )?--([\w-]+) (\S+)", every, re.MULTILINE)
    of_text = {flag for flag, metavar in behind if metavar == "TEXT"}
    assert not any(metavar in ("NUMBER", "SPEC") for _, metavar in behind)
    assert of_text <= {
        *("needle", "needles", "question", "answer", "keywords", "answer-prefix", "label"),
        *("title", "dataset-length"),
    }
    assert not re.search(r" <[a-z]|<=x|x>=|\[default", every)


def test_clusters_prices_and_rare_cases_wait_for_help_all(typed):
    short, every = (typed("run", flag).stdout for flag in ("--help", "--help-all"))
    for flag in ("--slurm", "--cluster", "--prices", "--trust-run"):
        assert flag not in flags_in(short)
        assert flag in flags_in(every)
    for name in set(Settings.model_fields) - set(marked("older")):
        assert f"--{name.replace('_', '-')}" in flags_in(every)


def test_prompts_does_not_offer_what_it_cannot_do_and_takes_the_line_of_a_run(typed):
    """Its help offered --concurrency, --limit-usd and --until, though it sends nothing."""
    every = flags_in(typed("prompts", "--help-all").stdout)
    assert not {"--concurrency", "--limit-usd", "--limit-tokens", "--until", "--canary"} & every
    assert {"--lengths", "--seed", "--limit-time"} <= every
    line = ("--lengths", "600", "--depths", "50", "--model", "baseline/bm25")
    assert typed("prompts", *line, "--limit-usd", "2").stdout == typed("prompts", *line).stdout


@pytest.mark.parametrize("command", ["run", "plan", "prompts"])
def test_help_says_that_a_preset_and_the_command_alone_have_other_defaults(typed, command):
    """It said `(default 1)` of repeats, and the command alone sent six of each cell."""
    shown = " ".join(typed(command, "--help").stdout.split())
    assert "(default 1)" in shown
    assert "Its settings replace the defaults below. Without arguments: demo." in shown
    assert read_settings("demo", {}).settings.repeats == 6


def test_the_help_of_ab_has_no_base_url_and_says_where_an_address_goes(typed):
    assert "--base-url" not in typed("ab", "--help-all").stdout
    ended = typed("ab", "--base-url", "http://127.0.0.1:8000/v1", code=2)
    assert "--arm" in ended.stderr


def test_commands_stand_in_groups_and_a_wing_s_command_brings_its_own(typed):
    shown = typed("--help").stdout
    groups = dict(re.findall(r"^(\w[\w ]+):\n((?:  \w+ .*\n)+)", shown, re.MULTILINE))
    listed = {name: re.findall(r"^  (\w+) ", rows, re.MULTILINE) for name, rows in groups.items()}
    assert listed == {
        "Map a model": ["run", "plan", "prompts", "score", "report", "replay", "import"],
        "Test a server": ["check", "gauge", "storm"],
        "Compare and gate": ["compare", "ab", "export"],
        "Look up": ["list", "help"],
    }
    assert "..." not in "".join(groups.values())  # each summary fits its line


def test_a_command_without_a_group_stands_behind_all_others():
    def greet() -> int:
        """Greet the world. And more."""
        return 0

    class Group(OwnCommands):
        own = OwnCommands.own | {"greet": Command(greet)}

    made = Group(name="needlemap", rich_markup_mode=None)
    with made.make_context("needlemap", ["--help"], resilient_parsing=True) as context:
        shown = made.get_help(context)
    assert shown.rstrip().endswith("Other commands:\n  greet    Greet the world.")


@pytest.mark.parametrize("command", ["check", "storm", "ab"])
def test_a_command_that_asks_one_server_does_not_speak_of_several_models(typed, command):
    shown = " ".join(typed(command, "--help-all").stdout.split())
    assert "repeat the flag, in YAML" not in shown
    assert "baseline/bm25" not in shown
    assert "By default the one" in shown


def test_the_help_of_ab_knows_that_its_grid_is_the_suite_s(typed):
    shown = " ".join(typed("ab", "--help").stdout.split())
    assert "(default as in suite:long-ab)" in shown
    assert "(default 1k:16k:8:log)" not in shown


def test_help_is_a_word_too(needlemap):
    assert "Verdicts and exit codes" in needlemap("help").stdout
    assert needlemap("help", "list").stdout == needlemap("list", "--help").stdout
    assert "Unknown topic 'nosuch'" in needlemap("help", "nosuch", code=2).stderr


def test_the_first_help_has_an_example_and_says_where_the_docs_are(typed):
    shown = typed("--help").stdout
    assert "needlemap run --base-url http://127.0.0.1:8000/v1" in shown
    assert "needlemap help verdicts" in shown
