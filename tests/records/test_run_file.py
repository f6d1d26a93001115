"""run.json is read and written through `RunFile` alone; runs of earlier versions stay of use."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from needlemap.records import RUN

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "needlemap"
FIXTURES = ROOT / "tests" / "fixtures"
LAST = FIXTURES / "last-version"  # made by the code of the day before `kind`
EARLIER = sorted(file.parent for file in FIXTURES.rglob("run.json"))
READERS = {"read_json", "read_regular", "loads", "load", "read_text", "read_bytes", "open"}


def strings_read(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a part of a run.json, or of its settings, is read by a string: lines and code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base: ast.AST | None = node.value if isinstance(node.slice.value, str) else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            by_name = node.args and isinstance(node.args[0], ast.Constant)
            base = node.func.value if node.func.attr in ("get", "pop") and by_name else None
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            base = node.comparators[0] if isinstance(node.ops[0], ast.In | ast.NotIn) else None
        else:
            base = None
        if base is not None and is_of_run_file(base):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Call) and called(node) in READERS and names_run_json(node):
            yield node.lineno, ast.unparse(node)


def is_of_run_file(base: ast.AST) -> bool:
    if isinstance(base, ast.Call):
        return called(base) in ("about", "document")
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name == "about" or (name == "settings" and isinstance(base, ast.Attribute))


def called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def names_run_json(node: ast.AST) -> bool:
    return any(
        getattr(each, "id", "") == "RUN_FILE" or getattr(each, "value", "") == "run.json"
        for each in ast.walk(node)
    )


def test_nobody_outside_records_reads_run_json_by_a_string():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {code}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ("records", "settings")
        for line, code in strings_read(ast.parse(path.read_text("utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "run.about['settings']",
        "folder.about().get('scorer')",
        "'imported' in run.about",
        "about['cells']",
        "run.about.settings['model']",
        "run.about.settings.get('label')",
        "run.about.document()['stopped']",
        "json.loads((path / 'run.json').read_text())",
        "read_json(read_regular(path / RUN_FILE))",
    ],
)
def test_the_test_before_sees_each_way_of_doing_so(code):
    assert list(strings_read(ast.parse(code)))


@pytest.mark.parametrize("folder", EARLIER, ids=lambda folder: str(folder.relative_to(FIXTURES)))
def test_a_run_json_of_an_earlier_version_is_written_as_it_was_read(folder):
    assert RUN.read(folder).document() == json.loads((folder / "run.json").read_text("utf-8"))


@pytest.fixture
def last(typed):
    """Run folders of the last version, in the folder where commands are typed."""
    shutil.copytree(LAST, typed.folder, dirs_exist_ok=True)
    return typed


GRID = ("--lengths", "400,600", "--depths", "0,60", "--trust-run")
RUN_BM25 = ("run", "bm25", *GRID)
WINDOW = ("--repeats", "2", "--model-options", "window=200")
ARMS = ("--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25")


@pytest.mark.parametrize(
    ("folder", "shown"),
    [
        ("run", "overall 100.0"),
        ("worse", "overall 75.0"),
        ("suite", "far"),
        ("ab", "undecided at a margin of 2 points"),
        ("check", "192 of 192"),
    ],
)
def test_folders_of_the_last_version_are_reported(last, folder, shown):
    assert shown in last("report", folder).stdout
    last("report", folder, "-o", f"{folder}.html")


def test_runs_of_the_last_version_are_compared(last):
    found = json.loads(last("compare", "run", "worse", "--json").stdout)
    assert found["overall"]["lost"] == 2
    assert last("compare", "suite", "suite/near", code=2).stderr.count("suite") > 1


@pytest.mark.parametrize(
    ("command", "records"),
    [
        ((*RUN_BM25, "--repeats", "2", "-o", "run"), "run"),
        ((*RUN_BM25, *WINDOW, "-o", "worse"), "worse"),
    ],
    ids=["run", "another window"],
)
def test_a_run_of_the_last_version_goes_on(last, command, records):
    """Nothing is asked again: its answers are those of today."""
    before = sorted((last.folder / records).glob("records-*.jsonl"))
    assert last(*command).stdout
    assert sorted((last.folder / records).glob("records-*.jsonl")) == before


def test_an_ab_of_the_last_version_goes_on(last):
    command = ("ab", "passkey", *ARMS, *GRID, "--until", "12", "-o", "ab")
    assert "asked 12 of at most 12 pairs" in last(*command, code=4).stdout


def test_runs_of_schema_1_are_compared(typed):
    for name in ("one", "other"):
        shutil.copytree(FIXTURES / "schema-1", typed.folder / name)
    assert "length 300: 0 of 3 lost" in typed("compare", "one", "other").stdout


def test_a_run_json_says_what_asked_it(typed):
    grid = ("--lengths", "400,600", "--depths", "0,60")
    typed("run", "bm25", *grid, "--repeats", "1", "-o", "alone")
    typed.folder.joinpath("s.yaml").write_text("families: {near: {preset: passkey}, far: {}}\n")
    bm25 = ("--model", "baseline/bm25")
    typed("run", "suite:s.yaml", *bm25, *grid, "--repeats", "1", "-o", "both")
    typed("ab", "passkey", *ARMS, *grid, "--until", "4", "-o", "ab", code=4)
    kinds = {
        str(folder.relative_to(typed.folder)): RUN.read(folder).kind
        for folder in sorted(file.parent for file in typed.folder.rglob("run.json"))
    }
    assert kinds == {
        "ab/a-passkey": "ab",
        "ab/again-passkey": "ab",
        "ab/b-passkey": "ab",
        "alone": "run",
        "both/far": "suite",
        "both/near": "suite",
    }


def test_a_family_of_the_last_version_says_what_asked_it_once_it_goes_on(last):
    assert RUN.read(last.folder / "run").kind is None
    last(*RUN_BM25, "--repeats", "3", "-o", "run")
    assert RUN.read(last.folder / "run").kind == "run"


def test_a_kind_of_a_later_version_is_refused_in_words(last):
    file = last.folder / "run" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "kind": "tomorrow"}))
    shown = last("report", "run", code=2).stderr
    assert "this version reads run, suite, check, ab, storm, not 'tomorrow'" in shown
