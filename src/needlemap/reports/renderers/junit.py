"""Reports as JUnit XML, which CI systems show.

A claim is a test case: what fails is a failure; any other word than PASS is an error, and NOT
ENOUGH DATA is skipped where it is to pass. The word is its type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from needlemap.files import write_report
from needlemap.reports.renderers.text import to_text
from needlemap.reports.report import Report
from needlemap.stats.verdicts import FAIL, PASS, Word, exit_code
from needlemap.text import printable

_NO_XML = {0xFFFE: None, 0xFFFF: None}  # no characters, and not printable's to drop


def to_junit(reports: Sequence[Report], on_undecided: str = "fail") -> bytes:
    """The file's bytes. A report's kind, the command, is its cases' class."""
    name, tags = f"needlemap {reports[0].kind}" if reports else "needlemap", Counter[str]()
    root = ElementTree.Element("testsuites")
    under = ElementTree.SubElement(root, "testsuite", {"name": name})
    for report, claim in [(each, claim) for each in reports for claim in each.claims]:
        about = {"classname": name.replace(" ", "."), "name": _text(claim.name, line=True)}
        case = ElementTree.SubElement(under, "testcase", about)
        tag = _tag(claim.word, on_undecided)
        tags[tag] += 1
        why = {"message": _text(claim.said or report.last, line=True), "type": claim.word}
        part = ElementTree.SubElement(case, tag, why if claim.word != PASS else {})
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


def _tag(word: Word, on_undecided: str) -> str:
    """What stands in the case of a claim with this word."""
    if word in (PASS, FAIL):
        return "system-out" if word == PASS else "failure"
    return "error" if exit_code(word, on_undecided) else "skipped"


def _text(text: str, *, line: bool = False) -> str:
    """A text as XML 1.0 may hold it."""
    return printable(text, line=line).translate(_NO_XML)
