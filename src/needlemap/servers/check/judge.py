"""What a check comes to: findings, first line, what was not asked, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from needlemap.errors import Failure, SettingsError, did_you_mean
from needlemap.grid import short_size, tokens
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.finding import Finding
from needlemap.servers.check.schedule import Schedule
from needlemap.stats.verdicts import NO_WORSE, SUSPECT, UNDECIDED, WORSE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check comes to. line: what people came for. lacking: probes that do not apply, and
    why."""

    code: int
    line: str
    findings: tuple[Finding, ...]
    not_asked: tuple[str, ...]
    lacking: Mapping[str, str]


def judge(
    schedule: Schedule,
    replies: Answers | Iterable[Reply],
    look: int = 0,
    failed: Mapping[str, Finding] | None = None,
) -> Verdict:
    """All that is known. look: which look at the answers this is, by default 1 before a second
    round, else 2. failed: what was found at earlier ones; it stays found."""
    answers = replies if isinstance(replies, Answers) else Answers(replies)
    if not look:
        look = 1 + any(reply.ask.round > 1 for reply in answers.by_key.values())
    accepted = accepted_of(schedule)
    findings = []
    for name, probe in schedule.probes.items():
        found = schedule.judged(probe, answers, look)
        before = (failed or {}).get(name)
        if before is not None and found.state != "fail":
            found = before
        if name in accepted and found.sizes:
            found = probe.whole(found.sizes, accepted[name])
        findings.append(found)
    return settle(schedule, findings, unmeasured(answers))


def unmeasured(answers: Answers) -> str:
    """Prompts that the server did not answer, in words; '' without any. They point to a
    loss."""
    kinds = Counter(
        reply.failure
        for reply in answers.by_key.values()
        if reply.failure and reply.failure != Failure.SKIPPED and reply.ask.way != "beyond"
    )
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def settle(schedule: Schedule, findings: Sequence[Finding], lost: str = "") -> Verdict:
    """The verdict that findings come to. lost: what was not answered, in words."""
    sizes, names = required_of(schedule)
    most = max(sizes)
    counted = [
        each
        for each in findings
        if each.decides and each.state != "not applicable" and (not names or each.probe in names)
    ]
    states = [(each, up_to(each, most)) for each in counted]
    missing = must_run(schedule, findings, names)
    lacking = {**schedule.lacking}
    lacking.update({e.probe: e.said for e in findings if e.state == "not applicable"})
    not_asked = unasked(schedule, findings, missing)
    if any(each.state == "fail" for each in findings if each.decides):
        code = WORSE
    elif any(state != "pass" and points for _, (state, points) in states):
        code = SUSPECT
    elif missing or any(state != "pass" for _, (state, _) in states) or not states:
        code = SUSPECT if lost else UNDECIDED
    else:
        code = NO_WORSE
    line = first_line(schedule, findings, code, sizes, names, not_asked)
    line += f"; not answered: {lost}" if lost else ""
    return Verdict(code, line, tuple(findings), not_asked, lacking)


def up_to(finding: Finding, most: int) -> tuple[str, bool]:
    """The state of the sizes up to one, and whether something in them points to a loss."""
    rows = [r for r in finding.sizes if r.size <= most and r.size not in finding.accepted]
    if not rows or finding.state == "fail":
        return finding.state, finding.points
    left = [row for row in rows if row.state != "pass"]
    return ("undecided" if left else "pass"), any(row.points for row in left)


def required_of(schedule: Schedule) -> tuple[list[int], list[str]]:
    """The sizes and the probes that exit 0 needs: all sizes, and all probes (none is named),
    unless --require says less. Raises SettingsError for what is neither."""
    sizes, names = list[int](), list[str]()
    for word in schedule.options.require:
        if word in schedule.every:
            names.append(word)
        else:
            sizes.append(size_of(schedule, word, "--require"))
    return [each for each in schedule.sizes if not sizes or each <= max(sizes)], names


def size_of(schedule: Schedule, word: str, flag: str) -> int:
    """A size as typed. Raises SettingsError where it is none of the check's."""
    try:
        size = int(tokens(word))
    except SettingsError:
        size = 0
    if size in schedule.sizes:
        return size
    known = [*(short_size(each) for each in schedule.sizes), *schedule.every]
    raise SettingsError(f"{flag} {word}: no size and no probe. {did_you_mean(word, known)}")


def accepted_of(schedule: Schedule) -> dict[str, tuple[int, ...]]:
    """Sizes taken out by name, by probe: --accept length@128k. Raises SettingsError."""
    found: dict[str, tuple[int, ...]] = {}
    for word in schedule.options.accept:
        name, at, size = word.partition("@")
        if name not in schedule.every or not at:
            raise SettingsError(
                f"--accept {word}: give PROBE@SIZE, as length@{short_size(schedule.sizes[-1])}."
            )
        found[name] = (*found.get(name, ()), size_of(schedule, size, "--accept"))
    return found


def must_run(
    schedule: Schedule, findings: Sequence[Finding], names: Collection[str]
) -> tuple[str, ...]:
    """Probes without which there is no exit 0, and that did not run."""
    ran = {each.probe for each in findings if each.n or each.state == "not applicable"}
    wanted = names or [name for name, probe in schedule.every.items() if probe.must]
    return tuple(name for name in wanted if name not in ran)


def unasked(
    schedule: Schedule, findings: Sequence[Finding], missing: Collection[str]
) -> tuple[str, ...]:
    """What was not asked, size by size; and probes that must have run."""
    rows: dict[int, list[str]] = {size: [] for size in schedule.sizes}
    whole = [each for each in findings if each.sizes and each.state != "not applicable"]
    for each in whole:
        for row in each.sizes:
            if not row.n and not row.lost and row.size in rows and "nothing" in row.said:
                rows[row.size].append(each.probe)
    found = []
    for size, names in rows.items():
        every = [each.probe for each in whole if any(row.size == size for row in each.sizes)]
        if names and len(names) == len(every):
            found.append(short_size(size))
        elif names:
            found.append(f"{short_size(size)}: {', '.join(names)}")
    left = [name for name in missing if name not in {each.probe for each in findings}]
    return (*found, *([f"probes: {', '.join(left)}"] if left else []))


def undecided_beside(
    schedule: Schedule, findings: Sequence[Finding], sizes: Sequence[int], names: Sequence[str]
) -> list[str]:
    """Sizes and probes that were asked, that do not pass, and that exit 0 does not need."""
    decides = [each for each in findings if each.decides and each.state == "undecided"]
    wanted = [each for each in decides if not names or each.probe in names]
    open_rows = [row for each in wanted for row in each.sizes if row.state != "pass" and row.n]
    open_sizes = {row.size for row in open_rows if row.size > max(sizes)}
    others = [each.probe for each in decides if each not in wanted and each.n]
    return [*(short_size(size) for size in schedule.sizes if size in open_sizes), *others]


def first_line(
    schedule: Schedule,
    findings: Sequence[Finding],
    code: int,
    sizes: Sequence[int],
    names: Sequence[str],
    not_asked: Sequence[str],
) -> str:
    """Found by length; what was taken out by name; up to where it passes; what was not
    asked."""
    by_name = {each.probe: each for each in findings}
    parts = []
    if (length := by_name.get("length")) is not None:
        shown = [
            f"{short_size(row.size)} "
            + (f"{row.n - row.lost} of {row.n}" if row.n else "no prompt answered")
            for row in length.sizes
            if row.n or row.points
        ]
        parts.append(f"found by length: {' · '.join(shown) or 'nothing was asked'}")
    taken = [f"{each.probe}@{short_size(size)}" for each in findings for size in each.accepted]
    if taken:
        parts.append(f"accepted: {', '.join(taken)}")
    if code == NO_WORSE and (len(sizes) < len(schedule.sizes) or names):
        what = short_size(max(sizes)) if len(sizes) < len(schedule.sizes) else ""
        needed = ", ".join([f"to {what}"] * bool(what) + [*names])
        parts.append(f"pass {needed} (required)")
        if left := undecided_beside(schedule, findings, sizes, names):
            parts.append(f"undecided: {', '.join(left)}")
    if not_asked:
        parts.append(f"not asked: {', '.join(not_asked)}")
    return "; ".join(parts)
