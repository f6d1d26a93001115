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
from needlemap.text import xml_text


def to_junit(reports: Sequence[Report], on_undecided: str = "fail") -> bytes:
    """Return the file's bytes. A report's kind, the command, is its cases' class."""
    name = f"needlemap {reports[0].kind}" if reports else "needlemap"
    tags: Counter[str] = Counter()
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": name})
    cases = [(report, claim) for report in reports for claim in report.claims]
    for report, claim in cases:
        attributes = {"classname": name.replace(" ", "."), "name": xml_text(claim.name, line=True)}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        tag = _tag(claim.word, on_undecided)
        tags[tag] += 1
        verdict_attributes = {
            "message": xml_text(claim.said or report.last_line, line=True),
            "type": claim.word,
        }
        part = ElementTree.SubElement(case, tag, verdict_attributes if claim.word != PASS else {})
        part.text = xml_text(claim.text or to_text(report).rstrip("\n"))
    suite.set("tests", str(tags.total()))
    for counter, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(counter, str(tags[tag]))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def write_junit(target: Path, reports: Sequence[Report], on_undecided: str = "fail") -> None:
    """Write the file and the folders on its way. Raises NeedlemapError if it cannot be written."""
    write_report(target, to_junit(reports, on_undecided))


def _tag(word: Word, on_undecided: str) -> str:
    """Return the tag in the case of a claim with this word."""
    if word in (PASS, FAIL):
        return "system-out" if word == PASS else "failure"
    return "error" if exit_code(word, on_undecided) else "skipped"
