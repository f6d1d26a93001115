"""Compare a check with an earlier one of the same prompts: unchanged rows, and losses."""

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

# Upper end of the interval of the net loss below which a row counts as unchanged.
NEW_LOSS = 0.10


def judge_change(
    schedule: Schedule,
    checked: Checked,
    now: Answers,
    before: Answers,
    name: str,
    look: int = 1,
) -> Checked:
    """Return the verdict of the change since an earlier check.

    A row that stayed the same counts as passed, for the change only. A row that lost answers
    since the earlier check fails. name: the earlier check's.
    """
    findings = []
    unchanged = 0
    for finding in checked.findings:
        probe = schedule.probes[finding.probe]
        if not finding.sizes or finding.state == "not applicable":
            findings.append(finding)
            continue

        level = probe.level(look, len(schedule.sizes))
        rows = []
        for row in finding.sizes:
            changed_row = judge_row(
                schedule=schedule,
                probe=probe,
                row=row,
                now=now,
                before=before,
                level=level,
            )
            if changed_row.state == PASS and row.state != PASS:
                unchanged += 1
            rows.append(changed_row)
        changed = probe.whole(rows, finding.accepted)
        findings.append(replace(changed, tokens=finding.tokens, seconds=finding.seconds))

    settled = settle(schedule, findings)
    rows_text = f"{counted(unchanged, 'row')} stayed as before" if unchanged else "no row needed it"
    scope = f"for the change only, beside {name} ({rows_text})"
    if settled.verdict.scope:
        scope = f"{scope}; {settled.verdict.scope}"
    return replace(settled, verdict=replace(settled.verdict, scope=scope))


def judge_row(
    schedule: Schedule,
    probe: Probe,
    row: AtSize,
    now: Answers,
    before: Answers,
    level: float,
) -> AtSize:
    """Return a row as the same prompts of the earlier check change it."""
    pairs = same_asks(schedule, probe, size=row.size, now=now, before=before)
    if not pairs:
        return row

    lost = [(old, new) for old, new in pairs if old.right and not new.right]
    gained = [(old, new) for old, new in pairs if new.right and not old.right]
    effect = net_loss(len(lost), len(gained), len(pairs))
    # There are pairs, so there is an effect.
    assert effect is not None
    p = lost_by_chance(*haystacks_apart(lost, gained, ()))
    said = f"{row.said}; {len(lost)} of {len(pairs)} newly lost, {len(gained)} gained"
    if lost and p <= level:
        _, first_loss = lost[0]
        return replace(
            row,
            state=FAIL,
            p=p,
            effect=effect,
            said=said,
            worst=Worst.of(first_loss),
        )
    if row.state != PASS and len(pairs) >= LEAST and effect.high < NEW_LOSS:
        return replace(
            row,
            state=PASS,
            upper=100 * effect.high,
            effect=effect,
            said=said,
        )
    return row


def same_asks(
    schedule: Schedule, probe: Probe, size: int, now: Answers, before: Answers
) -> Sequence[tuple[Reply, Reply]]:
    """Return the answers of both checks to the same asks of a probe, the earlier one first."""
    pairs = []
    for reply in now.of(size, *sorted(probe.ways(schedule))):
        earlier = before.by_key.get(reply.ask.key)
        if earlier is not None and earlier.measured:
            pairs.append((earlier, reply))
    return pairs
