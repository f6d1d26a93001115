"""What holds for the whole house; `python tools/house.py` prints its figures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "house.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


@pytest.fixture(scope="module")
def house(tool: dict[str, Any]) -> Any:
    return tool["House"].read(tool["SOURCE"])


def test_no_file_imports_itself_through_others(house: Any) -> None:
    assert house.circles() == []


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
