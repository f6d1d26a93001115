"""Compare a check with an earlier one of the same prompts: unchanged rows, and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.effects import net_loss
from needlemap.servers.check.finding import AtSize, Worst
from needlemap.servers.check.judge import Checked, settle
from needlemap.servers.check.probe import LEAST, Probe, haystack_counts
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

    If a row stayed the same, it counts as passed, for the change only. If a row lost answers since
    the earlier check, it fails.

    Args:
        schedule: The schedule of the check.
        checked: The outcome of this check alone.
        now: The answers of this check.
        before: The answers of the earlier check.
        name: The name of the earlier check.
        look: The number of the look at the answers.
    """
    findings = []
    unchanged_rows = 0
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
                unchanged_rows += 1
            rows.append(changed_row)
        changed_finding = probe.whole(rows, finding.accepted)
        findings.append(replace(changed_finding, tokens=finding.tokens, seconds=finding.seconds))

    outcome = settle(schedule, findings)
    rows_text = "no row needed it"
    if unchanged_rows:
        rows_text = f"{counted(unchanged_rows, 'row')} stayed as before"
    scope = f"for the change only, beside {name} ({rows_text})"
    if outcome.verdict.scope:
        scope = f"{scope}; {outcome.verdict.scope}"
    return replace(outcome, verdict=replace(outcome.verdict, scope=scope))


def judge_row(
    schedule: Schedule,
    probe: Probe,
    row: AtSize,
    now: Answers,
    before: Answers,
    level: float,
) -> AtSize:
    """Return the row of one size, judged by the change of the same prompts' answers.

    If significantly more haystacks lost answers than gained some, the row fails. If a loss of
    NEW_LOSS or more is ruled out, it passes. Otherwise it is returned unchanged.

    Args:
        schedule: The schedule of the check.
        probe: The probe whose row it is.
        row: The row, as the answers of this check alone have it.
        now: The answers of this check.
        before: The answers of the earlier check.
        level: The alpha of this size at this look.
    """
    pairs = same_asks(schedule, probe, size=row.size, now=now, before=before)
    if not pairs:
        return row

    lost_pairs = [(earlier, later) for earlier, later in pairs if earlier.right and not later.right]
    gained_pairs = [
        (earlier, later) for earlier, later in pairs if later.right and not earlier.right
    ]
    effect = net_loss(len(lost_pairs), len(gained_pairs), len(pairs))
    # There are pairs, so there is an effect.
    assert effect is not None
    losing_haystacks, gaining_haystacks = haystack_counts(lost_pairs, gained_pairs, noise=())
    p_value = lost_by_chance(losing_haystacks, gaining_haystacks)
    sentence = (
        f"{row.said}; {len(lost_pairs)} of {len(pairs)} newly lost, {len(gained_pairs)} gained"
    )

    if lost_pairs and p_value <= level:
        _, first_loss = lost_pairs[0]
        return replace(
            row,
            state=FAIL,
            p=p_value,
            effect=effect,
            said=sentence,
            worst=Worst.of(first_loss),
        )
    if row.state != PASS and len(pairs) >= LEAST and effect.high < NEW_LOSS:
        return replace(
            row,
            state=PASS,
            upper=100 * effect.high,
            effect=effect,
            said=sentence,
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
