"""`needlemap list`: what is installed here."""

from __future__ import annotations

from contextlib import closing

import pytest

from needlemap.commands import KINDS
from needlemap.commands.listing import list_command
from needlemap.errors import SettingsError
from needlemap.records.folder import RunFolder, Writer


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("presets", "cdme-8k "),
        ("suites", "suite:ruler-niah "),
        ("templates", "chat-en "),
        ("tokenizers", "cl100k_base "),
        ("models", "openai "),
        ("tasks", "multi "),
        ("scorers", "levenshtein "),
        ("haystacks", "generated "),
    ],
)
def test_every_name_stands_on_a_line_of_its_own_with_a_word_on_it(capsys, kind, row):
    list_command(kind)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(row) for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_an_unknown_kind_is_an_error_that_names_all():
    with pytest.raises(SettingsError, match=f"Did you mean 'scorers'.*{sorted(KINDS)[0]}"):
        list_command("scorer")


def test_the_command_prints_it(needlemap):
    assert "cdme-8k" in needlemap("list", "presets").stdout


def test_runs_in_a_folder_and_below_have_a_row_each_with_score_cells_and_state(needlemap):
    grid = ("--lengths", "1k,2k", "--depths", "0,50,100", "--quiet")
    needlemap("run", "bm25", *grid, "-o", "runs/whole")
    needlemap("run", "bm25", *grid, "--limit-tokens", "4000", "-o", "runs/deeper/part", code=3)
    needlemap(
        "run", "suite:smoke", "--lengths", "1k", "--depths", "0", "--quiet", "-o", "runs/suite"
    )
    rows = needlemap("list", "runs").stdout.splitlines()
    assert rows[0].split() == ["run", "model", "task", "score", "cells", "state"]
    part, suite, whole = rows[1:]
    assert part.split()[:3] == ["runs/deeper/part", "baseline/bm25", "single"]
    assert part.endswith("6      7 trials missing, stopped by a limit")
    assert suite.split()[:3] == ["runs/suite", "baseline/bm25", "suite:smoke"]
    assert whole.split()[3:] == ["100.0", *whole.split()[4:6], "6", "complete"]
    assert needlemap("list", "runs", "runs/deeper").stdout.splitlines()[1].split() == part.split()


def test_a_run_that_goes_on_and_one_that_cannot_be_read_say_so(needlemap, tmp_path):
    needlemap("run", "bm25", "--lengths", "1k", "--depths", "0", "--quiet", "-o", "going")
    needlemap("run", "bm25", "--lengths", "1k", "--depths", "0", "--quiet", "-o", "torn")
    (tmp_path / "torn" / "run.json").write_text("{")
    with closing(Writer(RunFolder(tmp_path / "going"))):
        rows = needlemap("list", "runs", ".").stdout.splitlines()
    assert rows[1].endswith("running")
    assert "cannot be read: 'torn/run.json' is not a run's" in rows[2]


@pytest.mark.parametrize(
    ("kind", "name", "first", "last"),
    [
        ("tasks", "multi", "Needles spread", "reads  --question --answer --keywords --draw"),
        (
            "scorers",
            "judge",
            "A model that judges",
            "--scorer-options  model=openai/gpt-4 attempts=3",
        ),
        ("models", "openai", "The back end of `openai/NAME`.", "reads            --base-url"),
        ("haystacks", "generated", "", ""),
        ("probes", "same", "The same prompt twice", "excludes  answers that change"),
    ],
)
def test_one_extension_is_described_by_its_docstring_and_what_it_takes(
    needlemap, kind, name, first, last
):
    rows = needlemap("list", kind, name).stdout.splitlines()
    assert rows[0].startswith(first)
    assert rows[-1].startswith(last)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs",), "Type: needlemap list runs FOLDER"),
        (("runs", "."), "No run in '.' or below."),
        (("tasks", "mutli"), "Unknown task 'mutli'. Did you mean 'multi'?"),
        (("presets", "x"), "'needlemap list presets' takes no name."),
    ],
)
def test_what_cannot_be_listed_is_an_error_that_says_what_to_type(needlemap, words, said):
    assert said in needlemap("list", *words, code=2).stderr
