"""A run that this machine did not begin: what its files say is followed only when the user says
so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

GRID = ("--lengths", "500", "--depths", "50")
REPLAY = ("replay", "r", "--length", "500", "--depth", "50")
EVIL = (
    "from pathlib import Path\nPath('ran').write_text('x')\n\n\ndef answer(asked):\n    return "
    "'x'\n"
)


@pytest.fixture
def elsewhere(monkeypatch):
    """Another machine: another state folder."""

    def go(folder: Path) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "another"))

    return go


def changed(file: Path, **settings: object) -> None:
    """run.json as a stranger would write it."""
    about = json.loads(file.read_bytes())
    about["settings"] |= settings
    file.write_text(json.dumps(about))


def test_ones_own_run_goes_on_without_a_word(typed):
    typed("run", "bm25", *GRID, "-o", "r")
    typed("run", "bm25", "--lengths", "500,600", "--depths", "50", "-o", "r")
    typed("score", "r", "--scorer", "keyword")
    assert "the same bytes" in typed(*REPLAY).stderr


@pytest.mark.parametrize(
    "command",
    [
        ("run", "bm25", *GRID, "-o", "r"),
        ("score", "r", "--scorer", "keyword"),
        ("score", "r", "--scorer", "keyword", "-o", "new"),
        (*REPLAY, "--ask"),
        REPLAY,
    ],
)
def test_a_run_of_another_machine_shows_what_it_names_and_wants_a_flag(typed, elsewhere, command):
    typed("run", "bm25", *GRID, "-o", "r")
    elsewhere(typed.folder)
    changed(typed.folder / "r" / "run.json")
    ended = typed(*command, code=2)
    assert "'r' was not begun by you on this machine" in ended.stderr
    assert "model baseline/bm25" in ended.stderr
    assert "--trust-run" in ended.stderr
    typed(*command, "--trust-run")


def test_a_trusted_run_is_ones_own_once_it_went_on(typed, elsewhere):
    typed("run", "bm25", *GRID, "-o", "r")
    elsewhere(typed.folder)
    resumed = ("run", "bm25", "--lengths", "500,600", "--depths", "50", "-o", "r")
    typed(*resumed, "--trust-run")
    typed(*resumed)


def test_an_edited_run_is_not_ones_own_any_more(typed):
    """A folder that came back with another address would have got the key."""
    typed("run", "bm25", *GRID, "-o", "r")
    changed(typed.folder / "r" / "run.json", base_url="http://evil.example/v1", model="openai/m")
    ended = typed(*REPLAY, "--ask", code=2)
    assert "model openai/m; address http://evil.example/v1; key of $OPENAI_API_KEY" in ended.stderr


def test_no_module_is_imported_that_only_a_folder_names(typed):
    """replay, score and replay --ask ran os.system, or evil.py of the current directory."""
    typed("run", "bm25", *GRID, "--tokenizer", "cl100k_base", "-o", "r")
    changed(typed.folder / "r" / "run.json", model="python/stranger_evil:answer", model_options={})
    (typed.folder / "stranger_evil.py").write_text(EVIL)
    assert "the same bytes" in typed(*REPLAY, "--trust-run").stderr
    typed("score", "r", "--scorer", "keyword", "--trust-run")
    for command in (("report", "r"), ("report", "r", "-o", "x.html"), ("compare", "r", "r")):
        typed(*command, code=None)
    ended = typed(*REPLAY, "--ask", "--trust-run", code=2)
    assert "type the same with --model python/stranger_evil:answer" in ended.stderr
    assert not (typed.folder / "ran").exists()
    asked = typed(*REPLAY, "--ask", "--trust-run", "--model", "python/stranger_evil:answer")
    assert "answer now: 'x'" in asked.stderr


def test_ones_own_function_is_scored_anew_without_its_module_and_goes_on(typed):
    (typed.folder / "own_function.py").write_text("def answer(asked):\n    return '4711'\n")
    asking = ("run", "--model", "python/own_function:answer", *GRID, "-o", "r")
    typed(*asking)
    typed("score", "r", "--scorer", "keyword")
    typed(*asking, "--scorer", "keyword")
    rows = [
        line
        for file in (typed.folder / "r").glob("records-*")
        for line in file.read_text().splitlines()
    ]
    assert len(rows) == 2


def test_only_names_of_keys_are_sent_as_keys_where_a_file_names_them(typed):
    """base_url and key_env of a stranger's file sent any variable away."""
    typed("run", "bm25", *GRID, "--tokenizer", "cl100k_base", "-o", "r")
    options = {"key_env": "AWS_SECRET_ACCESS_KEY"}
    changed(
        typed.folder / "r" / "run.json",
        model="openai/m",
        base_url="http://[::1]:9/v1",
        model_options=options,
    )
    ended = typed(*REPLAY, "--ask", "--trust-run", code=2)
    assert "$AWS_SECRET_ACCESS_KEY would be sent as a key" in ended.stderr
    assert "--key-env" in ended.stderr
    for options in (
        "model_options: {key_env: HOME}",
        "scorer_options: {judge_options: {key_env: HOME}}",
    ):
        (typed.folder / "s.yaml").write_text(f"model: openai/m\n{options}\n")
        ended = typed("plan", "s.yaml", code=2)
        assert "$HOME would be sent as a key" in ended.stderr


def test_the_key_is_its_owners_alone_and_without_a_home_runs_go_on_too(
    typed, elsewhere, monkeypatch
):
    elsewhere(typed.folder)
    typed("run", "bm25", *GRID, "-o", "r")
    key = typed.folder / "another" / "needlemap" / "run-key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text() not in (typed.folder / "r" / "run.json").read_text()
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    typed("run", "bm25", *GRID, "-o", "other")
    assert "--trust-run" in typed("run", "bm25", *GRID, "-o", "other", code=2).stderr
