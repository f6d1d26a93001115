"""Verdicts as a JUnit file, which CI systems show: a test case a verdict.

What fails is a failure. What is undecided is an error of type 'undecided', since nobody knows; where
undecided is to pass, it is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from needlemap.files import write_report
from needlemap.text import printable

State = Literal["pass", "fail", "undecided", "skipped"]
_NO_XML = {0xFFFE: None, 0xFFFF: None}  # no characters, and not printable's to drop
_TAGS = {"fail": "failure", "undecided": "error", "skipped": "skipped"}
OF_CODE: dict[int, State] = {0: "pass", 1: "fail", 4: "undecided"}  # a verdict's exit code


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict. name: what was tried. said: what came of it, in a line. text: all that is known."""

    name: str
    state: State
    said: str
    text: str = ""


def junit_xml(suite: str, cases: Sequence[Case]) -> bytes:
    """The file's bytes. suite: the command, which is every case's class."""
    counts = {
        tag: str(sum(_TAGS.get(each.state) == kind for each in cases))
        for tag, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    name = f"needlemap {suite}"
    root = ElementTree.Element("testsuites")
    under = ElementTree.SubElement(root, "testsuite", {"name": name, "tests": str(len(cases)), **counts})
    for each in cases:
        about = {"classname": name.replace(" ", "."), "name": _text(each.name, line=True)}
        case = ElementTree.SubElement(under, "testcase", about)
        if each.state in _TAGS:
            said = {"message": _text(each.said, line=True), "type": each.state}
            ElementTree.SubElement(case, _TAGS[each.state], said).text = _text(each.text or each.said)
        elif each.text:
            ElementTree.SubElement(case, "system-out").text = _text(each.text)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def write_junit(target: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write the file; folders on its way are made. Raises NeedlemapError where it cannot be."""
    write_report(target, junit_xml(suite, cases))


def _text(text: str, *, line: bool = False) -> str:
    """A text as XML 1.0 may hold it."""
    return printable(text, line=line).translate(_NO_XML)
