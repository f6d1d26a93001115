"""What a check comes to: findings, first line, what was not asked, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from needlemap.errors import Failure, SettingsError, did_you_mean
from needlemap.grid import short_size, tokens
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.finding import Finding
from needlemap.servers.check.schedule import TOTAL, Schedule
from needlemap.stats.verdicts import (
    FAIL,
    NOT_ENOUGH_DATA,
    OPEN,
    PASS,
    SUSPECT,
    Verdict,
    Word,
    combined_word,
)
from needlemap.text import counted

UNTESTED = "drift, replicas, lengths between, follow-up turns"  # by a quick check
WAYS = {  # what a way of asking is, in words
    "cold": "cold",
    "warm": "from the cache",
    "again": "twice",
    "loaded": "at a time",
    "after": "behind a wave",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found. lacking: probes that do not apply, and why."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    not_asked: tuple[str, ...]
    lacking: Mapping[str, str]


def judge(
    schedule: Schedule,
    replies: Answers | Iterable[Reply],
    look: int = 0,
    failed: Mapping[str, Finding] | None = None,
) -> Checked:
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
        if before is not None and found.state != FAIL:
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


def settle(schedule: Schedule, findings: Sequence[Finding], lost: str = "") -> Checked:
    """The verdict that findings come to. lost: what was not answered, in words."""
    sizes, names = required_of(schedule)
    words = [
        up_to(each, max(sizes))
        for each in findings
        if each.decides and each.state != "not applicable" and (not names or each.probe in names)
    ]
    missing = must_run(schedule, findings, names)
    lacking = {**schedule.lacking}
    lacking.update({e.probe: e.said for e in findings if e.state == "not applicable"})
    not_asked = unasked(schedule, findings, missing)
    fails = any(each.state == FAIL for each in findings if each.decides)
    word = FAIL if fails else combined_word(words or [NOT_ENOUGH_DATA])
    if word == PASS and missing:
        word = NOT_ENOUGH_DATA
    if word == NOT_ENOUGH_DATA and lost:
        word = SUSPECT
    scope = [*scope_parts(findings, word, (sizes, names), not_asked, lacking)]
    if word == PASS:
        scope = [*sent(schedule), *scope]
    if schedule.options.quick:
        scope.append(f"not tested: {UNTESTED}")
    verdict = Verdict(
        word,
        claim(findings, word, sizes, names),
        found_by_length(findings) + (f", not answered: {lost}" if lost else ""),
        "; ".join(scope),
        "give more --minutes" if not_asked and word in OPEN else "",
    )
    return Checked(verdict, tuple(findings), not_asked, lacking)


def claim(
    findings: Sequence[Finding], word: Word, sizes: Sequence[int], names: Sequence[str]
) -> str:
    """What the word is said of: what passes and where, or which probes say otherwise."""
    if word == PASS and any(each.probe == TOTAL for each in findings):
        (total,) = [each for each in findings if each.probe == TOTAL]
        least = ceil(max(row.upper or 100.0 for row in total.sizes))
        where = " and ".join(map(short_size, sizes))
        return f"no total loss at {where} (a loss of {least} points or more is ruled out at each)"
    if word == PASS:
        passed = [each for each in findings if each.decides and each.state == PASS]
        what = ", ".join(names) if names else counted(len(passed), "probe")
        verb = "passes" if len(names or passed) == 1 else "pass"
        return f"{what} {verb} at {', '.join(map(short_size, sizes))}"
    named = names_of(findings, word)
    if word == FAIL:
        return f"a fault is found by {named}"
    if word == SUSPECT:
        return f"something looks wrong: {named}" if named else "not all was answered"
    return f"too little was asked for {named}" if named else "too little was asked"


def sent(schedule: Schedule) -> Iterator[str]:
    """What was sent besides the sizes: lengths between, depths, and ways of asking."""
    if schedule.options.quick:
        return
    asks = [ask for ask in schedule.cells() if ask.size != schedule.short]
    drawn = {length for lengths in schedule.drawn_lengths.values() for length in lengths}
    between = sorted(drawn & {ask.length for ask in asks})
    if between:
        yield (
            f"{len(between):,} lengths between, {short_size(between[0])} to "
            f"{short_size(between[-1])}"
        )
    depths = sorted({round(100 * ask.depth) for ask in asks if ask.way == "ask"})
    if depths:
        yield f"{len(depths)} depths, {depths[0]} to {depths[-1]} %"
    ways = {ask.way for ask in asks}
    told = [words for way, words in WAYS.items() if way in ways]
    if told:
        yield f"sent {', '.join(told)}"


def names_of(findings: Sequence[Finding], word: Word) -> str:
    """The probes of one word, each with the first size that has it: 'length (at 4k), cut'."""
    names = []
    for each in findings:
        if each.decides and each.state == word:
            size = next((row.size for row in each.sizes if row.state == word), None)
            at = "" if size is None or word == NOT_ENOUGH_DATA else f" (at {short_size(size)})"
            names.append(f"{each.probe}{at}")
    return ", ".join(names)


def up_to(finding: Finding, most: int) -> Word:
    """The word of the sizes up to one."""
    rows = [r.state for r in finding.sizes if r.size <= most and r.size not in finding.accepted]
    if not rows or finding.state == "not applicable":
        return NOT_ENOUGH_DATA if finding.state == "not applicable" else finding.state
    return FAIL if finding.state == FAIL else combined_word(rows)


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
    must = [name for name, probe in schedule.every.items() if probe.must]
    wanted = names or ([TOTAL] if schedule.options.quick else must)
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


def open_beside(findings: Sequence[Finding], sizes: Sequence[int], names: Sequence[str]) -> str:
    """Sizes and probes that were asked, that do not pass, and that exit 0 does not need."""
    decides = [each for each in findings if each.decides and each.is_open]
    wanted = [each for each in decides if not names or each.probe in names]
    rows = [row for each in wanted for row in each.sizes if row.state != PASS and row.n]
    beyond = sorted({row.size for row in rows if row.size > max(sizes)})
    others = [each.probe for each in decides if each not in wanted and each.n]
    return ", ".join([*map(short_size, beyond), *others])


def found_by_length(findings: Iterable[Finding]) -> str:
    """How many facts were found at each size; '' where that was not tried."""
    shown = [
        f"{short_size(row.size)} "
        + (f"{row.n - row.lost} of {row.n}" if row.n else "no prompt answered")
        for each in findings
        if each.probe == "length"
        for row in each.sizes
        if row.n or row.state == SUSPECT
    ]
    return f"found {', '.join(shown)}" if shown else ""


def scope_parts(
    findings: Sequence[Finding],
    word: Word,
    required: tuple[Sequence[int], Sequence[str]],
    not_asked: Sequence[str],
    lacking: Iterable[str],
) -> Iterator[str]:
    """What was taken out by name, what exit 0 did not need, and what was not asked or tested."""
    sizes, names = required
    taken = [f"{each.probe}@{short_size(size)}" for each in findings for size in each.accepted]
    if taken:
        yield f"accepted: {', '.join(taken)}"
    if word == PASS and (left := open_beside(findings, sizes, names)):
        yield f"not required, and open: {left}"
    if not_asked:
        yield f"not asked: {', '.join(not_asked)}"
    if lacking := list(lacking):
        yield f"not tested: {', '.join(lacking)}"
