"""run.json is read and written through `RunFile` alone."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from needlemap.records import RUN

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "needlemap"
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


ARMS = ("--arm", "a=baseline/bm25", "--arm", "b=baseline/bm25")


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


def test_a_kind_of_a_later_version_is_refused_in_words(typed):
    typed("run", "bm25", "--lengths", "400", "--depths", "0", "-o", "run")
    file = typed.folder / "run" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "kind": "tomorrow"}))
    shown = typed("report", "run", code=2).stderr
    assert "this version reads run, suite, check, ab, storm, not 'tomorrow'" in shown
