"""What the package gives is what tests/golden_bytes.txt and golden_words.txt say, row by row: one
preset, the older tools' files, verdicts, some exit codes and plans each time, all with --long."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "golden.py"
QUICK = (
    *("passkey", "needlehaystack files", "opencompass files", "requests plans", "exit others"),
    *("verdict check", "verdict storm", "verdict pairs", "verdict arms"),
)


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    """tools/golden.py."""
    spec = importlib.util.spec_from_file_location("golden", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(1500)  # a minute and a half, or ten where others compute beside it
@pytest.mark.parametrize("only", [*QUICK, pytest.param("", id="all", marks=pytest.mark.long)])
def test_bytes_and_words_stay_as_they_are(golden: ModuleType, only: str) -> None:
    """Whoever means to move one runs `python tools/golden.py`. A row of bytes moves in a commit of
    its own, which names the reason."""
    found = list(golden.rows(only))
    moved = golden.moved(found, only)

    assert found
    assert not moved, "\n".join(moved)


def test_every_row_has_a_name_of_its_own_and_stands_in_one_file(golden: ModuleType) -> None:
    files = [golden.stored(file) for file in (golden.BYTES, golden.WORDS)]
    lines = [
        [line for line in file.read_text("utf-8").splitlines() if re.match(r"[^#]", line)]
        for file in (golden.BYTES, golden.WORDS)
    ]

    assert [len(rows) for rows in files] == [len(rows) for rows in lines]
    assert not files[0].keys() & files[1].keys()


def test_a_row_that_moved_is_named_with_its_file_and_bytes_with_a_warning(
    golden: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [golden.Row("keys", "a", "1", ""), golden.Row("compare", "a", "2", "")]
    for name, row in zip(("BYTES", "WORDS"), before, strict=True):
        file = tmp_path / f"{name}.txt"
        file.write_text(golden.table([row]), encoding="utf-8")
        monkeypatch.setattr(golden, name, file)

    assert golden.moved(before) == []
    words = golden.moved([before[0], before[1]._replace(value="3")])
    assert words == ["WORDS.txt: compare a: 2 -> 3"]
    both = golden.moved([golden.Row("keys", "b", "1", "")], "b")
    assert both == ["BYTES.txt: keys b: no row -> 1", golden.FROZEN]
