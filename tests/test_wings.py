"""The core does the main job without any wing; a wing adds one whole thing to it from outside."""

from __future__ import annotations

import ast
import json
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from needlemap.commands import pages

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "needlemap"
WINGS = ("cluster", "interop", "servers", "suites", "training")
DOORS = {"needlemap.callbacks": "training"}  # import paths that stay where they were
# What a wing imports of another, with the reason. Keep it empty if you can.
BETWEEN: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module")
def house() -> Any:
    tool = runpy.run_path(str(ROOT / "tools" / "house.py"))
    return tool["House"].read(tool["SOURCE"])


def wing_of(module: str) -> str:
    """Return the wing that a module belongs to; 'core' if none."""
    if module in DOORS:
        return DOORS[module]
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in WINGS else "core"


def named_modules(tree: ast.AST) -> set[str]:
    """Return the modules that a file names: imports, late and for types too, and strings that are
    a module's dotted name."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.replace(":", " ").split()
            found |= {word for word in words if word.startswith("needlemap.")}
    return found


def crossings(house: Any) -> set[tuple[str, str, str]]:
    """Return (module, its wing, the other wing) for each name of another wing in a module."""
    return {
        (source.module, wing_of(source.module), wing_of(name))
        for source in house.sources
        for name in named_modules(source.tree)
        if wing_of(name) not in ("core", wing_of(source.module))
    }


def test_the_core_names_no_wing(house: Any) -> None:
    """Not late, not for types, not by a string: a wing comes by its entry points."""
    assert {found for found in crossings(house) if found[1] == "core"} == set()


def test_a_wing_imports_another_only_for_a_reason_that_is_listed(house: Any) -> None:
    between = {found[1:] for found in crossings(house) if found[1] != "core"}
    assert between == set(BETWEEN)


@pytest.mark.parametrize(
    "code",
    [
        "from needlemap.servers import check",
        "def late():\n    import needlemap.cluster.pool",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from needlemap import callbacks",
        "import_module('needlemap.suites.trace')",
    ],
)
def test_a_core_that_knows_a_wing_would_be_seen(code: str) -> None:
    assert any(wing_of(name) != "core" for name in named_modules(ast.parse(code)))


def test_no_wing_is_loaded_for_the_report_of_a_plain_run(tmp_path: Path, bm25_run: Path) -> None:
    code = (
        "import sys; from needlemap.cli import main\n"
        f"sys.argv = ['needlemap', 'report', {str(bm25_run)!r}]\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    assert "needlemap.commands.report" in loaded
    assert [name for name in loaded if wing_of(name) != "core"] == []


@pytest.fixture(scope="module")
def bm25_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wings")
    words = "run bm25 --lengths 500 --depths 0,100 --quiet -o r"
    subprocess.run([sys.executable, "-m", "needlemap", *words.split()], check=True, cwd=folder)
    return folder / "r"


def without(wings: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Make a copy of the package as it would be installed without some wings; return the
    environment in which Python finds that copy first."""
    shutil.copytree(SOURCE, folder / "needlemap", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", folder / "needlemap" / pages.INSTALLED.name)
    doors = [module for module, owner in DOORS.items() if owner in wings]
    for wing in wings:
        shutil.rmtree(folder / "needlemap" / wing)
    for module in doors:
        (folder / f"{module.replace('.', '/')}.py").unlink()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {**project["entry-points"], "console_scripts": project["scripts"]}
    gone = (*(f"needlemap.{wing}" for wing in wings), *doors)
    lines = list[str]()
    for group, points in groups.items():
        kept = {name: value for name, value in points.items() if not value.startswith(gone)}
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in kept.items()), ""]
    about = folder / f"needlemap-{project['version']}.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("\n".join(lines))
    (about / "METADATA").write_text(distribution("needlemap").read_text("METADATA") or "")
    return {**os.environ, "PYTHONPATH": str(folder)}


# Quick tests of the core, which are run without each wing.
QUICK_TESTS = ("tests/plan", "tests/records/test_folder.py", "tests/test_tokens.py")
# Tests that also try what wings add: all other tests are of the core alone.
MIXED = [
    "asking/test_ahead",
    "asking/test_judge",
    "asking/test_passes",
    "asking/test_surroundings",
    "asking/test_time_limit",
    "asking/test_unreadable",
    "commands/test_compare",
    "commands/test_completion",
    "commands/test_first_contact",
    "commands/test_help",
    "commands/test_hostile_flags",
    "commands/test_list",
    "commands/test_models",
    "commands/test_report",
    "commands/test_results",
    "commands/test_score",
    "commands/test_suite",
    "haystacks/test_folder",
    "models/test_likelihood",
    "models/test_stops",
    "plan/test_places",
    "providers/test_addresses",
    "providers/test_logprobs",
    "records/test_run_file",
    "reports/test_depthless",
    "reports/test_hostile_numbers",
    "reports/test_pictures",
    "scorers/test_base",
    "scorers/test_extract",
    "tasks/test_perfect_answers",
    "tasks/test_settings",
    "test_additions",
    "test_api",
    "test_benchmarks",
    "test_cli",
    "test_coming_from_features",
    "test_families",
    "test_feeding",
    "test_grid",
    "test_identity",
    "test_pages",
    "test_placement",
    "test_plugins",
    "test_security",
    "test_settings",
    "test_transcripts",
    "test_trials",
    "test_untrusted",
    "test_unused_settings",
    "tokenizers/test_names",
]
# Whole walks, of minutes; the long proofs of these run with all wings.
WHOLE = ("wings", "browser", "reliability", "contract", "doors", "test_golden.py", "test_docs.py")


RUN = "run --lengths 500,700 --depths 0,50,100 --model baseline/bm25 --quiet -o"
FILES = ("map.png", "map.svg", "page.html", "cells.csv", "report.md")
LINES = (
    "--help",
    "help",
    "run --help-all",
    "report --help",
    "list presets",
    f"{RUN} r",
    f"{RUN} r --no-canary",  # resumes
    "report r",
    *(f"report r -o {name}" for name in FILES),
    f"{RUN} again",
    "compare r again",
    "plan --lengths 1k --model openai/gpt-4o",
    "replay r --length 500 --depth 50",
    "score r --scorer exact -o s",
)
# Type lines in one process, each of which ends with 0; print what each printed.
TYPE = """
import io, json, sys
from contextlib import redirect_stdout
from needlemap.cli import main

shown = []
for line in sys.argv[1:]:
    sys.argv = ["needlemap", *line.split()]
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(printed):
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, (line, ended.code)
    shown.append(printed.buffer.getvalue().decode())
print(json.dumps(shown))
"""


@pytest.mark.parametrize("wing", WINGS)
def test_the_main_job_is_done_without_a_wing(wing: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TYPE, *LINES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=without((wing,), tmp_path / "site"),
    )
    assert done.returncode == 0, done.stderr
    shown = dict(zip(LINES, json.loads(done.stdout), strict=True))
    commands = {"servers": ("check", "storm", "ab", "gauge"), "interop": ("import",)}.get(wing, ())
    assert not any(f"\n  {command} " in shown["--help"] for command in commands)
    topics = shown["help"]
    assert not any(f"\n{command} " in topics for command in commands)
    assert ("\nfrom-ruler " in topics) == (wing != "suites")
    assert ("--slurm" in shown["run --help-all"]) == (wing != "cluster")
    assert ("--by" in shown["report --help"]) == (wing != "training")
    assert ("ruler-vt" in shown["list presets"]) == (wing != "suites")
    assert "n=6" in shown["report r"]


def run_core_tests(tests: tuple[str, ...], environment: dict[str, str]) -> None:
    """Run tests of the core alone with the package that an environment finds."""
    left_out = [*(f"tests/{name}" for name in WHOLE), *(f"tests/{name}.py" for name in MIXED)]
    assert all((ROOT / name).exists() for name in left_out)
    # The pytest plug-in is an entry point of the servers' wing, and of the copy that is installed.
    plugins = ("-p", "no:cacheprovider", "-p", "no:needlemap")
    ignored = [f"--ignore={name}" for name in (*left_out, "tests/test_wings.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *ignored, *tests],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**environment, "PYTEST_ADDOPTS": "", "NEEDLEMAP_REQUIRE_REAL_PARTS": ""},
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("wing", WINGS)
def test_the_core_s_quick_tests_pass_without_a_wing(wing: str, tmp_path: Path) -> None:
    run_core_tests(QUICK_TESTS, without((wing,), tmp_path / "site"))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_tests_of_the_core_pass_without_any_wing(tmp_path: Path) -> None:
    run_core_tests(("tests",), without(WINGS, tmp_path / "site"))
