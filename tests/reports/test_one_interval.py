"""One loss has one interval and one sign, wherever a comparison is shown."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest

import needlemap
from needlemap.records.loaded import load_run
from needlemap.reports.comparison import comparison_report
from needlemap.reports.figures.panels import change_caption
from needlemap.reports.labels import typeset
from needlemap.reports.page.payload import comparison_payload
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.junit import to_junit
from needlemap.reports.renderers.markdown import to_markdown
from needlemap.reports.renderers.text import to_text

GRID = ("--lengths", "500,900,2000", "--depths", "0,50,100", "--repeats", "6", "--quiet")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: Any, command_in: Any) -> Any:
    """Two runs of which the second loses the head of the longest prompts, at a margin."""
    typed = command_in(tmp_path_factory.mktemp("interval"))
    model = ("--model", "baseline/bm25")
    typed("run", *model, *GRID, "-o", "whole")
    typed("run", *model, *GRID, "--model-options", "window=1200", "-o", "short")
    return needlemap.compare(typed.folder / "whole", typed.folder / "short", margin=2)


@pytest.fixture(scope="module")
def faces(compared: Any) -> dict[str, str]:
    """What each face says in words."""
    report = comparison_report(compared.comparison, compared.names)
    sheet = comparison_payload(compared.comparison, compared.names)["sheet"]
    tables = [sheet["table"], *sheet.get("more", ())]
    cells = [[cell[0] for cell in row["cells"]] for table in tables for row in table["rows"]]
    page = [sheet["answer"], *sheet["lines"], *(" ".join(row) for row in cells)]
    (case,) = ElementTree.fromstring(to_junit([report])).iter("testcase")
    return {
        "terminal": to_text(report),
        "markdown": to_markdown(report).replace("\\", ""),
        "page": "\n".join(page),
        "junit": "".join(case.itertext()),
    }


def test_every_face_has_the_verdicts_loss_and_interval_once(compared, faces) -> None:
    loss, (low, high) = compared.loss, compared.interval
    said = f"{loss:.1f} points ({low:.1f} to {high:.1f})"
    assert said == "11.1 points (-1.0 to 22.2)"
    assert {name: text.count(said) for name, text in faces.items()} == dict.fromkeys(faces, 1)
    assert {name: text.count("-11.1") for name, text in faces.items()} == dict.fromkeys(faces, 0)
    assert change_caption(compared.comparison.only) == (typeset(f"{said}, n = 54 pairs"),)


def test_every_face_has_each_lengths_loss_and_interval_once(compared, faces) -> None:
    (row,) = [row for row in compared.lengths if row["length_tokens"] == 2_000]
    said = f"{row['low']:.1f} to {row['high']:.1f}"
    assert said == "2.5 to 56.3"
    assert {name: text.count(said) for name, text in faces.items()} == dict.fromkeys(faces, 1)
    pytest.importorskip("pandas")
    frame = compared.to_pandas().set_index("length_tokens")
    assert frame.loc[2_000, ["loss", "low", "high"]].tolist() == [
        row["loss"],
        row["low"],
        row["high"],
    ]


def test_programs_have_it_in_one_field(compared) -> None:
    found = to_json(comparison_report(compared.comparison, compared.names))
    assert found["loss"] == {
        "value": pytest.approx(compared.loss, abs=1e-6),
        "low": pytest.approx(compared.interval[0], abs=1e-6),
        "high": pytest.approx(compared.interval[1], abs=1e-6),
    }
    del found["result"], found["lengths"], found["cells"]  # words, and other losses
    numbers = json.dumps(found)
    for value in compared.loss, *compared.interval:
        assert numbers.count(f"{value:.4f}"[:-1]) == 1
    assert "difference" not in found["overall"]


def test_of_a_single_length_its_row_is_the_whole(tmp_path_factory: Any, command_in: Any) -> None:
    typed = command_in(tmp_path_factory.mktemp("single"))
    grid = ("--lengths", "2000", *GRID[2:], "--model", "baseline/bm25")
    typed("run", *grid, "-o", "whole")
    typed("run", *grid, "--model-options", "window=1200", "-o", "short")
    found = needlemap.compare(typed.folder / "whole", typed.folder / "short", margin=2)
    (row,) = found.lengths
    ends = row["loss"], row["low"], row["high"]
    assert ends == pytest.approx((found.loss, *found.interval), abs=1e-5)
    assert found.text.count(f"{found.interval[0]:.1f} to {found.interval[1]:.1f}") == 1


def test_a_run_has_the_terminals_intervals_in_python(compared) -> None:
    run = needlemap.load(compared.runs[0].path)
    margins = load_run(compared.runs[0].path).map.margins
    assert {length: (mean.low, mean.high) for length, mean in run.means().items()} == {
        length: (mean.low, mean.high) for length, mean in margins.items()
    }
