"""Judge a check: its findings, its first line, what was not sent, and its exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from needlemap.errors import Failure, SettingsError, did_you_mean
from needlemap.grid import short_size, tokens
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.finding import Finding
from needlemap.servers.check.haystack import WAYS
from needlemap.servers.check.owners import LONG_SECRET
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

NEED_NO_FACT = (WAYS, "usage", "window")
LEAKS = "mates"
FIND = "if it should find them, look at --template, --needle and --max-answer-tokens"
# Of a check or a storm that ended there: nothing else was sent, and all of it was lost.
ALL_MISSED = Verdict(
    SUSPECT,
    claim="the first prompts were all missed",
    next="look at --needle and --template",
)
# The faults that a quick check does not test for.
UNTESTED = "drift, replicas, lengths between, follow-up turns"
# Ways of asking, in words.
SENT = {
    "cold": "cold",
    "warm": "from the cache",
    "again": "twice",
    "loaded": "at a time",
    "after": "behind a wave",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check. lacking: probes that do not apply, each with the reason."""

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
    """Return the outcome of a check at one look.

    look: the number of the look at the answers; 0 stands for 1 before a second round, else 2.
    failed: failing findings of earlier looks, which stay failing.
    """
    answers = replies if isinstance(replies, Answers) else Answers(replies)
    if not look:
        look = 1 + any(reply.ask.round > 1 for reply in answers.by_key.values())
    accepted = accepted_of(schedule)
    findings = []
    for name, probe in schedule.probes.items():
        finding = probe.judge(schedule, answers, look)
        earlier_failure = failed.get(name) if failed else None
        if earlier_failure is not None and finding.state != FAIL:
            finding = earlier_failure
        if name in accepted and finding.sizes:
            whole = probe.whole(finding.sizes, accepted[name])
            # Its rows are the same, so that what it says of them is too.
            finding = replace(whole, said=finding.said, ways=finding.ways)
        findings.append(finding)

    little = schedule.finds_little(answers)
    if little:
        findings = [finding_for_weak_model(finding, little, answers) for finding in findings]
    return settle(schedule, findings, answers)


def outcome_of_missed(checked: Checked, answers: Answers) -> Checked:
    """Return the outcome of a check whose first prompts were all missed.

    Nothing else was sent, so that only a sure leak is a finding.
    """
    if any(is_sure_leak(finding, answers) for finding in checked.findings):
        return checked
    before = checked.verdict
    verdict = replace(ALL_MISSED, evidence=before.evidence, scope=before.scope)
    return replace(checked, verdict=verdict)


def is_sure_leak(finding: Finding, answers: Answers) -> bool:
    """Return True if a finding is a leak of long numbers, which no model guesses."""
    return (
        finding.probe == LEAKS
        and finding.state == FAIL
        and all(
            reply.secret.isdigit() and len(reply.secret) >= LONG_SECRET for reply in answers.every()
        )
    )


def finding_for_weak_model(finding: Finding, little: tuple[int, int], answers: Answers) -> Finding:
    """Return a finding as it counts for a model that finds little.

    A probe that needs no right answer keeps its finding, and so does a sure leak. Any other probe
    does not apply.

    little: how many facts of how many the model found.
    """
    if finding.probe in NEED_NO_FACT or finding.state == "not applicable":
        return finding
    if is_sure_leak(finding, answers):
        return finding
    reason = f"needs a model that finds facts: this one found {rate_of(little)}"
    return Finding.not_applicable(finding.probe, reason, decides=finding.decides)


def rate_of(little: tuple[int, int]) -> str:
    """Return '3 of 24'."""
    right, n = little
    return f"{right} of {n}"


def failure_counts(answers: Answers) -> str:
    """Return the counts of prompts without an answer by failure, or '' if all were answered.

    A prompt that a sound server may refuse is left out.
    """
    failures = Counter(
        reply.failure
        for reply in answers.by_key.values()
        if reply.failure and reply.failure != Failure.SKIPPED and not reply.ask.may_go_unanswered
    )
    return ", ".join(f"{count} {failure}" for failure, count in sorted(failures.items()))


def has_unanswered(schedule: Schedule, answers: Answers, most: int, names: Collection[str]) -> bool:
    """Return True if a prompt that counts never brought an answer, and nothing explains it.

    Such a prompt is in no row of a probe, so a length that always fails would pass unseen. A prompt
    that is refused as too long is judged by `window`, and one that a limit left out was not sent.

    most: the longest size that counts. names: the probes that count; none for all.
    """
    ways = {way for name in names for way in schedule.all_probes[name].ways(schedule)}
    return any(
        reply.failure not in ("", Failure.SKIPPED, Failure.TOO_LONG)
        and not reply.ask.may_go_unanswered
        and reply.ask.size <= most
        and (not names or reply.ask.way in ways)
        for reply in answers.by_key.values()
    )


def settle(schedule: Schedule, findings: Sequence[Finding], answers: Answers) -> Checked:
    """Return the outcome of some findings, which rest on these answers."""
    lost = failure_counts(answers)
    little = schedule.finds_little(answers)
    sizes, names = required_of(schedule)
    missing = () if little else missing_probes(schedule, findings, names)
    lacking = {
        **schedule.lacking,
        **{
            finding.probe: finding.said for finding in findings if finding.state == "not applicable"
        },
    }
    not_asked = not_asked_parts(schedule, findings, missing)

    word = word_of(findings, most=max(sizes), names=names)
    advice = advice_for_left_out(schedule, missing, names) if word == PASS else ""
    if word == PASS and missing:
        word = NOT_ENOUGH_DATA
    is_silent = word == PASS and has_unanswered(schedule, answers, most=max(sizes), names=names)
    if is_silent or (word == NOT_ENOUGH_DATA and lost):
        word = SUSPECT

    scope = list(
        scope_parts(
            findings,
            word,
            required=(sizes, names),
            not_asked=not_asked,
            lacking=lacking,
        )
    )
    if word == PASS:
        scope = [*sent_parts(schedule), *scope]
    if schedule.options.quick:
        scope.append(f"not tested: {UNTESTED}")

    evidence = weak_model_words(little) if little else found_by_length(findings)
    if lost:
        evidence += f", not answered: {lost}"
    if little:
        advice = FIND
    elif is_silent:
        advice = "the same command sends them again"
    elif not advice and not_asked and word in OPEN:
        advice = "give more --minutes"
    verdict = Verdict(
        word,
        claim(findings, word, sizes=sizes, names=names),
        evidence,
        scope="; ".join(scope),
        next=advice,
    )
    return Checked(
        verdict=verdict,
        findings=tuple(findings),
        not_asked=not_asked,
        lacking=lacking,
    )


def advice_for_left_out(schedule: Schedule, missing: Sequence[str], names: Sequence[str]) -> str:
    """Return the flag that lets a check pass whose missing probes --probe left out, or ''.

    More time would ask none of them.

    names: the probes of --require.
    """
    chosen = schedule.options.probes
    if not chosen or not missing or set(missing) & set(chosen):
        return ""
    return f"add --probe {missing[0]}" if names else f"add --require {','.join(chosen)}"


def word_of(findings: Iterable[Finding], most: int, names: Collection[str]) -> Word:
    """Return the word of the named probes' findings at the sizes up to `most`.

    If any other probe or size failed, the word is FAIL too. Without names, all probes count.
    """
    words: list[Word] = []
    for finding in findings:
        if not finding.decides or finding.state == "not applicable":
            continue
        if finding.state == FAIL:
            return FAIL
        if not names or finding.probe in names:
            words.append(word_up_to(finding, most))
    return combined_word(words or [NOT_ENOUGH_DATA])


def claim(
    findings: Sequence[Finding], word: Word, sizes: Sequence[int], names: Sequence[str]
) -> str:
    """Return the claim of a verdict: the sizes at which probes pass, or the probes that do not."""
    totals = [finding for finding in findings if finding.probe == TOTAL]
    if word == PASS and totals:
        (total,) = totals
        places = " and ".join(map(short_size, sizes))
        bound = total.excludes or "100 points"
        return f"no total loss at {places} (a loss of {bound} or more is ruled out at each)"
    if word == PASS:
        passed = [finding for finding in findings if finding.decides and finding.state == PASS]
        subject = ", ".join(names) if names else counted(len(passed), "probe")
        verb = "passes" if len(names or passed) == 1 else "pass"
        return f"{subject} {verb} at {', '.join(map(short_size, sizes))}"

    named = names_of(findings, word)
    if word == FAIL:
        return f"a fault is found by {named}"
    if word == SUSPECT:
        return f"something looks wrong: {named}" if named else "not all was answered"
    return f"too little was asked for {named}" if named else "too little was asked"


def sent_parts(schedule: Schedule) -> Iterator[str]:
    """Yield the lengths between the sizes, the depths and the ways in which prompts were sent."""
    if schedule.options.quick:
        return
    asks = [ask for ask in schedule.cells() if ask.size != schedule.short]
    drawn_lengths = {length for lengths in schedule.drawn_lengths.values() for length in lengths}
    lengths_between = sorted(drawn_lengths & {ask.length for ask in asks})
    if lengths_between:
        yield (
            f"{len(lengths_between):,} lengths between, {short_size(lengths_between[0])} to "
            f"{short_size(lengths_between[-1])}"
        )
    depths = sorted({round(100 * ask.depth) for ask in asks if ask.way == "ask"})
    if depths:
        yield f"{len(depths)} depths, {depths[0]} to {depths[-1]} %"
    ways = {ask.way for ask in asks}
    manners = [words for way, words in SENT.items() if way in ways]
    if manners:
        yield f"sent {', '.join(manners)}"


def names_of(findings: Sequence[Finding], word: Word) -> str:
    """Return the probes of one word, each with the first size that has it.

    For example: 'length (at 4k), cut'.
    """
    names = []
    for finding in findings:
        if not finding.decides or finding.state != word:
            continue
        name = finding.probe
        size = next((row.size for row in finding.sizes if row.state == word), None)
        if size is not None and word != NOT_ENOUGH_DATA:
            name += f" (at {short_size(size)})"
        names.append(name)
    return ", ".join(names)


def word_up_to(finding: Finding, most: int) -> Word:
    """Return the word of a finding's sizes up to `most`, without those that were accepted."""
    if finding.state == "not applicable":
        return NOT_ENOUGH_DATA
    words = [
        row.state for row in finding.sizes if row.size <= most and row.size not in finding.accepted
    ]
    if finding.state == FAIL or not words:
        return finding.state
    return combined_word(words)


def required_of(schedule: Schedule) -> tuple[list[int], list[str]]:
    """Return the sizes and the probes that exit 0 needs.

    These are all sizes, and all probes (an empty list), unless --require names fewer. Raises
    SettingsError for a word that is neither a size nor a probe.
    """
    sizes = list[int]()
    names = list[str]()
    for word in schedule.options.require:
        if word in schedule.all_probes:
            names.append(word)
        else:
            sizes.append(size_of(schedule, word, "--require"))
    if not sizes:
        return list(schedule.sizes), names
    return [size for size in schedule.sizes if size <= max(sizes)], names


def size_of(schedule: Schedule, word: str, flag: str) -> int:
    """Return a size that was typed. Raises SettingsError if it is not a size of the check."""
    try:
        size = int(tokens(word))
    except SettingsError:
        size = 0
    if size in schedule.sizes:
        return size
    choices = [*map(short_size, schedule.sizes), *schedule.all_probes]
    raise SettingsError(f"{flag} {word}: no size and no probe. {did_you_mean(word, choices)}")


def accepted_of(schedule: Schedule) -> dict[str, tuple[int, ...]]:
    """Return the sizes that --accept takes out, by probe.

    Raises SettingsError for anything but PROBE@SIZE.
    """
    sizes_by_probe: dict[str, tuple[int, ...]] = {}
    for word in schedule.options.accept:
        name, at, size = word.partition("@")
        if name not in schedule.all_probes or not at:
            raise SettingsError(
                f"--accept {word}: give PROBE@SIZE, as length@{short_size(schedule.sizes[-1])}."
            )
        accepted_size = size_of(schedule, size, "--accept")
        sizes_by_probe[name] = (*sizes_by_probe.get(name, ()), accepted_size)
    return sizes_by_probe


def missing_probes(
    schedule: Schedule, findings: Sequence[Finding], names: Collection[str]
) -> tuple[str, ...]:
    """Return the probes that exit 0 needs and that did not run."""
    judged_names = {
        finding.probe for finding in findings if finding.n or finding.state == "not applicable"
    }
    if names:
        required = list(names)
    elif schedule.options.quick:
        required = [TOTAL]
    else:
        required = [name for name, probe in schedule.all_probes.items() if probe.must]
    return tuple(name for name in required if name not in judged_names)


def not_asked_parts(
    schedule: Schedule, findings: Sequence[Finding], missing: Collection[str]
) -> tuple[str, ...]:
    """Return the probes that sent nothing, size by size, and the missing ones without a finding."""
    applicable = [
        finding for finding in findings if finding.sizes and finding.state != "not applicable"
    ]
    probes_at: dict[int, list[str]] = {size: [] for size in schedule.sizes}
    idle_at: dict[int, list[str]] = {size: [] for size in schedule.sizes}
    for finding in applicable:
        for row in finding.sizes:
            if row.size not in probes_at:
                continue
            probes_at[row.size].append(finding.probe)
            if not row.n and not row.lost and "nothing" in row.said:
                idle_at[row.size].append(finding.probe)

    parts = []
    for size, idle in idle_at.items():
        if not idle:
            continue
        if len(idle) == len(probes_at[size]):
            parts.append(short_size(size))
        else:
            parts.append(f"{short_size(size)}: {', '.join(idle)}")

    judged_names = {finding.probe for finding in findings}
    unjudged_names = [name for name in missing if name not in judged_names]
    if unjudged_names:
        parts.append(f"probes: {', '.join(unjudged_names)}")
    return tuple(parts)


def open_optional_words(
    findings: Sequence[Finding], sizes: Sequence[int], names: Sequence[str]
) -> str:
    """Return the sizes and probes that are open and that exit 0 does not need, in words."""
    sizes_beyond = set[int]()
    optional_probes = []
    for finding in findings:
        if not finding.decides or not finding.is_open:
            continue
        if names and finding.probe not in names:
            if finding.n:
                optional_probes.append(finding.probe)
            continue
        for row in finding.sizes:
            if row.n and row.state != PASS and row.size > max(sizes):
                sizes_beyond.add(row.size)
    return ", ".join([*map(short_size, sorted(sizes_beyond)), *optional_probes])


def found_by_length(findings: Iterable[Finding]) -> str:
    """Return how many facts were found at each size, or '' if that was not tested."""
    counts = []
    for finding in findings:
        if finding.probe != "length":
            continue
        for row in finding.sizes:
            if row.n:
                counts.append(f"{short_size(row.size)} {row.n - row.lost} of {row.n}")
            elif row.state == SUSPECT:
                counts.append(f"{short_size(row.size)} no prompt answered")
    return f"found {', '.join(counts)}" if counts else ""


def missed_advice(flags: str) -> str:
    """Return what to try if the first prompts were all missed. flags: have equal ways judge."""
    return (
        "A model that knows one kind of fact is given it with --needle, --question, --keywords and "
        "--draw; one that thinks first needs --thinking-tokens; else look at --template and "
        f"--max-answer-tokens. To judge the server by equal ways of asking alone, type {flags}"
    )


def weak_model_words(little: tuple[int, int]) -> str:
    """Return the sentence that a model finds little, and how its server is judged."""
    return f"the model found {rate_of(little)} facts, so equal ways of asking alone are judged"


def scope_parts(
    findings: Sequence[Finding],
    word: Word,
    required: tuple[Sequence[int], Sequence[str]],
    not_asked: Sequence[str],
    lacking: Iterable[str],
) -> Iterator[str]:
    """Yield the rows that were accepted, not required, not sent and not tested, in words."""
    sizes, names = required
    accepted = [
        f"{finding.probe}@{short_size(size)}" for finding in findings for size in finding.accepted
    ]
    if accepted:
        yield f"accepted: {', '.join(accepted)}"
    if word == PASS:
        optional = open_optional_words(findings, sizes, names)
        if optional:
            yield f"not required, and open: {optional}"
    if not_asked:
        yield f"not asked: {', '.join(not_asked)}"
    untested = list(lacking)
    if untested:
        yield f"not tested: {', '.join(untested)}"
