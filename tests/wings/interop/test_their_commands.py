"""The table of the older tools' own commands in docs: each row is typed here."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from needlemap.interop import needlehaystack
from needlemap.interop.opencompass import score

DOCS = Path(__file__).parents[3] / "docs"


def rows_of(page: str) -> list[list[str]]:
    """Return the rows of a page's table of their commands."""
    text = (DOCS / page).read_text("utf-8")
    (table,) = re.findall(r"<!-- their commands.*?-->(.*?)<!-- end", text, re.DOTALL)
    return [line.split(" | ") for line in table.strip().splitlines()[2:]]


ROWS = [*rows_of("from-needlehaystack.md"), *rows_of("from-opencompass.md")]
HERE = [re.sub(r"^`|`$", "", row[1].strip()) for row in ROWS]
COMMANDS = [words for words in HERE if words.startswith("needlemap ")]
LINES = [words for words in HERE if not words.startswith("needlemap ")]
CSV = "dataset,version,metric,mode,m\nCDME_Length1000Depth0,a1,score,gen,90.00\n"


def test_every_row_says_what_it_does_and_is_typed_below():
    assert len(ROWS) >= 10
    assert all(len(row) == 3 for row in ROWS)
    assert len(COMMANDS) >= 4
    assert len(LINES) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_what_its_row_says(needlemap, command):
    folder = needlemap.folder
    (folder / "CDME").mkdir()
    report = "A long report on prices, ships, harvests and the weather of one year. "
    lines = "".join(f'{{"text": "{number}: {report * 3}"}}\n' for number in range(200))
    (folder / "CDME" / "zh_finance.jsonl").write_text(lines, encoding="utf-8")
    for name in ("first.csv", "second.csv"):
        (folder / name).write_text(CSV, encoding="utf-8")
    words = shlex.split(command)[1:]
    said = needlemap(*words).stdout
    if "-o" in words and "--dry-run" not in words:
        assert (folder / words[words.index("-o") + 1]).stat().st_size > 100
    if "--dry-run" in words:
        assert "#SBATCH --partition=partition_name" in said
        assert "#SBATCH --array=0-31" in said
    if "plan" in words:
        assert re.search(r"^exact \* +1 +10 ", said, re.M)  # a cell, ten repeats


def test_the_python_lines_run_one_after_the_other(wires, tmp_path, monkeypatch):
    """On a grid of one cell in place of 1,225: the lines themselves are as they stand."""
    (tmp_path / "PaulGrahamEssays").mkdir()
    (tmp_path / "PaulGrahamEssays" / "a.txt").write_text("Work is a habit. " * 200)
    monkeypatch.chdir(tmp_path)
    server = wires("--answer", "[[10]]")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wire-0123456789")
    small = {"context_lengths": [400], "document_depth_percents": [50]}
    first = needlehaystack.OpenAIEvaluator.__init__

    def one_cell(self, **options):
        first(self, **{**small, **options})

    monkeypatch.setattr(needlehaystack.OpenAIEvaluator, "__init__", one_cell)
    texts = ["Jack made it"], ["Jack made it"]
    known = {"asyncio": asyncio, "score": score, "predictions": texts[0], "references": texts[1]}
    for line in LINES:
        exec(line, known)
    assert [row["score"] for row in known["openai_ht"].get_results()] == [10]
    assert len(list(Path("results").iterdir())) == 1
    assert score(*texts)["score"] == 100
    assert score(["It is Jack."], ["Jack made it"], keyword="Jack")["score"] == 100
