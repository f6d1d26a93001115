"""What a check found, as a report.

Its page opens with a sentence and with what was found at each size; its chart has the probes
that fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.grid import short_size
from needlemap.reports.report import (
    FIGURES,
    SENTENCE,
    Claim,
    Column,
    Fact,
    Line,
    Report,
    Row,
    Table,
    Unit,
)
from needlemap.servers.check.finding import UNITS, AtSize, CheckFile, Finding
from needlemap.servers.check.probe import probes
from needlemap.servers.check.schedule import TOTAL
from needlemap.stats.effective import Mean
from needlemap.stats.verdicts import FAIL, NO_RESULT, PASS, SUSPECT, Verdict
from needlemap.text import short

if TYPE_CHECKING:
    from needlemap.servers.check.judge import Checked

NOT_ENDED = Verdict(NO_RESULT, "it has not ended yet")


def _longest(row: Mapping[str, Any]) -> str:
    """The longest size up to which a probe passes."""
    passes = row["passes_to"] and row["state"] != FAIL
    return short_size(row["passes_to"]) if passes else "-"


def _sentence(row: Mapping[str, Any]) -> str:
    """What a probe found, unless it passes: then the counts say all."""
    return "" if row["state"] == PASS else str(row["said"])


def _columns(findings: Iterable[Finding]) -> tuple[Column, ...]:
    """The columns of the table of probes: one for each size."""
    sizes = sorted({row.size for finding in findings for row in finding.sizes})
    return (
        Column("probe", "probe"),
        Column("state", "verdict"),
        Column("to", "to", of=_longest),
        *(
            Column(f"at {size}", short_size(size), FIGURES, of=partial(_counts, size))
            for size in sizes
        ),
        Column("excludes", "excludes", Unit(lambda said: said or "-", number=False)),
        Column("tokens", "tokens", Unit(short), wide=True),
        Column("said", "found", SENTENCE, of=_sentence, wide=True),
    )


def _counts(size: int, row: Mapping[str, Any]) -> str | None:
    """How many answers of one size were lost, of how many; None if none could be."""
    for at_size in row["sizes"]:
        if at_size["size"] == size and at_size["n"]:
            return f"{at_size['lost']:,} of {at_size['n']:,}"
    return None


COUNTED = "Lost of tried, by length in tokens:"


def check_report(
    path: Path,
    model: str,
    found: CheckFile | Checked,
    reference: str,
    spent: str = "",
    more: Iterable[Fact] = (),
) -> Report:
    """The report of a check. reference: what it was compared with, or ''. spent, more: what
    was asked, and what else only a check knows that was just asked."""
    applying = [each for each in found.findings if each.state != "not applicable"]
    verdict = found.verdict or NOT_ENDED
    quick = any(each.probe == TOTAL for each in found.findings)
    return Report(
        "check",
        model,
        (
            Fact("check", str(path)),
            Fact("not_asked", list(found.not_asked)),
            *_found_by_length(found.findings),
            Table(
                "probes",
                _columns(applying),
                tuple(_row(path, each) for each in found.findings),
                COUNTED,
            ),
            Fact(said=spent),
            Fact(said=UNITS),
            *more,
            Fact("not_tried", dict(found.lacking)),
            *_not_tried(found.lacking, reference),
        ),
        verdict,
        (
            Claim("check", verdict.word),
            *(_claim(path, each) for each in applying if each.decides),
        ),
        tuple(_curves(found.findings)),
        axis="Answers without the fault by length, %",
        command="check --quick" if quick else "",
    )


def _found_by_length(findings: Iterable[Finding]) -> Iterator[Fact]:
    """What was found at each size, for the page's head."""
    for each in findings:
        if each.probe == "length":
            for row in each.sizes:
                found = f"{row.n - row.lost:,} of {row.n:,}" if row.n else "nothing answered"
                yield Fact(value=found, head=f"Found at {short_size(row.size)}")


def _curves(findings: Sequence[Finding]) -> Iterator[Line]:
    """A line for each probe that fails; where none does but facts may be lost, what was
    found. A pass has none."""
    failed = [each for each in findings if each.state == FAIL]
    lost = [each for each in findings if each.probe == "length" and each.state == SUSPECT]
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
        _row_details(path, finding),
        worst.way if worst else "",
        finding.state != "not applicable",
    )


def _row_details(path: Path, finding: Finding) -> tuple[str, ...]:
    """What is said of a row below the table: nothing of one that passes."""
    if not (finding.is_open or finding.state == FAIL):
        return ()
    return f"{finding.probe}: {finding.said}", *_details(path, finding)


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


def _claim(path: Path, finding: Finding) -> Claim:
    """A probe's own test case."""
    assert finding.state != "not applicable"
    text = "\n".join([f"{finding.probe}: {finding.said}", *_details(path, finding)])
    return Claim(finding.probe, finding.state, finding.said, text)


def _replay(path: Path, finding: Finding) -> str:
    """The command that shows the smallest trial of a finding; '' without one."""
    if finding.worst is None:
        return ""
    return f"needlemap replay {path} --probe {finding.probe} --worst"
