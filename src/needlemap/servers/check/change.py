"""A check beside an earlier one of the same prompts: what stayed as it was, and what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.effects import net_loss
from needlemap.servers.check.finding import AtSize, Worst
from needlemap.servers.check.judge import Checked, settle
from needlemap.servers.check.probe import LEAST, Probe, haystacks_apart
from needlemap.servers.check.schedule import Schedule
from needlemap.stats.exact import lost_by_chance
from needlemap.stats.verdicts import FAIL, PASS
from needlemap.text import counted

NEW_LOSS = 0.10  # upper end below which a row stayed as it was


def judge_change(
    schedule: Schedule, found: Checked, now: Answers, before: Answers, name: str, look: int = 1
) -> Checked:
    """The verdict of the change. A row that stayed as it was counts as passed, for the change
    only; a row whose answers are lost beside the earlier check fails. name: the earlier
    check's."""
    findings, same = [], 0
    for finding in found.findings:
        probe = schedule.probes[finding.probe]
        if not finding.sizes or finding.state == "not applicable":
            findings.append(finding)
            continue
        level = probe.level(look, len(schedule.sizes))
        rows = [judge_row(schedule, probe, row, now, before, level) for row in finding.sizes]
        same += sum(a.state == PASS != b.state for a, b in zip(rows, finding.sizes, strict=True))
        changed = probe.whole(rows, finding.accepted)
        findings.append(replace(changed, tokens=finding.tokens, seconds=finding.seconds))
    made = settle(schedule, findings)
    rows_said = f"{counted(same, 'row')} stayed as before" if same else "no row needed it"
    scope = f"for the change only, beside {name} ({rows_said})"
    scope = "; ".join(filter(None, (scope, made.verdict.scope)))
    return replace(made, verdict=replace(made.verdict, scope=scope))


def judge_row(
    schedule: Schedule, probe: Probe, row: AtSize, now: Answers, before: Answers, level: float
) -> AtSize:
    """A row beside the same row of before."""
    pairs = same_asks(schedule, probe, row.size, now, before)
    if not pairs:
        return row
    lost = [pair for pair in pairs if pair[0].right and not pair[1].right]
    gained = [pair for pair in pairs if pair[1].right and not pair[0].right]
    effect = net_loss(len(lost), len(gained), len(pairs))
    assert effect is not None  # there are some
    p = lost_by_chance(*haystacks_apart(lost, gained, ()))
    said = f"{row.said}; {len(lost)} of {len(pairs)} newly lost, {len(gained)} gained"
    if lost and p <= level:
        worst = Worst.of(lost[0][1])
        return replace(row, state=FAIL, p=p, effect=effect, said=said, worst=worst)
    if row.state != PASS and len(pairs) >= LEAST and effect.high < NEW_LOSS:
        upper = 100 * effect.high
        return replace(row, state=PASS, upper=upper, effect=effect, said=said)
    return row


def same_asks(
    schedule: Schedule, probe: Probe, size: int, now: Answers, before: Answers
) -> Sequence[tuple[Reply, Reply]]:
    """Answers to the same asks of a probe: before, then now."""
    rows = now.of(size, *sorted(probe.ways(schedule)))
    pairs = ((before.by_key.get(reply.ask.key), reply) for reply in rows)
    return [(old, new) for old, new in pairs if old is not None and old.measured]
