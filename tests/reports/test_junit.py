"""Verdicts as JUnit XML: what fails, what is open, and text of strangers."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from needlemap.errors import NeedlemapError
from needlemap.reports.renderers.junit import to_junit, write_junit
from needlemap.reports.report import Claim, Report


def report_of(kind: str, *claims: Claim) -> Report:
    return Report(kind, "a model", claims=claims)


def cases_of(data: bytes) -> dict[str, ElementTree.Element]:
    return {str(case.get("name")): case for case in ElementTree.fromstring(data).iter("testcase")}


def test_a_failure_fails_and_what_is_open_is_an_error_of_its_own_type():
    report = report_of(
        "check",
        Claim("comb", "PASS", "none missed", "none missed of 9"),
        Claim("edges", "FAIL", "3 of 9 missed", "3 of 9 missed\nsee it: needlemap replay c"),
        Claim("cut", "SUSPECT", "too few", "too few"),
        Claim("load", "NOT ENOUGH DATA", "not told", "not told"),
    )
    data = to_junit([report], on_undecided="pass")
    suite = ElementTree.fromstring(data).find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == [
        "4",
        "1",
        "1",
        "1",
    ]
    found = cases_of(data)
    assert {case.get("classname") for case in found.values()} == {"needlemap.check"}
    assert [(part.tag, part.text) for part in found["comb"]] == [("system-out", "none missed of 9")]
    failure = found["edges"].find("failure")
    assert failure is not None
    assert failure.get("message") == "3 of 9 missed"
    assert failure.text == "3 of 9 missed\nsee it: needlemap replay c"
    error = found["cut"].find("error")
    assert error is not None
    assert error.get("type") == "SUSPECT"
    assert found["load"].find("skipped") is not None


def test_what_a_model_said_cannot_break_the_file():
    said = "]]> <b> & \x00 \x1b[31m \ufffe \ud800 \x85 ‮ end"
    found = cases_of(to_junit([report_of("compare", Claim(said, "FAIL", said, f"{said}\nmore"))]))
    (failure,) = (case.find("failure") for case in found.values())
    assert failure is not None
    assert failure.text is not None
    assert failure.text.startswith("]]> <b> &")
    assert failure.text.endswith("end\nmore")


def test_folders_on_its_way_are_made_and_no_link_in_a_run_is_followed(tmp_path: Path):
    write_junit(tmp_path / "new" / "deep.xml", [report_of("run", Claim("mean", "PASS", "fine"))])
    assert cases_of((tmp_path / "new" / "deep.xml").read_bytes())
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "out.xml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NeedlemapError):
        write_junit(tmp_path / "out.xml", [])
