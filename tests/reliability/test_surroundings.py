"""Streams, homes and scratch folders that are not as usual: nothing ends in a traceback, and what
could work does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from needlemap.cluster.slurm import Slurm
from needlemap.errors import SettingsError
from needlemap.reports.table import escape_formula, escape_markdown

NEEDLEMAP = str(Path(sys.executable).with_name("needlemap"))
RUN = ("run", "--task", "passkey", "--model", "demo/retriever", "--lengths", "400", "-o", "r")
HOMELESS = "import pwd, sys\nfrom needlemap.cli import main\ndef gone(*_): raise KeyError('uid')\n"


def test_ascii_output_shows_a_question_mark_and_json_keeps_all(needlemap):
    """`LC_ALL=C PYTHONUTF8=0`: a traceback for the middle dot of plan's first line."""
    needlemap.environment |= {"PYTHONIOENCODING": "ascii"}
    assert "demo/retriever ? passkey" in needlemap.process("plan", *RUN[1:-2]).stdout
    needlemap.process(*RUN, "--label", "模型", "--depths", "0,50")
    assert "??" in needlemap.process("report", "r").stdout
    shown = needlemap.process("report", "r", "--json").stdout
    assert shown.isascii()
    assert "模型" in json.dumps(json.loads(shown), ensure_ascii=False)


def test_latin_1_output_shows_what_it_has_and_a_question_mark_for_the_rest(needlemap):
    needlemap.environment |= {"PYTHONIOENCODING": "latin-1"}
    flags = "--model", "baseline/bm25", "--lengths", "400", "--depths", "50"
    run = "run", *flags, "--label", "modèle 模型", "-o", "r"
    for words in (run, ("plan", *flags), ("report", "r")):
        command = [NEEDLEMAP, *words]
        ended = subprocess.run(
            command,
            cwd=needlemap.folder,
            env=needlemap.environment,
            capture_output=True,
            check=False,
        )
        said = (ended.stdout + ended.stderr).decode("latin-1")
        assert ended.returncode == 0, said
        assert "Traceback" not in said
    assert "modèle ??" in said


@pytest.mark.parametrize(
    "closed",
    [
        "<&- >&- 2>&-",
        ">&-",
        "2>&-",
        ">&- 2>&-",
    ],
)
def test_a_closed_stream_stops_nothing(needlemap, closed):
    """`'NoneType' object has no attribute 'isatty'`; and files got the streams' numbers."""
    line = f'exec "$@" {closed}'
    command = ["sh", "-c", line, "sh", NEEDLEMAP, *RUN, "--depths", "50"]
    ended = subprocess.run(
        command,
        cwd=needlemap.folder,
        env=needlemap.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0
    assert len(needlemap.records()) == 1


def test_without_a_home_and_an_entry_of_the_user_a_run_goes_on(needlemap):
    """`docker run --user 12345`: `RuntimeError: Could not determine home directory.`"""
    known = {**needlemap.environment}
    for name in ("HOME", "XDG_STATE_HOME"):
        known.pop(name, None)
    words = ["needlemap", *RUN, "--depths", "50"]
    code = f"{HOMELESS}pwd.getpwuid = gone\nsys.argv = {words!r}\nmain()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=needlemap.folder,
        env=known,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(needlemap.records()) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dangling", "a file"])
def test_workers_need_no_scratch_folder_that_all_users_share(needlemap, tmp_path, kind):
    """/tmp/dask-scratch-space as another user's, or a link, stopped all runs with --workers."""
    for name in ("dask-scratch-space", f"dask-scratch-space-{os.getuid()}"):
        shared = tmp_path / name
        if kind == "dangling":
            shared.symlink_to(tmp_path / "nowhere")
        else:
            shared.touch()
    needlemap.environment |= {"TMPDIR": str(tmp_path)}
    needlemap.process(*RUN, "--depths", "50", "--workers", "1")
    assert needlemap.records()[0]["score"] is not None
    assert not (tmp_path / "nowhere").exists()
    assert sorted(file.name for file in tmp_path.glob("needlemap-*")) == []


def test_a_line_break_in_a_path_reaches_no_batch_script(tmp_path, monkeypatch):
    """A line of the folder's name became a line of the script, which bash ran."""
    odd = tmp_path / "a\ntouch hacked"
    odd.mkdir()
    with pytest.raises(SettingsError, match="option --output would hold a line break"):
        Slurm(odd).script(1, odd / "connect.json")
    monkeypatch.chdir(odd)
    with pytest.raises(SettingsError, match="option --chdir would hold a line break"):
        Slurm(tmp_path).script(1, tmp_path / "connect.json")


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("plain-1.2", "plain-1.2"),
        ("a b", "a b"),
        ("x --wrap=id", "x --wrap=id"),
        ("50%j", "50%%j"),
        ("k=v", "k=v"),
        ("it's #1", "it's #1"),
        ("$HOME `id`", "$HOME `id`"),
    ],
)
def test_a_folders_name_is_one_value_of_a_batch_script(name, held, tmp_path, monkeypatch):
    """sbatch 22.05 took a blank for the end of a value, what is behind '#' for a comment, and %j
    for the job's number."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    lines = Slurm(folder).script(1, folder / "connect.json").splitlines()
    said = dict(line.removeprefix("#SBATCH --").split("=", 1) for line in lines[1:-1])
    marks = '"' if name != "plain-1.2" and name not in ("50%j", "k=v") else ""
    assert said["chdir"] == f"{marks}{folder}{marks}"
    assert said["output"] == f"{marks}{tmp_path}/{held}/%A_%a.log{marks}"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\tb", "a\x1bb", "a\rb", "a\u2028b", "a\udcffb"])
def test_a_folder_that_no_batch_script_can_name_is_refused(name, tmp_path):
    with pytest.raises(SettingsError, match="sbatch's option --output"):
        Slurm(tmp_path / name).script(1, tmp_path / "connect.json")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("comment=a b", '--comment="a b"'),
        ("--gpus_per_task=1", "--gpus-per-task=1"),
        ("exclusive", "--exclusive"),
        ("mail-user=a@b.c", "--mail-user=a@b.c"),
    ],
)
def test_a_further_option_is_one_option(argument, said, tmp_path):
    script = Slurm(tmp_path, arguments=[argument]).script(1, tmp_path / "connect.json")
    assert f"#SBATCH {said}" in script.splitlines()


@pytest.mark.parametrize("argument", ["=x", "-", "a b=1", "x --wrap=id", "a\nb=1", 'comment="a"'])
def test_no_further_option_holds_another(argument, tmp_path):
    with pytest.raises(SettingsError, match=r"--slurm-arg takes KEY=VALUE|cannot hold"):
        Slurm(tmp_path, arguments=[argument]).script(1, tmp_path / "connect.json")


def test_a_password_in_a_schedulers_address_is_not_shown(needlemap):
    ended = needlemap.process(*RUN, "--cluster", "tls://me:hunter2@127.0.0.1:9", code=2)
    assert "--cluster tls://127.0.0.1:9" in ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout
    assert "Warning" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("42;=cmd|' /C calc'!A0", "42;'=cmd|' /C calc'!A0"),
        ("a\t+1+cmd", "a\t'+1+cmd"),
        ('a;"@SUM(A1)', "a;\"'@SUM(A1)"),
        ("=1;=2", "'=1;'=2"),
        ("x\n-cmd", "x\n'-cmd"),
        ("3; -5; +0.5", "3; -5; +0.5"),
        ("a;b-c; d=e", "a;b-c; d=e"),
        ("-5", "-5"),
        (" =1", "' =1"),
        ("\xa0=1", "'\xa0=1"),
        ("\u3000\u200b @SUM(A1)", "'\u3000\u200b @SUM(A1)"),
        ("42;\xa0=1", "42;\xa0'=1"),
        ("42\t\u2003+1+cmd", "42\t\u2003'+1+cmd"),
        ("a;\ufeff-cmd", "a;\ufeff'-cmd"),
    ],
)
def test_no_cell_is_a_formula_where_semicolons_or_tabs_part_lists(text, cell):
    """German and French spreadsheets cut the line at ';': what stood behind it was run."""
    assert escape_formula(text) == cell


@pytest.mark.parametrize("text", ["www.evil.example", "WWW.evil.example", "see a@b.c", "x@y@z.com"])
def test_markdown_makes_no_link_of_an_answers_address(text):
    shown = escape_markdown(text)
    assert "www." not in shown.replace("\\", "").lower()
    assert all(
        before in "\u2060" for before in shown.replace("\\", "").split("@")[0][-1:] if "@" in shown
    )
    assert shown.replace("\u2060", "").replace("\\", "") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@octocat", "@\u2060octocat"),
        ("by @octocat.", "by @\u2060octocat."),
        ("Fixes #1", "Fixes \\#\u20601"),
        ("closes GH-1 and o/r#2", "closes GH\u2060\\-1 and o/r\\#\u20602"),
        ("of !3", "of \\!\u20603"),
    ],
)
def test_markdown_mentions_nobody_and_closes_no_issue(text, shown):
    """A tracker looks for these in the text that is shown, where no escape is left."""
    assert escape_markdown(text) == shown


def test_the_key_of_workers_is_gone_after_a_kill(needlemap):
    """RUN/replicas/connect-PID.json stayed, with the private key in it."""
    slow = "import time\ndef slow(messages):\n    time.sleep(0.1)\n    return '?'\n"
    (needlemap.folder / "slow.py").write_text(slow)
    asked = ("--model", "python/slow:slow", "--tokenizer", "cl100k_base", "--depths", "0:100:20")
    lengths = ("--lengths", "400:900:20", "--workers", "1", "--no-canary")
    started = needlemap.start("run", "--task", "passkey", *asked, *lengths, "-o", "r")
    until = time.monotonic() + 90
    while not needlemap.records():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert list((needlemap.folder / "r" / "replicas").glob("connect-*.json"))
    started.kill()
    started.communicate()
    while list((needlemap.folder / "r" / "replicas").glob("connect-*.json")):
        assert time.monotonic() < until + 60
        time.sleep(0.1)


@pytest.mark.parametrize(
    "typed_too",
    [
        ("run", "--label", "a\udcff"),
        ("run", "--needle", "The sky is \udcff.", "--question", "The sky?"),
        ("run", "--haystack", "folder", "--haystack-path", "h\udcff"),
        ("run", "--task-options", "x\udcff=1"),
        ("run", "s.yaml"),
        (
            "check",
            "--base-url",
            "http://127.0.0.1:9/\udcff",
            "--model",
            "openai/m",
            "--max-length",
            "2k",
        ),
    ],
    ids=lambda words: " ".join(words).encode("ascii", "replace").decode(),
)
def test_bytes_that_are_no_text_are_refused_in_words(needlemap, typed_too):
    """A word in the bytes of another locale, or half a character in a file, was a traceback."""
    (needlemap.folder / "s.yaml").write_text('label: "\\ud800"\nmodel: baseline/bm25\n')
    (needlemap.folder / "h\udcff").mkdir()
    (needlemap.folder / "h\udcff" / "t.txt").write_text("It is a sentence. " * 900)
    grid = ("--lengths", "500", "--depths", "50") if typed_too[0] == "run" else ()
    ended = needlemap.process(*typed_too, *grid, code=2)
    assert "no UTF-8" in ended.stderr or "is no base URL" in ended.stderr
