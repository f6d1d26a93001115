"""`needlemap help`: the documentation, on the terminal and in an installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from needlemap.commands import pages
from needlemap.errors import SettingsError

ROOT = Path(__file__).parents[1]


def helped(*words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from needlemap.cli import main; sys.argv[1:] = sys.argv[2:]; main()"
    line = [sys.executable, "-c", code, "-", "help", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_a_topic_prints_its_page():
    ended = helped("verdicts")
    assert ended.returncode == 0
    assert ended.stdout.startswith("# Verdicts and exit codes\n")
    assert "| SUSPECT | 5 |" in ended.stdout


def test_a_commands_page_names_its_flags():
    assert helped("run").stdout.endswith("\nAll flags: needlemap run --help-all\n")


def test_a_command_without_a_page_shows_its_flags():
    assert helped("score").stdout.startswith("Usage: needlemap score [OPTIONS]")


def test_without_a_topic_all_are_listed_by_their_titles():
    ended = helped()
    assert ended.returncode == 0
    assert re.search(r"^verdicts +Verdicts and exit codes$", ended.stdout, re.MULTILINE)
    assert len(ended.stdout.splitlines()) > 30


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_may_stop_before_the_end(unbuffered):
    """`needlemap help tasks | head -1` ended in "Broken pipe"."""
    code = "import sys; from needlemap.cli import main; sys.argv[1:] = ['help', 'tasks']; main()"
    reader, output = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        stdout=output,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(output)
    assert ended.stderr == b""


def test_a_full_disk_is_told_in_words():
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    code = "import sys; from needlemap.cli import main; sys.argv[1:] = ['help', 'tasks']; main()"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.stderr.decode().startswith("needlemap: ")
    assert ended.stderr.count(b"\n") == 1
    assert ended.returncode == 2


def test_flags_of_all_commands_may_stand_before_it():
    code = "import sys; from needlemap.cli import main; sys.argv[1:] = sys.argv[2:]; main()"
    line = [sys.executable, "-c", code, "-", "--debug", "help", "verdicts"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("# Verdicts")


def test_an_unknown_topic_names_the_nearest():
    ended = helped("verdict")
    assert ended.returncode == 2
    assert "Unknown topic 'verdict'. Did you mean 'verdicts'?" in ended.stderr


def test_no_two_pages_have_one_name():
    names = [path.stem for path in (ROOT / "docs").glob("**/*.md") if path.stem != pages.INDEX]
    assert len(names) == len(set(names))


def test_every_page_that_a_message_names_is_there():
    """An installed package had no page, and its messages named files beside the source."""
    paths = [path for kind in ("py", "yaml") for path in (ROOT / "src").glob(f"**/*.{kind}")]
    text = "".join(path.read_text("utf-8") for path in paths)
    named = set(re.findall(r"needlemap help ([a-z-]+)", text))
    assert {"run", "models", "from-opencompass"} <= named
    known = {*pages.all_pages(), "score"}
    assert named <= known, named - known


def test_no_preset_names_a_file_that_an_installed_package_lacks():
    presets = (ROOT / "src").glob("**/*.yaml")
    named = [path.name for path in presets if re.search(r"docs/|\.md\b", path.read_text("utf-8"))]
    assert not named


def test_a_wheel_has_the_pages_without_their_pictures():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    wheel = built["targets"]["wheel"]
    assert wheel["sources"]["docs"] == f"needlemap/{pages.INSTALLED.name}"
    assert "docs" in wheel["only-include"]
    assert wheel["exclude"] == ["docs/images"]


def test_a_page_of_a_wing_is_shown_without_the_line_that_names_the_wing():
    shown = helped("storm").stdout
    assert shown.startswith("# storm\n")
    assert "part:" not in shown


def test_a_page_names_a_wing_that_there_is():
    texts = [path.read_text("utf-8") for path in (ROOT / "docs").glob("**/*.md")]
    named = {part for text in texts for part in re.findall(r"<!-- part: (.*) -->", text)}
    assert named == {"servers", "suites", "interop", "cluster", "training"}


def test_a_package_without_pages_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "INSTALLED", tmp_path)
    with pytest.raises(SettingsError, match="is not there"):
        pages.all_pages()
