"""Wrong input gives one clear line that says what to type, and exit code 2; keys never leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ("--lengths", "400", "--depths", "0,50")
SERVED = (
    "run",
    "--model",
    "openai/m",
    "--base-url",
    "http://127.0.0.1:9/v1",
    "--tokenizer",
    "cl100k_base",
)
WRONG = {
    "preset": (["run", "cdme-8"], "Unknown preset 'cdme-8'. Did you mean 'cdme-8k'?"),
    "no settings file": (["run", "my.yaml"], "No settings file at 'my.yaml'."),
    "unreadable YAML": (["run", "torn.yaml"], "'torn.yaml' is not readable YAML: "),
    "YAML list": (["run", "list.yaml"], "'list.yaml' must be a mapping of settings to values"),
    "YAML setting": (
        ["run", "typo.yaml"],
        "Unknown setting 'lenghts' in typo.yaml. Did you mean 'lengths'?",
    ),
    "flag": (["run", "--lenghts", "1k"], "No such option: --lenghts"),
    "model": (["run", "--model", "opena/gpt-4o"], "Unknown model 'opena'. Did you mean 'openai'?"),
    "another tool's name of a provider": (
        ["run", "--model", "ollama/qwen3", *SMALL],
        "Type: --model openai/qwen3 --base-url http://127.0.0.1:11434/v1",
    ),
    "a provider with a key": (
        ["run", "--model", "azure/gpt-4o", *SMALL],
        "--base-url https://RESOURCE.openai.azure.com/openai/v1 "
        "--model-options key_env=AZURE_OPENAI_API_KEY",
    ),
    "suite": (["run", "ruler"], "It is a suite. Type: needlemap run suite:ruler"),
    "unlike any preset": (["run", "my-own"], "Type: needlemap list presets."),
    "no model name": (
        ["run", "--model", "openai"],
        "'openai' is not BACKEND/NAME. Type for example --model openai/NAME.",
    ),
    "no back end": (
        ["run", "--model", "gpt-4o"],
        "Type for example --model openai/gpt-4o. Back ends: anthropic",
    ),
    "baseline": (
        ["run", "--model", "baseline/bm52", *SMALL],
        "Unknown baseline 'bm52'. Did you mean 'bm25'?",
    ),
    "option": (
        ["run", "--model", "baseline/bm25", "--model-options", "windw=1", *SMALL],
        "Unknown option 'windw' of Baseline. Did you mean 'window'?",
    ),
    "pair": (
        ["run", "--model-options", "window"],
        "--model-options takes KEY=VALUE, got 'window'.",
    ),
    "task": (["run", "--task", "singel"], "Unknown task 'singel'. Did you mean 'single'?"),
    "scorer": (["run", "--scorer", "judg", *SMALL], "Unknown scorer 'judg'. Did you mean 'judge'?"),
    "haystack": (
        ["run", "--haystack", "foldr", *SMALL],
        "Unknown haystack 'foldr'. Did you mean 'folder'?",
    ),
    "a folder as haystack": (
        ["run", "--haystack", ".", *SMALL],
        "--haystack names a kind, and '.' is a path. Type: --haystack-path .",
    ),
    "tokenizer": (["run", "--tokenizer", "cl10k_base", *SMALL], "Unknown tokenizer 'cl10k_base'."),
    "template": (
        ["run", "--template", "chat-e", *SMALL],
        "Unknown template 'chat-e'. Did you mean 'chat-en'?",
    ),
    "placeholder": (
        ["run", "--needle", "{who} eats.", "--question", "Who?", *SMALL],
        "needle: unknown placeholder {who}.",
    ),
    "length": (
        ["run", "--model", "baseline/bm25", "--lengths", "200"],
        "Use lengths of 354 or more",
    ),
    "no length": (["run", "--lengths", "many"], "'many' is not a number. Write 4000, 4k or 1M."),
    "depth": (
        ["run", "--depths", "0,101"],
        "Setting 'depths' in the command line: 101 is outside 0..100",
    ),
    "number": (
        ["run", "--concurrency", "0"],
        "Setting 'concurrency' in the command line: must be greater",
    ),
    "choice": (["run", "--mode", "hot"], "Setting 'mode' in the command line: must be 'exact'"),
    "no folder": (
        ["run", "--haystack", "folder", "--haystack-path", "nowhere", *SMALL],
        "No file or folder at 'nowhere'. Give one with --haystack-path.",
    ),
    "no path": (
        ["run", "--haystack", "folder", *SMALL],
        "Haystack 'folder' needs --haystack-path.",
    ),
    "empty folder": (
        ["run", "--haystack", "folder", "--haystack-path", "empty", *SMALL],
        "Folder 'empty' holds no document that can be read. Readable: .txt",
    ),
    "blank files": (
        ["run", "--haystack-path", "blank", *SMALL],
        "'blank' holds no document that can be read.",
    ),
    "broken JSON": (
        ["run", "--haystack", "jsonl", "--haystack-path", "broken.jsonl", *SMALL],
        "broken.jsonl, line 2: not JSON",
    ),
    "too short": (
        ["run", "--haystack", "jsonl", "--haystack-path", "short.jsonl", *SMALL],
        "short",
    ),
    "known answer": (
        ["run", "--needle", "The sky is", "--question", "What is?", "--keywords", "the", *SMALL],
        "or allow it with --collisions warn.",
    ),
    "key": (["run", "--model", "openai/gpt-4o", *SMALL], "Type: export OPENAI_API_KEY=YOUR-KEY"),
    "other key": (
        ["run", "--model", "anthropic/claude-x", "--tokenizer", "gpt-4", *SMALL],
        "Type: export ANTHROPIC_API_KEY=YOUR-KEY",
    ),
    "key on the command line": (
        ["run", "--openai-api-key", "sk-1"],
        "API keys are read from the environment",
    ),
    "base URL": (
        [*SERVED[:3], "--base-url", "localhost", "--tokenizer", "gpt-4"],
        "'localhost' is no base URL",
    ),
    "reserved field": (
        [*SERVED, "--request", "stream=true", *SMALL],
        "Request field 'stream' cannot be set",
    ),
    "function": (["run", "--model", "python/nowhere:f", *SMALL], "No module 'nowhere' here ("),
    "run folder is a file": (
        ["run", "-o", "torn.yaml", *SMALL],
        "'torn.yaml': File exists. A file stands where a folder is wanted: give another one with "
        "-o.",
    ),
    "run folder is nowhere": (
        ["run", "-o", "/proc/x", *SMALL],
        "'/proc/x': No such file or directory. Is it spelt right? Where it is to be written: give "
        "another",
    ),
    "no room for the answer": (
        ["run", "--lengths", "1k", "--depths", "0", "--max-answer-tokens", "5000"],
        "or a smaller --max-answer-tokens.",
    ),
    "run.json is none": (
        ["report", "torn"],
        "'torn/run.json' is not a run's: it is no JSON (line 1, column",
    ),
    "no run": (["report", "nowhere"], "No run at 'nowhere': it holds no run.json."),
    "no such list": (["list", "preset"], "Cannot list 'preset'. Did you mean 'presets'?"),
    "no command": (["rum"], "No such command 'rum'."),
    "choice of a command": (
        ["check", "--kv", "most"],
        "Invalid value for '--kv': 'most' is not one of 'any', 'exact'.",
    ),
    "addresses to compare": (
        ["compare", "http://127.0.0.1:1/v1", "b"],
        "Two servers: needlemap ab --arm a=http://... --arm b=http://...",
    ),
    "an arm's address without its scheme": (
        ["ab", "--arm", "a=127.0.0.1:1/v1", "--arm", "b=http://127.0.0.1:1/v1", *SMALL],
        "begins with http:// or https://, as a=http://127.0.0.1:1/v1",
    ),
    "number of a command": (
        ["compare", "a", "b", "--fail-if-worse", "x"],
        "Invalid value for '--fail-if-worse': must be a number, got 'x'.",
    ),
    "prompts to nowhere": (
        ["prompts", *SMALL, "-o", "nowhere/x.jsonl"],
        "'nowhere/x.jsonl': No such file or directory. Is it spelt right?",
    ),
    "no file to score": (
        ["score", "nowhere.jsonl", "--scorer", "exact"],
        "No file at 'nowhere.jsonl'.",
    ),
    "broken line to score": (
        ["score", "broken.jsonl", "--scorer", "exact"],
        "broken.jsonl, line 1: no text in",
    ),
}


IN_A_PROCESS = ("flag", "unreadable YAML", "key")  # the others, to save time, in this one


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder of things that are wrong."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "torn.yaml").write_text("model: [openai")
    (folder / "list.yaml").write_text("- model")
    (folder / "typo.yaml").write_text("lenghts: 1k")
    (folder / "empty").mkdir()
    (folder / "torn").mkdir()
    (folder / "torn" / "run.json").write_text('{"schema"')
    (folder / "blank").mkdir()
    (folder / "blank" / "a.txt").touch()
    (folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (folder / "short.jsonl").write_text('{"text": "Too short a text."}\n')
    return folder


def says_what_to_type(said: str, code: int, out: str, err: str) -> None:
    """Whether a wrong command ended as it should."""
    before = (" trials · ", "at most ")
    lines = [line for line in err.splitlines() if not any(words in line for words in before)]
    assert code == 2
    assert said in lines[-1]
    assert err.startswith("Usage: ") or (len(lines) == 1 and lines[0].startswith("needlemap: ")), (
        err
    )
    assert out == ""


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_a_mistake_gives_one_line_that_says_what_to_type(folder, command_in, name):
    arguments, said = WRONG[name]
    ended = command_in(folder).process(*arguments, code=2)
    says_what_to_type(said, ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("name", sorted(set(WRONG) - set(IN_A_PROCESS)))
def test_so_does_every_other_mistake(folder, typed, name):
    arguments, said = WRONG[name]
    ended = typed(*arguments, code=2, folder=folder)
    says_what_to_type(said, ended.returncode, ended.stdout, ended.stderr)


def test_help_is_quick_and_names_every_command():
    code = (
        "import sys; sys.argv = ['needlemap', '--help']\n"
        "from needlemap.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('openai', 'anthropic', 'numpy', 'rich', 'resvg_py', 'asyncio', 'tokenizers')])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for command in ("run", "prompts", "score", "report", "list", "replay"):
        assert f"\n  {command} " in shown
    assert shown.splitlines()[-1] == "[]"


def test_python_runs_it_as_a_module_where_the_command_is_on_no_path():
    asked = [sys.executable, "-m", "needlemap", "--version"]
    ended = subprocess.run(asked, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.partition(" ")[0]) == (0, "needlemap"), ended.stderr


def test_run_help_shows_each_setting_once_in_its_group(needlemap):
    shown = needlemap("run", "--help-all").stdout
    for group in (
        "Model:",
        "Task:",
        "Haystack:",
        "Grid:",
        "Template:",
        "Scoring:",
        "Run:",
    ):
        assert shown.count(f"\n{group}\n") == 1
    assert shown.count("  --lengths TOKENS") == 1
    assert "(default 4)" in shown


def test_help_leaves_the_older_tools_names_and_ways_to_their_page_and_they_are_flags_all_the_same(
    typed,
):
    shown = typed("run", "--help-all").stdout
    for flag in (
        "context_lengths_min",
        "--placement",
        "--counts",
        "--sigmoid-ends",
        "--save-contexts",
    ):
        assert flag not in shown
    assert "needlemap help from-opencompass" in shown.splitlines()[-1]
    grid = ("--lengths", "900", "--depths", "50", "--model", "baseline/bm25")
    asked = [
        json.loads(typed("prompts", *grid, *more).stdout)["tokens"]
        for more in (
            (),
            ("--counts", "context"),
            ("--counts", "context", "--reserve-tokens", "100"),
        )
    ]
    assert asked[0] < asked[1] < asked[2]


def test_a_reader_that_goes_away_is_no_error(needlemap):
    process = needlemap.start("prompts", "--lengths", "16k", "--depths", "0:100:20")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["length"] == 16_000
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_help_tells_what_each_command_does_in_whole_sentences(typed, monkeypatch):
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    for flag in ("--help", "-h"):
        assert "..." not in typed(flag).stdout.partition("Commands:")[2]


def test_list_alone_says_what_can_be_listed(typed):
    assert "needlemap list presets\n" in typed("list").stdout


RAISING = """
import os
def helper(messages):
    raise ValueError("it went wrong with " + os.environ["MY_API_KEY"])
def answer(messages):
    return helper(messages)
"""


def test_what_ones_own_function_raised_names_its_line_and_debug_shows_all_of_it_without_keys(
    needlemap,
):
    (needlemap.folder / "mine.py").write_text(RAISING)
    needlemap.environment["MY_API_KEY"] = "abcdefgh-12345"
    typed = (
        "run",
        "--model",
        "python/mine:answer",
        "--lengths",
        "400",
        "--depths",
        "0:100:5",
        "-o",
        "r",
    )
    assert "ValueError: it went wrong" in (plain := needlemap(*typed, code=2).stderr)
    assert "(mine.py, line 4)" in plain
    assert needlemap.records()[0]["error"].endswith("(mine.py, line 4)")
    process = needlemap.start(*typed, "--debug")
    said = process.communicate(timeout=120)[1]
    assert said.count("Traceback (most recent call last)") == 1  # of five that are alike
    shown = said.partition("Traceback")[2].partition("ValueError")[0]
    assert 'mine.py", line 6, in answer\n' in shown
    assert 'mine.py", line 4, in helper\n' in shown
    assert "ValueError: it went wrong with [hidden]\n" in said
