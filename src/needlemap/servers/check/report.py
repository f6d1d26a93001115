"""What a check found, as a report.

Its page opens with a sentence and with what was found at each size; its chart has the probes
that fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.grid import short_size
from needlemap.reports.report import (
    SENTENCE,
    Claim,
    Column,
    Fact,
    Line,
    Report,
    Row,
    Table,
    Unit,
    Verdict,
)
from needlemap.servers.check.finding import UNITS, AtSize, CheckFile, Finding
from needlemap.servers.check.probe import probes
from needlemap.stats.effective import Mean
from needlemap.stats.verdicts import NO_WORSE, SUSPECT, UNDECIDED, WORSE
from needlemap.text import counted, short

if TYPE_CHECKING:
    from needlemap.servers.check.judge import Verdict as Judged


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
    reference: str,
    spent: str = "",
    more: Iterable[Fact] = (),
    ends: int | None = None,
) -> Report:
    """The report of a check. reference: what it was compared with, or ''. spent, more: what
    was asked, and what else only a check knows that was just asked. ends: the exit code that
    the command ends with, by default the verdict's."""
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
            *_found_by_length(found.findings),
            Table("probes", COLUMNS, tuple(_row(path, each) for each in found.findings)),
            Fact(said=spent),
            Fact(said=UNITS),
            *more,
            Fact("not_tried", dict(found.lacking)),
            *_not_tried(found.lacking, reference),
        ),
        Verdict(
            states or "not ended yet",
            found.line,
            found.code,
            ends,
            leads=True,
            answer=_answer(found),
        ),
        (
            Claim("check", code, found.line, found.line),
            *(_claim(path, each, code) for each in applying if each.decides),
        ),
        tuple(_curves(found)),
        axis="Answers without the fault by length, %",
    )


def _answer(found: CheckFile | Judged) -> str:
    """What it comes to in a sentence, and what it cannot say."""
    passes = [each for each in found.findings if each.state == "pass"]
    open_ones = [each for each in found.findings if each.state == "undecided" and each.decides]
    pointing = [each for each in open_ones if each.points]
    ends = sorted({row.size for each in passes for row in each.sizes})
    if found.code is None:
        said = "The check has not ended yet"
    elif found.code == NO_WORSE:
        upto = f" up to {short_size(ends[-1])} tokens" if ends else ""
        said = f"No fault found by {counted(len(passes), 'probe')}{upto}"
        said += f"; undecided, not required: {_names(open_ones)}" if open_ones else ""
    elif found.code == WORSE:
        failed = [each for each in found.findings if each.state == "fail" and each.decides]
        said = f"A fault is found by {_names(failed, 'fail')}"
    elif pointing:
        said = f"Undecided, and something points to a fault: {_names(pointing, 'points')}"
    elif found.code == SUSPECT:
        said = "Undecided, and something points to a fault"
    else:
        left = f": {_names(open_ones)}" if open_ones else ""
        said = f"Undecided, and nothing points to a fault{left}"
    parts = found.line.split("; ")
    more = [each for each in parts if each and not each.startswith("found by length")]
    said = "; ".join([said, *more])
    return f"{said}. Not tried: {', '.join(found.lacking)}" if found.lacking else said


def _names(findings: Sequence[Finding], what: str = "") -> str:
    """'length (from 4k on), cut'. what: which size counts, the first that fails or that points
    to a loss."""
    names = []
    for each in findings:
        shown = (row for row in each.sizes if _shows(row, what))
        first = next(shown, None)
        names.append(f"{each.probe} (at {short_size(first.size)})" if first else each.probe)
    return ", ".join(names)


def _shows(row: AtSize, what: str) -> bool:
    return row.state == "fail" if what == "fail" else row.points if what else False


def _found_by_length(findings: Iterable[Finding]) -> Iterator[Fact]:
    """What was found at each size, for the page's head."""
    for each in findings:
        if each.probe == "length":
            for row in each.sizes:
                found = f"{row.n - row.lost:,} of {row.n:,}" if row.n else "nothing answered"
                yield Fact(value=found, head=f"Found at {short_size(row.size)}")


def _curves(found: CheckFile | Judged) -> Iterator[Line]:
    """A line for each probe that fails; of a check that is undecided and points to a loss,
    what was found. A pass has none."""
    failed = [each for each in found.findings if each.state == "fail"]
    lost = [each for each in found.findings if each.probe == "length" and each.points]
    for each in failed or lost:
        means = {row.size: _mean(row) for row in each.sizes if row.n}
        if any(row.lost for row in each.sizes):
            yield Line(each.probe, means)


def _mean(row: AtSize) -> Mean:
    """The share of answers that a fault did not take, with the effect's interval where that is
    the same share."""
    score, effect = 1 - row.lost / row.n, row.effect
    if effect is None or effect.unit != "share" or abs(1 - effect.value - score) > 1e-6:
        return Mean(score, None, None)
    return Mean(score, max(0.0, 1 - effect.high), min(1.0, 1 - effect.low))


def _not_tried(lacking: Mapping[str, str], reference: str) -> Iterator[Fact]:
    """What this check cannot tell."""
    for name, why in lacking.items():
        yield Fact(said=f"not tried: {name} needs {why.removeprefix('needs ')}")
    if not reference:
        yield Fact(said=f"not seen without --reference: {probes()['reference'].sees}")


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
