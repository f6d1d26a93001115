"""README and docs say what is true: commands run, outputs are what is printed, links lead
somewhere, and the tables made from the code are those of the code.

A fenced block is read by its language. `sh`: run in a folder of the page's own, line by line, with
a test server in the place of every endpoint. `text` right behind it: what its last command prints;
`...` stands for anything. `python`, `yaml` and `toml` with a first line `# NAME.EXT`: a file of
that name. Other `python`: run at the end, as one program. `bash`: shown only, as it needs a GPU, a
download, a data set or much time. The README's `bash` blocks install; `.ci/run` types them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from needlemap import __version__
from needlemap.extras import install_line

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
DOCS = [page for page in PAGES if ROOT / "docs" in page.parents and page.name != "README.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text("utf-8")
NEEDS = {"engines.md": "transformers"}  # what a page's commands import
ELSEWHERE = (
    "servers.md",
    "pytest.md",
    "check.md",
)  # typed in tests/wings/servers/real_servers and tests/wings/servers/commands/test_check.py
HEAVY = (
    "ab.md",
    "cluster.md",
    "from-needlehaystack.md",
    "from-opencompass.md",
    "from-ruler.md",
    "gate.md",
    "import.md",
    "map.md",
    "compare.md",
    "own-haystack.md",
    "own-model.md",
    "own-scorer.md",
    "models.md",
    "own-task.md",
    "python.md",
    "run.md",
    "scaling.md",
    "scorers.md",
    "suites.md",
    "tasks.md",
    "training.md",
)  # seconds each
SHOWN = re.compile(r"^```(sh|python)$", re.MULTILINE)
RUN = [
    page
    for page in PAGES
    if page.name not in ELSEWHERE and SHOWN.search(page.read_text("utf-8"))
    if page != ROOT / "README.md"  # typed below
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
NAMED = re.compile(r"# ([\w.-]+\.(?:py|yaml|toml))\n")
SHELL = re.compile(r"[|<>$;&`\\*~{]")  # what a shell makes something of


@dataclass(frozen=True)
class Block:
    """A fenced block. expected: the `text` block right behind it, if there is one."""

    kind: str
    text: str
    expected: str | None

    @property
    def file(self) -> str | None:
        """The file that it shows."""
        found = NAMED.match(self.text)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = list(FENCE.finditer(text))
    made = []
    for place, match in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        follows = after and after[1] == "text" and not text[match.end() : after.start()].strip()
        made.append(Block(match[1], match[2], after[2] if after and follows else None))
    return made


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.long if page.name in HEAVY else ())
        for page in RUN
    ],
)
def test_what_a_page_shows_works(page: Path, tmp_path: Path, typed: Any, wire: Any) -> None:
    if (needed := NEEDS.get(page.name)) and not importlib.util.find_spec(needed):
        pytest.skip(f"needs {needed}: pip install '.[hf]'")
    environment, shown = endpoints(wire), blocks(page)
    plain = not any(
        block.file == "pyproject.toml" for block in shown
    )  # a plug-in needs a process of its own
    for block in shown:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            install(tmp_path, block)
        elif block.kind == "sh":
            text = block.text.replace("http://127.0.0.1:8000", wire.root)
            printed = ""
            for line in [line for line in text.splitlines() if line and not line.startswith("#")]:
                typed_line, _, code = line.partition(" || test $? -eq ")
                if plain and line.startswith("needlemap ") and not SHELL.search(typed_line):
                    words = shlex.split(typed_line)[1:]
                    printed = typed(*words, environment=environment, code=int(code or 0)).stdout
                else:
                    printed = shell(line, tmp_path, environment)
            assert block.expected is None or matches(printed, block.expected), printed
    assert python(page, tmp_path, environment) == ""


@pytest.mark.long
@pytest.mark.timeout(900)  # a check, a storm and an ab among them, on a busy machine
def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path, typed: Any, wire: Any):
    for folder, file, text in (
        ("PaulGrahamEssays", "a.txt", "In that year somebody wrote an essay about work."),
        ("CDME", "zh_finance.jsonl", '{"text": "A long report on prices, ships and harvests."}'),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(f"{text}\n" * 400)
    lines = [
        line
        for block in blocks(ROOT / "README.md")
        if block.kind == "sh"
        for line in block.text.splitlines()
    ]
    assert len(lines) >= 12
    for line in lines:
        served = re.sub(r"http://127.0.0.1:800[01]", wire.root, line)
        command, *words = shlex.split(served)
        assert command == "needlemap"
        typed(*words, environment=endpoints(wire))


def test_the_readme_installs_by_commands_that_ci_types() -> None:
    typed_there = (ROOT / ".ci" / "run").read_text("utf-8")
    first, tests = [block.text for block in blocks(ROOT / "README.md") if block.kind == "bash"]
    assert first.splitlines()[1:] == ["python3 -m pip install .", "needlemap run"]
    assert f"{shlex.quote('/^python3 -m venv/,/^needlemap run$/p')} README.md" in typed_there
    assert "pytest" in tests


def test_the_citation_and_the_wheel_that_ci_builds_have_this_version() -> None:
    """`.ci/run` builds the wheel of an archive without .git, and types it in a bare environment."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == __version__
    typed_there = (ROOT / ".ci" / "run").read_text("utf-8")
    assert PROJECT["version"] == __version__
    assert '"$bare/needlemap" --version' in typed_there


def test_the_readme_is_a_page_of_a_hundred_lines() -> None:
    assert len(README.splitlines()) <= 100


def test_the_plan_that_the_readme_shows_is_what_plan_prints(typed: Any) -> None:
    (command,) = re.findall(r"^needlemap (plan --model openai/gpt-4o .*)$", README, re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(openai/gpt-4o · .*?)^```$", README, re.MULTILINE | re.DOTALL)
    printed = typed(*command.split()).stdout
    assert matches("\n".join(ours(printed)), "\n".join(ours(shown)))


def ours(plan: str) -> list[str]:
    """A plan without dollars, which change with the price list."""
    return [
        re.sub(r"( +\d+\.\d\d){2}$|genai-prices .*", "", line) for line in plan.strip().splitlines()
    ]


def endpoints(wire: Any) -> dict[str, str]:
    """An environment in which every endpoint is the test server, and no key is real."""
    folder = str(Path(sys.executable).parent)
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.endswith(("_TOKEN", "COLUMNS"))
        },
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "OPENAI_BASE_URL": wire.base_url,
        "ANTHROPIC_BASE_URL": wire.root,
        "OPENAI_API_KEY": "no-key-of-anybody",
        "ANTHROPIC_API_KEY": "no-key-of-anybody",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": ".",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def shell(line: str, folder: Path, environment: dict[str, str]) -> str:
    """What a line prints."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def python(page: Path, folder: Path, environment: dict[str, str]) -> str:
    """Runs a page's Python blocks as one program; what it complains of."""
    program = "\n".join(
        block.text for block in blocks(page) if block.kind == "python" and not block.file
    )
    if not program:
        return ""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stderr if done.returncode else ""


def install(folder: Path, block: Block) -> None:
    """What `pip install -e .` would make of a pyproject.toml: the package's entry points."""
    if block.file != "pyproject.toml":
        return
    project = tomllib.loads(block.text)["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def matches(printed: str, expected: str) -> bool:
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in links(page) if not leads_somewhere(page, target)]
    assert not missing


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures."""
    text = FENCE.sub("", page.read_text("utf-8"))
    return [link or picture for link, picture in LINK.findall(text)]


def linked(page: Path, target: str) -> Path:
    """Return the file that a local link of a page leads to."""
    file = target.partition("#")[0]
    return (page.parent / file).resolve() if file else page


def leads_somewhere(page: Path, target: str) -> bool:
    if re.match(r"https?:", target):
        return True
    found, heading = linked(page, target), target.partition("#")[2]
    return found.exists() and (not heading or heading in headings(found))


def headings(page: Path) -> list[str]:
    """The anchors that GitHub gives a page's headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines]


def tables() -> ModuleType:
    """tools/doc_tables.py, which makes the tables."""
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "tools" / "doc_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "settings",
        "presets",
        "suites",
        "options",
        "providers",
        "thinking marks",
        "record fields",
        "older ways",
        "older names",
        "cell columns",
        "trial columns",
    ],
)
def test_tables_are_those_of_the_code(name: str) -> None:
    made = tables()
    file, make = made.TABLES[name]
    page = (ROOT / "docs" / file).read_text("utf-8")
    assert made.renewed(page, name, make()) == page, "Run: python tools/doc_tables.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_needlemap_is_installed_from_a_checkout_in_the_same_words(page: Path) -> None:
    for line in page.read_text("utf-8").splitlines():
        for what in re.findall(r"pip install (?:-[eU] )?'?((?:needlemap|\.)[^'\s`;]*)", line):
            assert what in (".", ".[test]", ".[docs]"), line
            assert "python3 -m pip install" in line, line


def test_pages_install_optional_packages_by_the_lines_that_messages_print() -> None:
    lines = {install_line(extra) for extra in EXTRAS}
    named = {each for line in lines for each in line.split(" install ")[1].split()}
    for page in PAGES:
        for typed_line in re.findall(r"pip install ('[a-z][^`\n]*)", page.read_text("utf-8")):
            packages = [each for each in typed_line.split() if each.startswith("'")]
            assert set(packages) <= named, (page.name, typed_line)
            assert any(line.endswith(" ".join(packages)) for line in lines), typed_line


def test_the_index_and_the_site_name_the_same_pages() -> None:
    doors = re.split(r"^## ", (ROOT / "docs" / "README.md").read_text("utf-8"), flags=re.MULTILINE)
    listed = [
        (door.splitlines()[0], re.findall(r"\]\((\w[\w/-]*\.md)\)", door)) for door in doors[1:]
    ]
    assert [door for door, _ in listed] == [
        "Guides",
        "Commands",
        "What is asked",
        "Models and tools",
        "Your own parts",
        "Reference",
    ]
    site = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert site[0] == {"needlemap": "README.md"}
    assert [next(iter(door.items())) for door in site[1:]] == listed


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_some_page_leads_to_each_page_of_the_docs(page: Path) -> None:
    others = [other for other in PAGES if other != page]
    assert any(page == linked(other, target) for other in others for target in links(other))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_leads_nowhere_that_the_site_lacks(page: Path) -> None:
    """Except the tour of the source and the gallery, which are read beside the source."""
    local = [target for target in links(page) if not re.match(r"https?:", target)]
    outside = [target for target in local if ROOT / "docs" not in linked(page, target).parents]
    assert not outside or page.name in ("reading.md", "gallery.md")


def test_pages_that_the_source_names_exist() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    named = {
        name
        for source in sources
        for name in re.findall(r"docs/[\w/-]+\.md", source.read_text("utf-8"))
    }
    assert "docs/internals/reliability.md" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_tells_how_to_test() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    found = [
        line for line in lines if line.startswith("python3 -m pip install") and "pytest" in line
    ]
    assert len(found) == 1


def test_the_changelog_knows_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_page_knows_the_machine_it_was_written_on(page: Path) -> None:
    assert not re.search(r"/(home|root|work|tmp|Users)/", page.read_text("utf-8"))


def test_the_tour_of_the_source_is_at_most_fifteen_files_that_an_afternoon_is_enough_for():
    page, source = ROOT / "docs" / "internals" / "reading.md", ROOT / "src" / "needlemap"
    listed = re.findall(
        r"^\d+\. \[`?([\w/]+\.py)`?\]\(([^)]+)\)", page.read_text("utf-8"), re.MULTILINE
    )
    files = [(page.parent / path).resolve() for _, path in listed]
    assert [file.relative_to(source).as_posix() for file in files] == [name for name, _ in listed]
    assert 9 <= len(files) <= 15
    # Plain code takes more lines than dense code, and less time.
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 3200
