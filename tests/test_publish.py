"""tools/publish.py: what a package index needs, and a checkout does not have."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ADDRESS = "https://example.org/somebody/needlemap"
RELATIVE = re.compile(r"\]\((?!https?:|#)")

# The archive of a release has an address, and its tests run too.
pytestmark = pytest.mark.skipif(
    "urls" in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"],
    reason="this archive is published",
)


@pytest.fixture
def publish() -> ModuleType:
    """tools/publish.py."""
    spec = importlib.util.spec_from_file_location("publish", ROOT / "tools" / "publish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def published(publish: ModuleType) -> dict[str, str]:
    """The files of this checkout, published as v9.8.7rc1."""
    files = {name: (ROOT / name).read_text("utf-8") for name in publish.FILES}
    found: dict[str, str] = publish.published(files, ADDRESS, "v9.8.7rc1")
    return found


def test_links_and_pictures_of_the_readme_work_on_an_index(published: dict[str, str]) -> None:
    readme = published["README.md"]
    assert RELATIVE.search((ROOT / "README.md").read_text("utf-8"))
    assert not RELATIVE.search(readme)
    assert f"]({ADDRESS}/raw/v9.8.7rc1/docs/images/first-results.png)" in readme
    assert f"[Map a model]({ADDRESS}/blob/v9.8.7rc1/docs/map.md)" in readme


def test_the_tag_sets_every_version(published: dict[str, str]) -> None:
    assert tomllib.loads(published["pyproject.toml"])["project"]["version"] == "9.8.7rc1"
    assert yaml.safe_load(published["CITATION.cff"])["version"] == "9.8.7rc1"
    assert '__version__ = "9.8.7rc1"' in published["src/needlemap/version.py"]


def test_the_project_has_urls(published: dict[str, str]) -> None:
    urls = tomllib.loads(published["pyproject.toml"])["project"]["urls"]
    assert urls["Source"] == ADDRESS
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(ADDRESS) for url in urls.values())


def test_a_tag_that_is_not_a_versions_is_refused(publish: ModuleType) -> None:
    with pytest.raises(ValueError, match="The tag 'latest' is not a version's"):
        publish.published({}, ADDRESS, "latest")


@pytest.mark.parametrize(("tag", "code"), [("v9.8.7", 0), ("main", 1)])
def test_a_release_types_it_before_it_builds(
    publish: ModuleType, tmp_path: Path, tag: str, code: int
) -> None:
    """In a copy of the checkout, with the variables of a workflow."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["build"]["steps"]]
    place = next(number for number, line in enumerate(steps) if "tools/publish.py" in line)
    assert any("python -m build" in line for line in steps[place + 1 :])
    for name in (*publish.FILES, "tools/publish.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    there = {"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "somebody/needlemap"}
    environment = {**os.environ, **there, "GITHUB_REF_NAME": tag}
    ended = subprocess.run(["bash", "-c", steps[place]], cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == code
    version = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert (version == "9.8.7") is (code == 0)
