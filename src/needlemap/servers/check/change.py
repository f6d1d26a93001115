"""Compare a check with an earlier one of the same prompts: unchanged rows, and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from needlemap.errors import Failure
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.effects import net_loss
from needlemap.servers.check.finding import AtSize, Worst
from needlemap.servers.check.judge import Checked, judge, settle
from needlemap.servers.check.probe import (
    LEAST,
    Probe,
    gained_of,
    haystack_counts,
    lost_of,
)
from needlemap.servers.check.schedule import Schedule
from needlemap.stats.exact import lost_by_chance
from needlemap.stats.verdicts import FAIL, PASS, Word, combined_word
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
    the earlier check, it fails. The earlier check is judged too, because a row that passed there
    and does not pass now did not stay the same.

    Args:
        schedule: The schedule of the check.
        checked: The outcome of this check alone.
        now: The answers of this check.
        before: The answers of the earlier check.
        name: The name of the earlier check.
        look: The number of the look at the answers.
    """
    earlier_findings = {
        finding.probe: finding for finding in judge(schedule, before, look).findings
    }
    findings = []
    unchanged_rows = 0
    for finding in checked.findings:
        probe = schedule.probes[finding.probe]
        earlier_finding = earlier_findings[finding.probe]
        if finding.state == "not applicable" and earlier_finding.sizes:
            # A model that found facts before and finds little now is not a weak model.
            finding = probe.judge(schedule, now, look)
        if not finding.sizes or finding.state == "not applicable":
            findings.append(finding)
            continue

        level = probe.level(look, len(schedule.sizes))
        earlier_words = {row.size: row.state for row in earlier_finding.sizes}
        rows = []
        for row in finding.sizes:
            changed_row = judge_row(
                schedule=schedule,
                probe=probe,
                row=row,
                now=now,
                before=before,
                level=level,
                earlier_word=earlier_words.get(row.size, PASS),
            )
            if changed_row.state == PASS and row.state != PASS:
                unchanged_rows += 1
            rows.append(changed_row)
        if rows != list(finding.sizes):
            finding = replace(
                probe.whole(rows, finding.accepted),
                tokens=finding.tokens,
                seconds=finding.seconds,
            )
        findings.append(finding)

    outcome = settle(schedule, findings, now)
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
    earlier_word: Word,
) -> AtSize:
    """Return the row of one size, judged by the change of the same prompts' answers.

    If significantly more haystacks lost answers than gained some, the row fails. If a loss of
    NEW_LOSS or more is ruled out, it passes, provided that it rests on right answers alone and was
    as bad before. Otherwise it is returned unchanged.

    Args:
        schedule: The schedule of the check.
        probe: The probe whose row it is.
        row: The row, as the answers of this check alone have it.
        now: The answers of this check.
        before: The answers of the earlier check.
        level: The alpha of this size at this look.
        earlier_word: The word of the row in the earlier check alone.
    """
    pairs = same_asks(schedule, probe, size=row.size, now=now, before=before)
    if not pairs:
        return row

    lost_pairs = lost_of(pairs)
    gained_pairs = gained_of(pairs)
    # A failure to answer keeps a row from passing, but it is not a wrong answer.
    wrong_pairs = [(earlier, later) for earlier, later in lost_pairs if later.measured]
    effect = net_loss(len(lost_pairs), len(gained_pairs), len(pairs))
    # There are pairs, so there is an effect.
    assert effect is not None
    losing_haystacks, gaining_haystacks = haystack_counts(wrong_pairs, gained_pairs, noise=())
    p_value = lost_by_chance(losing_haystacks, gaining_haystacks)
    sentence = (
        f"{row.said}; {len(lost_pairs)} of {len(pairs)} newly lost, {len(gained_pairs)} gained"
    )

    if wrong_pairs and p_value <= level:
        _, first_loss = wrong_pairs[0]
        return replace(
            row,
            state=FAIL,
            p=p_value,
            effect=effect,
            said=sentence,
            worst=Worst.of(first_loss),
        )
    was_as_bad = combined_word([row.state, earlier_word]) == earlier_word
    may_pass = row.state != PASS and was_as_bad and probe.rests_on_right_answers(row)
    if may_pass and len(pairs) >= LEAST and effect.high < NEW_LOSS:
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
    """Return the replies of both checks to the same asks of a probe, the earlier one first.

    The earlier check got an answer to each. If this check sent the prompt and got none, its reply
    is the failure.
    """
    pairs = []
    for earlier in before.of(size, *sorted(probe.ways(schedule))):
        reply = now.by_key.get(earlier.ask.key)
        if reply is not None and reply.failure != Failure.SKIPPED:
            pairs.append((earlier, reply))
    return pairs
