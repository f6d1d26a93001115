"""Any number typed behind a flag gets an answer, or a refusal in words. Each flag that takes one
is walked, so that a new flag is tried too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer.main

from needlemap.cli import app
from needlemap.settings import Settings

ODD = ("1e308", "-1e308", "1" + "0" * 30, "9" * 5_000)
NO_NUMBERS = ("nan", "inf", "1e400")
# Numbers with a unit, or with words beside them, which typer takes for texts.
WRITTEN = ("max_length", "kv_tokens", "until", "limit_time", "length", "width", "require", "accept")
WRITTEN += ("rules", "scale", "within", "seek", "limit_tokens", "tokens_per_minute")
NUMBERS = ("N", "NUMBER|none", "PERCENT", "POINTS", "TOKENS", "MINUTES", "SECONDS", "USD")
CELLS = ("--lengths", "500", "--depths", "50", "--tokenizer", "cl100k_base")
SERVER = ("--model", "openai/m", "--tokenizer", "cl100k_base", "--plan")
ARMS = ("--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25")
COMMANDS = {
    "plan": ("bm25", *CELLS),
    "check": SERVER,
    "storm": SERVER,
    "ab": ("kv-json", *ARMS, *CELLS, "--plan"),
    "report": ("one",),
    "compare": ("one", "two"),
    "replay": ("one", "--length", "500", "--depth", "50"),
    "score": ("answers.jsonl", "--scorer", "exact"),
}


def number_flags(command: str) -> Iterator[str]:
    """The flags of a command that take numbers: of `plan` those of the settings too, which are the
    same everywhere."""
    every = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    for flag in every:
        is_own = command not in ("check", "storm", "ab") or flag.name not in Settings.model_fields
        if is_own and (flag.metavar in NUMBERS or flag.name in WRITTEN):
            yield next(name for name in flag.opts if name.startswith("--"))


@pytest.fixture
def ready(typed):
    for name in ("one", "two"):
        typed("run", "bm25", *CELLS, "--quiet", "-o", name)
    (typed.folder / "answers.jsonl").write_text('{"answer": "a", "reference": "a"}\n')
    return typed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_is_taken_or_refused_in_words(command, ready):
    """`check --max-length 1e308` raised, `storm --load 999999999999` had no end."""
    flags = list(number_flags(command))
    assert flags
    for flag in flags:
        for number in ODD:
            ended = ready(command, *COMMANDS[command], f"{flag}={number}", code=None)
            assert ended.returncode in (0, 2), (flag, number)
        for number in NO_NUMBERS:
            ended = ready(command, *COMMANDS[command], f"{flag}={number}", code=None)
            assert ended.returncode == 2 or flag == "--until", (flag, number)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("storm", "--load=999999999999"),
        ("check", "--load=10001"),
        ("check", "--max-length=100000001"),
        ("storm", "--max-length=100000001"),
        ("storm", "--kv-tokens=1e308"),
        ("check", "--minutes=nan"),
        ("check", "--minutes=-1"),
        ("storm", "--minutes=1e300"),
        ("plan", "--workers=999999999999"),
        ("plan", "--step=1e30"),
        ("ab", "--seed=1e308"),
        ("ab", "--margin=-1"),
        ("score", "--limit-time=999999999999"),
        ("score", "--limit-time=0"),
    ],
)
def test_a_number_beyond_all_use_is_refused(command, flag, ready):
    ended = ready(command, *COMMANDS[command], flag, code=2)
    assert flag.partition("=")[0].lstrip("-") in ended.stderr.replace("_", "-")


@pytest.mark.parametrize("name", ["limit_time", "wait"])
def test_a_number_of_a_settings_file_that_no_float_holds_is_refused_in_words(name, needlemap):
    written = f"model: baseline/bm25\nlengths: [500]\n{name}: 1{'0' * 400}\n"
    (needlemap.folder / "own.yaml").write_text(written, "utf-8")
    ended = needlemap("plan", "own.yaml", code=2)
    assert f"Setting '{name}' in own.yaml: must be a number" in ended.stderr


@pytest.mark.parametrize("number", ["10001", "1000000000", "9" * 400])
@pytest.mark.parametrize(
    "option",
    ["facts facts", "count-frequent letters", "count-scattered digits", "count-common shots"],
)
def test_a_tasks_number_beyond_all_use_is_refused_in_words(option, number, needlemap):
    """`facts=1000000000` was drawn for hours, and `letters` of 24 digits raised."""
    task, name = option.split()
    typed = ("--task", task, "--task-options", f"{name}={number}")
    ended = needlemap("plan", "--model", "baseline/bm25", *CELLS, *typed, code=2)
    assert f"Option '{name}' of task {task} takes numbers up to 10,000" in ended.stderr
