"""What a check found, as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.check.finding import UNITS, CheckFile, Finding
from needlemap.check.probe import short_size
from needlemap.maps.verdicts import NO_WORSE, SUSPECT, UNDECIDED, WORSE
from needlemap.reports.report import (
    SENTENCE,
    Claim,
    Column,
    Fact,
    Report,
    Row,
    Table,
    Unit,
    Verdict,
)
from needlemap.text import short

if TYPE_CHECKING:
    from needlemap.check.judge import Verdict as Judged


def _longest(row: Mapping[str, Any]) -> str:
    """The longest size up to which a probe passes."""
    passes = row["passes_to"] and row["state"] != "fail"
    return short_size(row["passes_to"]) if passes else "-"


COLUMNS = (
    Column("probe", "probe"),
    Column("state", "verdict"),
    Column("to", "to", of=_longest),
    Column("excludes", "excludes", Unit(lambda said: said or "-", number=False)),
    Column("tokens", "tokens", Unit(short), wide=True),
    Column("said", "found", SENTENCE),
)


def check_report(
    path: Path,
    model: str,
    found: CheckFile | Judged,
    spent: str = "",
    more: Iterable[Fact] = (),
    ends: int | None = None,
) -> Report:
    """The report of a check. spent, more: what was asked, and what else only a check knows that was
    just asked. ends: the exit code that the command ends with, by default the verdict's."""
    applying = [each for each in found.findings if each.state != "not applicable"]
    counts = Counter(each.state for each in applying)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    code = UNDECIDED if found.code is None else found.code
    return Report(
        "check",
        model,
        (
            Fact("check", str(path)),
            Fact("code", found.code if ends is None else ends),
            Fact("verdict_code", found.code),
            Fact("line", found.line),
            Fact("not_asked", list(found.not_asked)),
            Fact(value=states or "not ended yet", head="Check", note="probes"),
            Fact(value="-" if found.code is None else str(found.code), head="Exit code"),
            Table("probes", COLUMNS, tuple(_row(path, each) for each in found.findings)),
            Fact(said=spent),
            Fact(said=UNITS),
            *more,
        ),
        Verdict(states, found.line, found.code, ends, leads=True),
        (
            Claim("check", code, found.line, found.line),
            *(_claim(path, each, code) for each in applying if each.decides),
        ),
    )


def _row(path: Path, finding: Finding) -> Row:
    """A probe, the public faults that look like what it found, and how to see that again."""
    worst = finding.worst
    return Row(
        asdict(finding) | {"replay": _replay(path, finding)},
        _details(path, finding) if finding.state in ("fail", "undecided") else (),
        worst.way if worst else "",
        finding.state != "not applicable",
    )


def _details(path: Path, finding: Finding) -> tuple[str, ...]:
    """What the finding looks like, and how to see it again."""
    name = finding.probe
    found = [
        f"{name} looks like: {fault.name}\n  {fault.link}\n  try: {fault.tried}"
        for fault in finding.known
    ]
    if finding.worst is not None:
        see = f"see it: {_replay(path, finding)}"
        found = [*found[:-1], f"{found[-1]}\n  {see}"] if found else [see]
    return tuple(found)


def _claim(path: Path, finding: Finding, code: int) -> Claim:
    """A probe's own test case. code: of the whole check."""
    doubtful = code if code in (UNDECIDED, SUSPECT) else SUSPECT
    own = {"pass": NO_WORSE, "fail": WORSE}.get(finding.state, doubtful)
    text = "\n".join([f"{finding.probe}: {finding.said}", *_details(path, finding)])
    return Claim(finding.probe, own, finding.said, text)


def _replay(path: Path, finding: Finding) -> str:
    """The command that shows the smallest trial of a finding; '' without one."""
    if finding.worst is None:
        return ""
    return f"needlemap replay {path} --probe {finding.probe} --worst"
