"""The probes: a server against itself, asked in other ways; the last one beside a reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import takewhile
from operator import attrgetter
from statistics import fmean, median

from needlemap.models import Logprobs
from needlemap.probes.base import (
    BESIDE,
    LEAST_HITS,
    NOTHING,
    Answers,
    Effect,
    Finding,
    Test,
    excess,
    grouped,
    hit,
    judged,
    lost_tail,
    marked_tail,
    middle,
    net_loss,
    paired,
    place,
    prompt,
    rate,
    rates_apart,
    share_of,
    upper_tail,
    worst_of,
)
from needlemap.probes.known import FAULTS
from needlemap.probes.ways import HEAD, LATE, MIDDLE
from needlemap.records.record import Record
from needlemap.text import held, plain

Row = tuple[str, Record]
_RESIDUES = (2, 4, 8, 16)  # of lengths, and of a needle's place, that kernels and blocks go by
_CLEAR = 0.2  # tokens' share that a server must leave out before a cut is told without a test
_RESTLESS = (
    0.1  # share of the shortest prompts' answers that change, from which on nothing can be told
)
_LEAST_VALUE = 3  # characters: shorter ones stand in any text
_FAR = 0.5  # share of answers by which near and far must differ to be said
LEAST_NATS = 0.02  # a token: margins that move by less are no finding
ROUNDED_NATS = 0.25  # a token: two steps of bfloat16 between 16 and 32, where logits lie
_MOVED = 0.2  # share of haystacks whose margins an honest copy of the weights may move by so much
TIMES = 2  # what equal askings differ by is no finding below so many times as much


def cache(answers: Answers) -> Finding:
    """Prompts that share a prefix with an earlier one, against the same behind a first line of
    their own."""
    pairs = answers.pairs("cold", "comb", place)
    return paired("cache", pairs, answers.level, "where a prefix is shared")


def load(answers: Answers) -> Finding:
    """The same prompts alone and among others."""
    pairs = answers.pairs("alone", "loaded", prompt)
    return paired("load", pairs, answers.level, "among other prompts")


def comb(answers: Answers) -> Finding:
    """Consecutive lengths: does one in two, four, eight or sixteen fail where its neighbours do
    not?"""
    return _residues("comb", answers, attrgetter("length_tokens"), "lengths")


def edges(answers: Answers) -> Finding:
    """Consecutive places of the needle at one length."""
    return _residues("edges", answers, _start, "places")


def _start(record: Record) -> int:
    """Haystack tokens before the needle."""
    return record.prompt.positions[0] if record.prompt and record.prompt.positions else 0


def _residues(probe: str, answers: Answers, number: Callable[[Record], int], named: str) -> Finding:
    """The worst residue, at an alpha that is divided among all that are tried."""
    groups = list(grouped(answers.of(probe)).values())
    rows = [row for group in groups for row in group]
    classes = [(by, rest) for by in _RESIDUES for rest in range(by)]
    found = [
        marked_tail(groups, lambda record, by=by, rest=rest: number(record) % by == rest)  # type: ignore[misc]
        for by, rest in classes
    ]
    (p, effect), (by, rest) = min(zip(found, classes, strict=True), key=_by_p)
    p = min(1.0, p * len(classes))
    missed = [row for row in rows if not hit(row[1])]
    marked = [row for row in missed if number(row[1]) % by == rest]
    said = (
        f"{len(missed)} of {len(rows)} missed, at no {named} more than at others"
        if rows
        else NOTHING
    )
    if p <= answers.level and effect is not None and effect.value > 0:
        more = f"missed {100 * effect.value:.0f} points more often than others"
        said = f"{named} of n % {by} = {rest} are {more}"
    else:
        marked = []
    test = Test(len(rows), effect, p)
    return judged(
        probe, answers.level, test, said, marked, able=_able(record for _, record in rows)
    )


def _by_p(row: tuple[tuple[float, Effect | None], tuple[int, int]]) -> tuple[float, float]:
    """What is least likely by chance first, of these the largest effect."""
    (p, effect), _ = row
    return p, -(effect.value if effect else 0.0)


def _able(records: Iterable[Record]) -> bool:
    """Whether a model that answers so much can show that all is well."""
    return share_of(records) >= LEAST_HITS


def same(answers: Answers) -> Finding:
    """Each prompt several times: answers that are wrong where the others to the same prompt are
    right.

    Servers differ in how often their answers change: behind the shortest prompts it is nobody's
    fault.
    """
    flips, n = _flips(answers.of("grid", "again"))
    short, of = _flips(answers.of("short"))
    said = (
        f"{len(flips)} of {n} answers are wrong where others to the same prompt are right, "
        f"{len(short)} of "
        f"{of} behind the shortest prompts"
    )
    test = excess(len(flips), n, len(short), of)
    calm = bool(n and of) and len(short) < _RESTLESS * of
    return judged("same", answers.level, test, said, flips, able=calm)


def _flips(rows: Iterable[Row]) -> tuple[list[Row], int]:
    """Answers that are wrong where most others to the same prompt are right, and of how many."""
    at: dict[Hashable, list[Row]] = {}
    for way, record in rows:
        at.setdefault(prompt(record), []).append((way, record))
    sure = [
        each for each in at.values() if len(each) > 2 and share_of(row for _, row in each) > 0.5
    ]
    return [row for each in sure for row in each if not hit(row[1])], sum(map(len, sure))


def mates(answers: Answers) -> Finding:
    """Does a wrong answer hold the value of another prompt, more often than by chance? Each has its
    own."""
    rows = answers.of("loaded", "alone", "grid", "again")
    values = {value for _, record in rows for value in record.keywords if len(value) > _LEAST_VALUE}
    wrong = [row for row in rows if not hit(row[1])]
    leaks = [
        (way, record) for way, record in wrong if _foreign(record, values - set(record.keywords))
    ]
    n, alike = len(rows), len(values) * 0.1 ** min(map(len, values), default=0)
    p = upper_tail(len(leaks), len(wrong), min(1.0, alike))
    said = f"{len(leaks)} of {n} answers hold the value of another prompt"
    test = Test(n, rate(len(leaks), n), p)
    return judged("mates", answers.level, test, said, leaks, able=_able(row for _, row in rows))


def _foreign(record: Record, values: set[str]) -> bool:
    """Whether an answer holds one of these."""
    told = plain(record.answer or "")
    return any(held(told, value) for value in values)


def cut(answers: Answers) -> Finding:
    """Is the head of a long prompt still there? By what the server counted, and by what it finds
    there."""
    rows = answers.of("grid")
    short = [row for row in rows if _left_out(row[1], rows) > _CLEAR]
    if short:
        way, record = min(short, key=lambda row: row[1].length_tokens)
        said = (
            f"the server counted {record.prompt_tokens:,} of {record.own_tokens:,} tokens sent: "
            f"the rest was "
            f"left out without a word"
        )
        return judged(
            "cut", answers.level, Test(len(rows), None, None), said, [(way, record)], able=True
        )
    heads, middles = (
        [row for row in rows if row[1].depth == depth / 100] for depth in (HEAD, MIDDLE)
    )
    found = {(row.length_tokens, row.repeat): row for _, row in middles}
    pairs = [(row, found.get((row[1].length_tokens, row[1].repeat))) for row in heads]
    both = [(row, other) for row, other in pairs if other is not None]
    lost = [row for row, other in both if hit(other) and not hit(row[1])]
    gained = sum(not hit(other) and hit(row[1]) for row, other in both)
    test = net_loss(len(lost), gained, len(both))
    rates = share_of(row for (_, row), _ in both), share_of(other for _, other in both)
    said = f"at the very beginning {rates[0]:.0%} are found, in the middle {rates[1]:.0%}"
    clear = rates[0] <= _CLEAR and rates[1] >= 1 - _CLEAR
    able = rates[1] >= LEAST_HITS and test.is_usual(answers.level)
    return judged("cut", answers.level, test, said, lost if clear else [], able=able)


def _left_out(record: Record, rows: Sequence[Row]) -> float:
    """Which share of a prompt a server did not count, beside what it counts of the shortest; 0 if
    unknown.

    The ratio of the shortest prompt is the two vocabularies' difference.
    """
    least = min((row for _, row in rows), key=lambda row: row.length_tokens)
    if not (
        record.prompt_tokens and record.own_tokens and least.prompt_tokens and least.own_tokens
    ):
        return 0.0
    return 1.0 - (record.prompt_tokens / record.own_tokens) / (
        least.prompt_tokens / least.own_tokens
    )


def window(answers: Answers) -> Finding | None:
    """Prompts that were promised room are taken, the last tokens of the context too; a longer one
    is refused, not cut. None where nobody knows where the context ends."""
    refused = answers.refused("beyond")
    if refused and answers.promised:
        length = min(record.length_tokens for _, record in refused)
        said = f"prompts of {length:,} tokens are refused: the context is smaller than promised"
        return judged(
            "window", answers.level, Test(len(refused), None, None), said, refused, able=True
        )
    inside, beyond = answers.of("window"), answers.of("beyond")
    if beyond:
        tokens = beyond[0][1].prompt_tokens
        counted = "nothing" if tokens is None else f"{tokens:,}"
        said = (
            f"a prompt longer than the context is answered, not refused; {counted} of its tokens "
            f"were counted"
        )
        return Finding("window", "fail", 1, said, worst=worst_of(beyond[:1]), known=FAULTS["cut"])
    if not inside:
        return None
    missed, others = [row for row in inside if not hit(row[1])], answers.of("comb")
    test = excess(len(missed), len(inside), sum(not hit(row) for _, row in others), len(others))
    said = f"{len(missed)} of {len(inside)} missed at the end of the context"
    if answers.refused() and test.is_usual(answers.level):
        said += ", and a longer prompt is refused"
    return judged("window", answers.level, test, said, missed, able=_able(row for _, row in inside))


def distance(answers: Answers) -> Finding:
    """Is what is far found as what is near? Where it is not, model and server cannot be told
    apart."""
    rows = answers.of("grid")
    near = [row for _, row in rows if row.depth == LATE / 100]
    far = [row for _, row in rows if row.depth in (HEAD / 100, MIDDLE / 100)]
    rates = share_of(near), share_of(far)
    said = f"near the end {rates[0]:.0%} are found, farther away {rates[1]:.0%}"
    effect = rates_apart(
        *(
            each
            for group in (far, near)
            for each in (sum(not hit(row) for row in group), len(group))
        )
    )
    gone = rates[0] - rates[1] > _FAR
    if near and rates[0] >= LEAST_HITS and not gone:
        return Finding("distance", "pass", len(rows), said, effect)
    said += ": the model or the server; --reference tells"
    faults = FAULTS["distance"] if gone else ()
    return Finding("distance", "undecided", len(rows), said, effect, known=faults)


def stop(answers: Answers) -> Finding:
    """Do answers end? One that goes on behind long prompts, and ends behind short ones, is no
    pass."""
    short, long = answers.of("short"), answers.of("grid", "again", "cold")
    few, many = (
        [row for row in rows if row[1].finish in ("length", "max_tokens")] for rows in (short, long)
    )
    test = excess(len(many), len(long), len(few), len(short))
    said = (
        f"{len(many)} of {test.n} answers never ended, {len(few)} of {len(short)} behind the "
        f"shortest prompts"
    )
    restless = len(few) > LEAST_HITS * len(short)
    if restless and test.is_usual(answers.level):
        said += ": the model, its template or --max-answer-tokens"
    return judged(
        "stop", answers.level, test, said, many, able=bool(test.n and short) and not restless
    )


def nats(answers: Answers) -> Finding | None:
    """Is a model as sure of the same answer behind a warm cache as behind an empty one? None where
    no log-probabilities are given.

    Each prompt was met cold, then warm behind two others. What the two warm askings differ by is
    the server's own noise: of a sound one the cold asking is as likely as not to differ by less.
    """
    cold, again = answers.found("empty", prompt), answers.found("rewarm", prompt)
    moved = list[tuple[float, float, Row]]()
    for way, warm in answers.of("warm"):
        if (at := prompt(warm)) in cold and at in again:
            apart, usual = margin_apart(cold[at][1], warm), margin_apart(warm, again[at][1])
            if apart is not None and usual is not None:
                moved.append((apart, usual, (way, warm)))
    if not moved:
        return None if again else Finding("nats", "undecided", 0, NOTHING)
    beyond = [(apart, row) for apart, usual, row in moved if apart > _told(usual)]
    n, p = len(moved), upper_tail(len(beyond), len(moved), 0.5)
    effect, usual = middle([row[0] for row in moved]), median(row[1] for row in moved)
    cached = effect.value if effect else 0.0
    said = f"margins move by {cached:.2g} nats a token once cached, by {usual:.2g} when asked again"
    if p > answers.level:
        said += f": {len(beyond)} of {n} by more"
    return judged(
        "nats", answers.level, Test(n, effect, p), said, [row for _, row in beyond], able=True
    )


def _told(usual: float) -> float:
    """Nats by which a margin must move to be told, beside what two equal askings differ by.

    Where these are the same to the last bit, they do not tell in which precision a server rounds.
    """
    return max(LEAST_NATS, TIMES * usual) if usual else ROUNDED_NATS


def margin_apart(one: Record, other: Record) -> float | None:
    """By how many nats a token the margins of two answers over the runners-up differ, as far as
    they say the same; None where nothing is known of them.

    Unlike a probability, a margin moves also where a model is all but sure.
    """
    if one.logprobs is None or other.logprobs is None:
        return None
    both = zip(_margins(one.logprobs), _margins(other.logprobs), strict=False)
    alike = takewhile(lambda pair: pair[0][0] == pair[1][0], both)
    apart = [abs(left - right) for (_, left), (_, right) in alike]
    return sum(apart) / len(apart) if apart else None


def _margins(told: Logprobs) -> list[tuple[str, float]]:
    """Each token and its margin over the likeliest other one; without that its own
    log-probability."""
    rows = zip(told.tokens, told.nats, told.other_nats, strict=True)
    return [(token, own - (other or 0.0)) for token, own, other in rows]


def reference(answers: Answers) -> Finding:
    """What the reference finds and the server loses; and answers that both give, with other margins
    over the runners-up. Where a model finds little, as random weights do, margins differ between
    any two engines.

    Engines differ in the last digits. How much is usual is seen where the server is asked twice.
    """
    pairs = [
        row for kind in ("grid", "empty") for row in answers.pairs(f"{BESIDE}{kind}", kind, prompt)
    ]
    lost = [(way, here) for way, there, here in pairs if hit(there) and not hit(here)]
    gained = sum(hit(here) and not hit(there) for _, there, here in pairs)
    n, effect, _ = net_loss(len(lost), gained, len(pairs))
    said = f"{len(lost)} of {n} answers that the reference gets right are lost, {gained} gained"
    told = max(ROUNDED_NATS, TIMES * _usual(answers))
    moved = _moved(pairs)
    far = [row for apart, row in moved.values() if apart > told]
    sure = share_of(there for _, there, _ in pairs) >= LEAST_HITS
    p_far = upper_tail(len(far), len(moved), _MOVED) if moved and sure else 1.0
    if moved:
        middle = median(apart for apart, _ in moved.values())
        said += (
            f"; margins move by {middle:.2g} nats a token, on {len(far)} of {len(moved)} haystacks "
            f"by over "
        )
        said += f"{told:.2g}"
    p = lost_tail(len(lost), gained)
    shown, p = lost if p <= p_far else far, min(p, p_far)
    if not sure and p > answers.level / 2:
        said += (
            ": a model that finds so little there shows little here; docs/engines.md has what does"
        )
    return judged("reference", answers.level / 2, Test(n, effect, p), said, shown, able=sure)


def _moved(
    pairs: Sequence[tuple[str, Record, Record]],
) -> dict[int, tuple[float, tuple[str, Record]]]:
    """By how many nats a token margins move on each haystack, and one of its answers here."""
    found: dict[int, list[tuple[float, tuple[str, Record]]]] = defaultdict(list)
    for way, there, here in pairs:
        if (apart := margin_apart(there, here)) is not None:
            found[here.repeat].append((apart, (way, here)))
    return {
        repeat: (fmean(apart for apart, _ in rows), rows[0][1]) for repeat, rows in found.items()
    }


def _usual(answers: Answers) -> float:
    """By how many nats a token margins move at most when the server is asked the same again."""
    pairs = [*answers.pairs("grid", "again", prompt), *answers.pairs("warm", "rewarm", prompt)]
    return max((margin_apart(one, other) or 0.0 for _, one, other in pairs), default=0.0)
