"""`needlemap report RUN... -o report.html`: from folders to a page; what a large one leaves out."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.records.record import NeedleRecord
from needlemap.reports.page.document import compress_json
from needlemap.reports.page.summary import make_page

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GRID = ("--lengths", "500,900", "--depths", "0,50,100", "--repeats", "2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, command_in):
    """A folder with two runs of the baseline, of which the second remembers less."""
    command = command_in(tmp_path_factory.mktemp("runs"))
    command("run", "--model", "baseline/bm25", *GRID, "-o", "r")
    command("run", "--model", "baseline/bm25", *GRID, "--model-options", "window=60", "-o", "short")
    return command


def data_of(page: Path | str, name: str) -> Any:
    text = page.read_text("utf-8") if isinstance(page, Path) else page
    (data,) = re.findall(
        rf'<script type="application/octet-stream" id="{name}">([\w+/=]+)</script>', text
    )
    return json.loads(gzip.decompress(b64decode(data)))


def test_several_runs_become_one_page_with_their_difference(runs, typed):
    ended = typed(
        "report", "r", "short", "-o", "new/both.html", "--title", "Two", folder=runs.folder
    )
    assert ended.stderr == "new/both.html (in a new folder, new)\n"
    page = runs.folder / "new" / "both.html"
    summary = data_of(page, "summary")
    assert [run["path"] for run in summary["runs"]] == ["r", "short"]
    assert [view["of"][0] for view in summary["views"]] == ["difference", "sheet", "run", "run"]
    assert {view["title"] for view in summary["views"]} == {"Two"}
    assert "<title>Two</title>" in page.read_text("utf-8")
    records = {
        (row["length_tokens"], row["depth"], row["repeat"]): row for row in runs.records("short")
    }
    trials = data_of(page, "trials-1")
    cells = summary["runs"][1]["cells"]
    for row, at in enumerate(trials["cell"]):
        length = summary["runs"][1]["lengths"][cells["length"][at]][0]
        record = records[length, cells["depth"][at], trials["repeat"][row]]
        assert trials["strings"][trials["answer"][row]] == record["answer"]
        assert trials["score"][row] == record["score"]


def test_what_a_record_keeps_of_the_needle_is_in_the_prompt_that_replay_rebuilds(runs, typed):
    shown = typed(
        "replay", "r", "--length", "900", "--depth", "50", "--repeat", "1", folder=runs.folder
    ).stdout
    (record,) = (
        row
        for row in runs.records("r")
        if (row["length_tokens"], row["depth"], row["repeat"]) == (900, 0.5, 1)
    )
    (needle,) = record["needles"]
    assert len(needle["before"]) == len(needle["after"]) == 300
    assert needle["before"] + needle["text"] + needle["after"] in shown


def test_python_saves_the_same_page(runs):
    written = needlemap.load(runs.folder / "r").save(runs.folder / "api.HTML", palette="grey")
    assert data_of(written, "summary")["palette"] == "grey"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["r", "nowhere"], "No run at 'nowhere'"),
        (["r", "./r"], "Run 'r' is given twice. Give each run once."),
        (["r", "--palette", "ambr"], "Did you mean 'amber'?"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line(runs, typed, arguments, said):
    ended = typed("report", *arguments, "-o", "none.html", code=2, folder=runs.folder)
    assert said in ended.stderr
    assert not (runs.folder / "none.html").exists()


def test_a_title_with_bytes_that_are_no_letters_is_written(runs, typed):
    typed("report", "r", "-o", "odd.html", "--title", "odd \udcff", folder=runs.folder)
    assert "<title>odd ?</title>" in (runs.folder / "odd.html").read_text("utf-8")


def test_nothing_heavy_is_imported_for_a_page(runs):
    code = (
        "import sys; sys.argv = ['needlemap', 'report', 'r', '-o', 'light.html']\n"
        "from needlemap.cli import main\n"
        "try: main()\n"
        "except SystemExit: print({'resvg_py', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=runs.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_page_that_would_be_too_large_leaves_out_and_says_what(make_run, make_record):
    """First what is around needles that were found; in the end all of it, and most of long
    answers."""
    run = make_run(
        [
            make_record(
                repeat=at,
                score=float(at % 2),
                answer=str(at) * 3_000,
                needles=(needle(letters * 150),),
            )
            for at, letters in enumerate(("ab", "cd", "ef", "gh"))
        ]
    )
    whole = make_page([run], made=NOW)
    assert "this page leaves out" not in whole
    assert around(data_of(whole, "trials-0")) == {0.0, 1.0}

    size = len(compress_json(data_of(whole, "trials-0")))
    less, least = (make_page([run], made=NOW, limit=limit) for limit in (size - 1, 1))
    assert "leaves out what stands around needles that were found:" in notes(less)
    assert around(data_of(less, "trials-0")) == {0.0}
    assert data_of(less, "trials-0")["cut"] == [0] * 4
    assert "and answers beyond 300 characters" in notes(least)
    assert around(data_of(least, "trials-0")) == set()
    assert data_of(least, "trials-0")["cut"] == [2_700] * 4


def needle(before: str) -> NeedleRecord:
    return NeedleRecord(meant=0.5, realised=0.5, byte=300, text="A fact.", before=before, after="")


def notes(page: str) -> str:
    (said,) = re.findall(r"<li>(To stay small, this page leaves out .*?)</li>", page)
    return str(said)


def around(trials: dict[str, Any]) -> set[float]:
    """The scores of trials of which what is around their needle is known."""
    return {
        trials["score"][row]
        for row, (needle,) in enumerate(trials["needles"])
        if needle[2] is not None
    }
