"""Tab in a shell offers what can stand there: the names of what is installed, choices, run
folders."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def offered(needlemap):
    """What bash is told for words whose last is to be completed."""

    def complete(*words: str) -> list[str]:
        typed = " ".join(("needlemap", *words))
        needlemap.environment |= {
            "_NEEDLEMAP_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(words)),
        }
        return needlemap().stdout.split()

    return complete


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("re",), {"report", "replay"}),
        (("run", "cdme-8"), {"cdme-8k"}),
        (("plan", "suite:"), {"suite:ruler-niah", "suite:smoke"}),
        (("run", "--model", "base"), {"baseline/bm25", "baseline/random"}),
        (("run", "--model", "o"), {"openai/"}),
        (("run", "--model", "openai/gpt-4o-m"), {"openai/gpt-4o-mini"}),
        (("run", "--task", "multik"), {"multikey"}),
        (("run", "--scorer", "leven"), {"levenshtein"}),
        (("run", "--mode", "b"), {"bins"}),
        (("run", "--tokenizer", "qw"), {"qwen3"}),
        (("score", "r", "--scorer", "exa"), {"exact"}),
        (("report", "r", "--palette", "civ"), {"cividis"}),
        (("compare", "a", "b", "--on-undecided", "p"), {"pass"}),
        (("list", "ru"), {"runs"}),
    ],
)
def test_names_that_begin_so_are_offered(offered, words, some):
    found = set(offered(*words))
    assert some <= found
    assert all(name.startswith(words[-1]) for name in found)


@pytest.mark.parametrize("before", [("report",), ("compare", "a"), ("replay",), ("score",)])
def test_run_folders_are_offered_and_other_folders_with_a_slash(offered, tmp_path, before):
    for name in ("apple", "more/apricot", "more/plain"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("apple", "more/apricot"):
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "file").write_text("")
    assert offered(*before, "a") == ["apple"]
    assert offered(*before, "m") == ["more/"]
    assert offered(*before, "more/") == ["more/apricot", "more/plain/"]
    assert offered(*before, "nowhere/") == []


def test_the_script_of_the_shell_that_asks_is_printed():
    program = shlex.quote(str(Path(sys.executable).with_name("needlemap")))
    asked = [
        "bash",
        "-c",
        f"{program} --show-completion; exit",
    ]  # the shell is found among who asked
    shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert "_NEEDLEMAP_COMPLETE" in shown
    subprocess.run(["bash", "-n"], input=shown, text=True, check=True)
