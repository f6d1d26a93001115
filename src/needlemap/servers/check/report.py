"""The report of a check.

Its page opens with a sentence and with what was found at each size; its chart has the probes
that fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.grid import short_size
from needlemap.reports.report import (
    COUNT,
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
from needlemap.servers.check.finding import UNITS, AtSize, CheckFile, Finding, WayRow
from needlemap.servers.check.probe import probes
from needlemap.servers.check.schedule import TOTAL
from needlemap.servers.check.ways import TITLES
from needlemap.stats.effective import Mean
from needlemap.stats.verdicts import FAIL, NOT_ENDED, PASS, SUSPECT
from needlemap.text import short

if TYPE_CHECKING:
    from needlemap.servers.check.judge import Checked


def _longest(row: Mapping[str, Any]) -> str:
    """Return the longest size up to which a probe passes, or '-'."""
    if row["state"] == FAIL or not row["passes_to"]:
        return "-"
    return short_size(row["passes_to"])


def _sentence(row: Mapping[str, Any]) -> str:
    """Return the finding in words, or '' if the counts of a pass are enough."""
    if row["state"] == PASS and not _shows_pass(row["probe"]):
        return ""
    return str(row["said"])


def _shows_pass(name: str) -> bool:
    """Return True if a pass of this probe needs words. A folder may name one not installed."""
    probe = probes().get(name)
    return probe is not None and probe.shows_pass


def _columns(findings: Iterable[Finding]) -> tuple[Column, ...]:
    """Return the columns of the table of probes, with one for each size."""
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
    """Return how many of the answers of one size were lost, or None if there are none."""
    for at_size in row["sizes"]:
        if at_size["size"] == size and at_size["n"]:
            return f"{at_size['lost']:,} of {at_size['n']:,}"
    return None


COUNTED = "Lost of tried, by length in tokens:"
COMPARED = "Log-probabilities beside the same prompts alone and cold, in nats:"
NATS = Unit("{:.2g}".format)
WAYS = (
    Column("way", "way of asking"),
    Column("state", "verdict"),
    Column("n", "prompts", COUNT),
    Column("beyond", "moved", COUNT),
    Column("confirmed", "again", COUNT),
    Column("half", "median", NATS),
    Column("most", "most", NATS),
)


def check_report(
    path: Path,
    model: str,
    check: CheckFile | Checked,
    reference: str,
    spent: str = "",
    more: Iterable[Fact] = (),
) -> Report:
    """Return the report of a check.

    reference: the model that it was compared with, or ''.
    spent: the line of the prompts and tokens that were sent; '' unless the check just ran.
    more: further facts of a check that just ran.
    """
    findings = check.findings
    applicable = [finding for finding in findings if finding.state != "not applicable"]
    verdict = check.verdict or NOT_ENDED
    quick = any(finding.probe == TOTAL for finding in findings)
    return Report(
        "check",
        model,
        (
            Fact("check", str(path)),
            Fact("not_asked", list(check.not_asked)),
            *_found_by_length(findings),
            Table(
                "probes",
                _columns(applicable),
                tuple(_row(path, finding) for finding in findings),
                COUNTED,
            ),
            *_equal_ways(findings),
            Fact(said=spent),
            Fact(said=UNITS),
            *more,
            Fact("not_tried", dict(check.lacking)),
            *_not_tried(check.lacking, reference),
        ),
        verdict,
        (
            Claim("check", verdict.word),
            # What is open in a check that passes is not required, so CI does not count it.
            *(
                _claim(path, finding)
                for finding in applicable
                if finding.decides and not (verdict.word == PASS and finding.is_open)
            ),
        ),
        tuple(_curves(findings)),
        axis="Answers without the fault by length, %",
        command="check --quick" if quick else "",
    )


def _equal_ways(findings: Iterable[Finding]) -> Iterator[Table]:
    """Yield the table of ways of asking, if these were compared."""
    for finding in findings:
        rows = [row for row in finding.ways if row.n]
        if rows:
            yield Table("ways", WAYS, tuple(Row(_way_values(row)) for row in rows), COMPARED)


def _way_values(row: WayRow) -> dict[str, Any]:
    """Return the values of a way's row."""
    nats = row.percentiles
    return {
        "way": TITLES[row.way],
        "state": row.state,
        "n": row.n,
        "beyond": row.beyond,
        "confirmed": row.confirmed,
        "half": nats.get(50),
        "most": nats.get(100),
    }


def _found_by_length(findings: Iterable[Finding]) -> Iterator[Fact]:
    """Yield how many facts were found at each size, for the page's head."""
    for finding in findings:
        if finding.probe != "length":
            continue
        for row in finding.sizes:
            count = f"{row.n - row.lost:,} of {row.n:,}" if row.n else "nothing answered"
            yield Fact(value=count, head=f"Found at {short_size(row.size)}")


def _curves(findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield a line for each probe that fails.

    If none fails but facts may be lost, the line is of the facts that were found. A pass has no
    line.
    """
    shown = [finding for finding in findings if finding.state == FAIL]
    if not shown:
        shown = [
            finding
            for finding in findings
            if finding.probe == "length" and finding.state == SUSPECT
        ]
    for finding in shown:
        if any(row.lost for row in finding.sizes):
            means = {row.size: _mean(row) for row in finding.sizes if row.n}
            yield Line(finding.probe, means)


def _mean(row: AtSize) -> Mean:
    """Return the share of answers that were not lost, with its interval if that is known.

    The interval is the effect's, if the effect is the loss of the same share.
    """
    score = 1 - row.lost / row.n
    effect = row.effect
    if effect is None or effect.unit != "share" or abs(1 - effect.value - score) > 1e-6:
        return Mean(score, None, None)
    return Mean(score, max(0.0, 1 - effect.high), min(1.0, 1 - effect.low))


def _not_tried(lacking: Mapping[str, str], reference: str) -> Iterator[Fact]:
    """Yield the probes that did not apply with their reasons, and the faults that were not seen."""
    names_by_reason = defaultdict[str, list[str]](list)
    for name, reason in lacking.items():
        names_by_reason[reason.removeprefix("needs ")].append(name)
    for reason, names in names_by_reason.items():
        verb = "needs" if len(names) == 1 else "need"
        yield Fact(said=f"not tried: {', '.join(names)} {verb} {reason}")
    if not reference:
        yield Fact(said=f"not seen without --reference: {probes()['reference'].sees}")


def _row(path: Path, finding: Finding) -> Row:
    """Return the row of a probe, with its details and the command that shows its worst trial."""
    worst = finding.worst
    return Row(
        asdict(finding) | {"replay": _replay_command(path, finding)},
        _row_details(path, finding),
        worst.way if worst else "",
        finding.state != "not applicable",
    )


def _row_details(path: Path, finding: Finding) -> tuple[str, ...]:
    """Return the lines below the table for a row: of a pass none, or its sentence alone."""
    if finding.state == PASS and _shows_pass(finding.probe):
        return (f"{finding.probe}: {finding.said}",)
    if not (finding.is_open or finding.state == FAIL):
        return ()
    return f"{finding.probe}: {finding.said}", *_details(path, finding)


def _details(path: Path, finding: Finding) -> tuple[str, ...]:
    """Return the public faults that look like a finding, and the command that shows it again."""
    details = [
        f"{finding.probe} looks like: {fault.name}\n  {fault.link}\n  try: {fault.tried}"
        for fault in finding.known
    ]
    if finding.worst is not None:
        command = f"see it: {_replay_command(path, finding)}"
        if details:
            details[-1] += f"\n  {command}"
        else:
            details.append(command)
    return tuple(details)


def _claim(path: Path, finding: Finding) -> Claim:
    """Return the test case of a probe."""
    assert finding.state != "not applicable"
    text = "\n".join([f"{finding.probe}: {finding.said}", *_details(path, finding)])
    return Claim(finding.probe, finding.state, finding.said, text)


def _replay_command(path: Path, finding: Finding) -> str:
    """Return the command that shows the smallest trial of a finding, or '' if it has none."""
    if finding.worst is None:
        return ""
    return f"needlemap replay {path} --probe {finding.probe} --worst"
