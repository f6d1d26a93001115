"""What a page opens with, and what stands on a sheet of several experiments."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from needlemap.records.families import Families
from needlemap.reports.page.sheets import Subject
from needlemap.reports.page.summary import summary

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def alike(falling):
    """alike(path): a run of the same trials."""

    def made(path, **changes):
        return replace(falling, path=path, **changes)

    return made


@pytest.fixture
def several(falling):
    """A run of two families, of which one was begun, or both."""

    def made(*begun, path="runs/s"):
        read = {
            name: replace(falling, path=f"{path}/{name}") if name in begun else None
            for name in ("one", "two")
        }
        return Subject(Families(Path(path), "mine", ("one", "two")), read)

    return made


def shown(*runs, **more):
    return summary(list(runs), made=NOW, **more)


def test_one_run_opens_with_its_map_and_has_no_sheet(falling):
    found = shown(falling)
    assert found["views"] == [["run", 0]]
    assert found["sheets"] == []


def test_two_that_are_alike_open_with_their_difference(alike):
    found = shown(alike("runs/a"), alike("runs/b"))
    assert found["views"] == [["difference", 0], ["sheet", 0], ["run", 0], ["run", 1]]
    assert found["differences"][0]["name"] == "openai/m@a \N{MINUS SIGN} openai/m@b"


def test_two_that_are_not_open_with_curves_and_one_quiet_line(falling, make_run):
    found = shown(falling, make_run([], "runs/other"))
    assert found["views"] == [["sheet", 0], ["run", 0], ["run", 1]]
    (line,) = found["sheets"][0]["lines"]
    assert line.startswith("Not compared with openai/m@a, ")
    assert line.endswith(": openai/m@other.")


def test_several_open_with_their_curves_and_differences_come_last(alike):
    found = shown(*(alike(f"runs/{name}") for name in "abc"))
    assert [kind for kind, _ in found["views"]] == [
        "sheet",
        "run",
        "run",
        "run",
        "difference",
        "difference",
    ]
    (sheet,) = found["sheets"]
    assert (sheet["first"], len(sheet["table"]["rows"])) == ("curves", 3)
    assert all(f">openai/m@{name} " in sheet["chart"] for name in "abc")
    assert sheet["title"] == "openai/m@a · openai/m@b · openai/m@c"
    assert sheet["lines"] == []


def test_a_curve_and_its_row_say_what_the_runs_own_page_says(falling, alike):
    found = shown(falling, alike("runs/b"))
    (sheet,), run = found["sheets"], found["runs"][0]
    assert sheet["chart"].count("<path") > 4
    assert all(f">{label}<" in sheet["chart"] for _, label in run["lengths"])
    row = sheet["table"]["rows"][0]
    assert row["to"] == ["run", 0]
    assert row["cells"][1][0] == f"{100 * falling.map.total.score:.1f}"
    assert row["cells"][3][0] == run["effective"][0]["value"]


def test_a_suite_opens_with_its_table_and_its_families_are_not_held_against_each_other(several):
    found = shown(several("one", "two"))
    assert found["views"] == [["sheet", 0], ["run", 0], ["run", 1]]
    assert found["differences"] == []
    assert [run["name"] for run in found["runs"]] == ["one", "two"]
    (sheet,) = found["sheets"]
    assert sheet["first"] == "table"
    assert [row["cells"][0] for row in sheet["table"]["rows"]] == ["one", "two", "mean"]
    names = re.findall(r'font-weight="bold">(\w+)(?: · \S+)?</text>', sheet["chart"])
    assert sorted(names) == ["mean", "one", "two"]


def test_a_family_that_was_not_begun_has_a_row_and_no_mean_is_made_without_it(several):
    (sheet,) = shown(several("two"))["sheets"]
    one, two, mean = sheet["table"]["rows"]
    assert {text for text, _ in mean["cells"][1:]} == {"-"}
    assert one["cells"][-1] == ["not started", None]
    assert (one["to"], two["to"]) == (None, ["run", 0])
    assert sheet["readings"][-1] == ["Families", "2", "1 not started", ""]


def test_two_suites_are_compared_family_by_family(several):
    found = shown(several("one", "two"), several("one", "two", path="runs/t"))
    assert [(each["a"], each["b"]) for each in found["differences"]] == [(0, 2), (1, 3)]
    assert found["differences"][0]["name"].startswith("one: ")
    assert found["views"][:4] == [["sheet", 0], ["sheet", 1], ["sheet", 2], ["run", 0]]
    assert [row["to"] for row in found["sheets"][0]["table"]["rows"]] == [
        ["sheet", 1],
        ["sheet", 2],
    ]


def test_a_suite_beside_a_plain_run_is_not_compared_with_it(several, falling):
    found = shown(several("one", "two"), falling)
    assert found["differences"] == []
    assert [kind for kind, _ in found["views"]] == ["sheet", "sheet", "run", "run", "run"]
    assert [row["to"] for row in found["sheets"][0]["table"]["rows"]] == [["sheet", 1], ["run", 2]]


def test_what_was_not_asked_is_not_what_could_not_be_measured(make_run, make_record):
    failed = make_record(
        depth=0.0, score=None, scorer=None, failure="timed out", error="No answer."
    )
    run = make_run([make_record(), failed], cells=[[1000, 0.0, [0, 1]], [1000, 0.5, [0, 1]]])
    (found,) = shown(run)["runs"]
    assert (found["totals"]["missing"], found["totals"]["unasked"]) == (3, 2)
    facts = {
        name: [None if at is None else texts[at] for at in index]
        for name, texts, index in found["facts"]
    }
    assert facts["missing"] == ["2 (1 timed out, 1 not sent)", None]
    assert facts["not sent"] == [None, "1 trial"]
