"""Reports as JUnit XML, which CI systems show.

A claim is a test case: what fails is a failure; what is undecided is an error of type
'undecided', and skipped where it is to pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from needlemap.files import write_report
from needlemap.reports.renderers.text import to_text
from needlemap.reports.report import Report
from needlemap.stats.verdicts import NO_WORSE, WORSE, softened
from needlemap.text import printable

_TYPES = {"failure": "fail", "error": "undecided", "skipped": "skipped"}
_NO_XML = {0xFFFE: None, 0xFFFF: None}  # no characters, and not printable's to drop


def to_junit(reports: Sequence[Report], on_undecided: str = "fail") -> bytes:
    """The file's bytes. A report's kind, the command, is its cases' class."""
    name, tags = f"needlemap {reports[0].kind}" if reports else "needlemap", Counter[str]()
    root = ElementTree.Element("testsuites")
    under = ElementTree.SubElement(root, "testsuite", {"name": name})
    for report, claim in [(each, claim) for each in reports for claim in each.claims]:
        about = {"classname": name.replace(" ", "."), "name": _text(claim.name, line=True)}
        case = ElementTree.SubElement(under, "testcase", about)
        tag = _tag(claim.code, on_undecided)
        tags[tag] += 1
        why = {"message": _text(claim.said, line=True), "type": _TYPES.get(tag, "")}
        part = ElementTree.SubElement(case, tag, why if tag in _TYPES else {})
        part.text = _text(claim.text or to_text(report).rstrip("\n"))
    under.set("tests", str(tags.total()))
    for counted, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        under.set(counted, str(tags[tag]))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def write_junit(target: Path, reports: Sequence[Report], on_undecided: str = "fail") -> None:
    """Write the file; folders on its way are made. Raises NeedlemapError where it cannot
    be."""
    write_report(target, to_junit(reports, on_undecided))


def _tag(code: int, on_undecided: str) -> str:
    """What stands in the case of a claim with this exit code."""
    if softened(code, on_undecided) != code:
        return "skipped"
    return {NO_WORSE: "system-out", WORSE: "failure"}.get(code, "error")


def _text(text: str, *, line: bool = False) -> str:
    """A text as XML 1.0 may hold it."""
    return printable(text, line=line).translate(_NO_XML)
