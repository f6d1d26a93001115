"""`--junit FILE` of compare and run: a case a verdict, whatever the exit code.

Of check: test_check_options.py."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

GRID = (
    "--model",
    "baseline/bm25",
    "--lengths",
    "500,900",
    "--depths",
    "0,100",
    "--repeats",
    "5",
    "--quiet",
)


@pytest.fixture
def cases(needlemap: Any) -> Any:
    """cases(FILE): the tag under each case, or 'pass'."""

    def read(name: str) -> dict[str, str]:
        root = ElementTree.parse(needlemap.folder / name).getroot()
        tags = {
            str(case.get("name")): [part.tag for part in case] for case in root.iter("testcase")
        }
        return {
            name: next((tag for tag in found if tag != "system-out"), "pass")
            for name, found in tags.items()
        }

    return read


def test_of_compare_a_case_for_each_verdict(needlemap, cases):
    needlemap("run", *GRID, "-o", "a")
    needlemap("run", *GRID, "--model-options", "window=300", "-o", "b")
    both = ("--margin", "2", "--fail-if-answers-differ", "0")
    needlemap("compare", "a", "b", *both, "--junit", "ci/ab.xml", code=1)
    assert cases("ci/ab.xml") == {
        "a loss below 2 points": "error",
        "the same answers": "failure",
    }
    needlemap("compare", "b", "a", "--margin", "2", "--junit", "ba.xml")
    assert cases("ba.xml") == {"a loss below 2 points": "pass"}
    refused = needlemap("compare", "b", "a", "--junit", "ba.xml", code=2).stderr
    assert "--junit is of a verdict. Ask for one: --margin 2" in refused


def test_of_compare_not_enough_data_is_an_error_unless_it_is_to_pass(needlemap, cases):
    needlemap("run", *GRID, "-o", "a")
    needlemap("run", *GRID, "-o", "same")
    pair = ("compare", "a", "same", "--fail-if-worse", "2", "--junit", "x.xml")
    needlemap(*pair, code=4)
    assert cases("x.xml") == {"a loss below 2 points": "error"}
    needlemap(*pair, "--on-undecided", "pass", "--json")
    assert cases("x.xml") == {"a loss below 2 points": "skipped"}
    needlemap(*pair, "--sequential", code=4)
    assert cases("x.xml") == {"a loss below 2 points": "error"}


def test_of_run_the_mean_or_the_gate(needlemap, cases):
    needlemap("run", *GRID, "-o", "a", "--fail-under", "50", "--junit", "mean.xml")
    assert cases("mean.xml") == {"a: mean at least 50": "pass"}
    gate = (
        "--prompts-of",
        "a",
        "--model",
        "baseline/bm25",
        "--quiet",
        "--until",
        "no-worse-than a:2",
    )
    needlemap("run", *GRID, "-o", "a", "--fail-under", "100", "--junit", "mean.xml", code=4)
    assert cases("mean.xml") == {"a: mean at least 100": "error"}
    needlemap("run", *gate, "-o", "b", "--junit", "gate.xml", code=4)
    assert cases("gate.xml") == {"b: a loss below 2 points": "error"}


def test_of_run_there_must_be_a_verdict(needlemap):
    refused = needlemap("run", *GRID, "-o", "a", "--junit", "x.xml", code=2)
    assert "--junit is of a verdict. Ask for one: --fail-under or --until." in refused.stderr
    assert not (needlemap.folder / "a").exists()
