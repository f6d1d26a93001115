"""How optional packages are installed: one line that works wherever needlemap came from."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from needlemap import extras

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_line_names_the_packages_that_the_project_states(extra):
    python, *words = shlex.split(extras.install_line(extra))
    assert [python, *words[:3]] == ["python3", "-m", "pip", "install"]
    assert {*map(Requirement, words[3:])} == {*map(Requirement, EXTRAS[extra])}


def test_without_an_installation_the_source_is_installed_with_the_extra(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda _name: None)
    assert extras.install_line("hf") == "python3 -m pip install '.[hf]'"


def test_no_message_installs_needlemap_by_its_name_from_an_index():
    """No index has it; a stranger could take the name."""
    for path in SOURCES:
        found = re.findall(r"pip install[^\n]*needlemap\b", path.read_text("utf-8"))
        assert found == [], path.name


def test_messages_name_an_extra_that_there_is():
    named = {
        extra
        for path in SOURCES
        for extra in re.findall(r"install_line\([\"']([a-z-]+)", path.read_text("utf-8"))
    }
    assert named <= set(EXTRAS)
    assert len(named) > 8
