"""The house stays as small as it is (`python tools/house.py` prints the figures). Lower a limit."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "house.py"
MOST_FILES, MOST_CHAIN, MOST_ROOT = 172, 16, 9


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


@pytest.fixture(scope="module")
def house(tool: dict[str, Any]) -> Any:
    return tool["House"].read(tool["SOURCE"])


def test_it_has_few_files_few_at_the_root_and_short_chains_of_imports(house: Any) -> None:
    assert len(house.sources) <= MOST_FILES
    assert len(house.root()) <= MOST_ROOT
    assert len(house.longest_chain()) <= MOST_CHAIN


def test_no_file_imports_itself_through_others(house: Any) -> None:
    assert house.circles() == []


def test_a_file_is_a_page_and_a_function_fits_on_a_screen(tool: dict[str, Any], house: Any) -> None:
    files = {source.module: len(source.text.splitlines()) for source in house.sources}
    functions = {name: lines for source in house.sources for name, lines, _ in source.functions()}
    assert {name: n for name, n in files.items() if n > tool["FILE_LINES"]} == {}
    assert {name: n for name, n in functions.items() if n > tool["FUNCTION_LINES"]} == {}


def test_a_circle_and_a_late_import_are_seen_and_one_for_types_is_not(
    tmp_path: Path, tool: dict[str, Any]
) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "a.py").write_text("def late():\n    from p.b import x\n")
    (package / "b.py").write_text("from p import a\nx = a\n")
    (package / "c.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import a\n"
    )
    found = tool["House"].read(tmp_path)
    assert found.circles() == [["p.a", "p.b"]]
    assert found.graph["p.c"] == set()
    assert len(found.longest_chain()) == 2
