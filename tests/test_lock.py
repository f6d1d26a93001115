"""requirements.lock: versions and hashes of all that a checkout installs but torch."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
APART = {
    "hf",
    "lmdeploy",
    "inspect",
    "lm-eval",
}  # torch is each machine's own; harnesses bring 80 others
LOCKED = [
    Requirement(row.split(" \\")[0]) for row in re.findall(r"^[a-z0-9].*$", LOCK, re.MULTILINE)
]
WANTED = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(row for name, rows in EXTRAS.items() if name not in APART for row in rows),
]


@pytest.mark.parametrize("wanted", sorted(set(WANTED)))
def test_it_holds_what_the_project_requires(wanted):
    requirement = Requirement(wanted)
    name = canonicalize_name(requirement.name)
    versions = [
        str(next(iter(row.specifier)).version)
        for row in LOCKED
        if canonicalize_name(row.name) == name
    ]
    assert any(requirement.specifier.contains(version, prereleases=True) for version in versions), (
        versions
    )


def test_every_line_is_a_version_with_a_hash_and_no_registry_is_named():
    rows = LOCK.replace(" \\\n", " ").splitlines()
    assert len(rows) == len(LOCKED) > 50
    for row in rows:
        assert re.match(r"[a-z0-9._-]+==\S+ (; .+? )?\s*--hash=sha256:[0-9a-f]{64}", row), row
    assert "://" not in LOCK
    assert "index" not in LOCK
    assert not {str(row.name) for row in LOCKED} & {"torch", "needlemap"}


def test_the_command_that_makes_it_names_every_extra_but_those_with_torch():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    command = next(line for line in page.splitlines() if "uv pip compile" in line)
    assert set(re.findall(r"--extra (\w+)", command)) == set(EXTRAS) - APART
