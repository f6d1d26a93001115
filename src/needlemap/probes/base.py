"""What a probe is: it sets answers to the same or nearly the same prompts beside each other.

A model that is weak is weak in both; a server that computes a prompt wrong in one way of asking is
not. All tests are exact and one-sided, and share one alpha of 1 % over all probes and all looks at
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, hypot
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ValidationError

from needlemap.errors import Failure, NeedlemapError
from needlemap.files import is_regular, read_regular
from needlemap.maps import latest_records
from needlemap.maps.difference import mcnemar
from needlemap.maps.intervals import tango, wilson
from needlemap.probes.known import FAULTS, Known
from needlemap.records.record import Record

FILE = "check.json"
SCHEMA = 1
State = Literal["pass", "fail", "undecided"]
UNITS = "effect: points lost, with its 95 % interval; tokens: of all that serves a probe"
ALPHA = 0.01  # of a whole check
LEAST_HITS = 0.5  # a model that answers fewer prompts right shows nothing about its server
NOTHING = "nothing was asked"
BESIDE = "reference-"  # before the name of a way in which the reference is asked


@dataclass(frozen=True, slots=True)
class Worst:
    """The smallest trial that shows a finding: its way of asking, and its place there."""

    way: str
    length_tokens: int
    depth: float
    repeat: int


@dataclass(frozen=True, slots=True)
class Effect:
    """How large a finding is, with its 95 % interval: a loss as a share in [-1, 1], or nats a
    token."""

    value: float
    low: float
    high: float
    unit: Literal["share", "nats"] = "share"

    @property
    def label(self) -> str:
        """In points or nats.

        >>> Effect(0.5, 0.25, 0.75).label, Effect(0.0012, 0.0, 0.0134, "nats").label
        ('+50 [+25, +75]', '0.0012 nats [0, 0.013]')
        """
        if self.unit == "nats":
            return f"{self.value:.2g} nats [{self.low:.2g}, {self.high:.2g}]"
        value, low, high = (f"{100 * each:+.0f}" for each in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def rate(found: int, n: int) -> Effect | None:
    """A share of n with Wilson's interval; None without any."""
    ends = wilson(found, n)
    if ends is None:
        return None
    return Effect(found / n, min(ends[0], found / n), max(ends[1], found / n))  # 1e-18 is none


def rates_apart(found: int, n: int, others: int, of: int) -> Effect | None:
    """By how much one share exceeds another, with Newcombe's hybrid score interval (1998,
    Statistics in Medicine 17:873, method 10); None where either has no trials.

    >>> rates_apart(56, 70, 48, 80).label
    '+20 [+5, +33]'
    """
    one, two = rate(found, n), rate(others, of)
    if one is None or two is None:
        return None
    value = one.value - two.value
    below = hypot(one.value - one.low, two.high - two.value)
    above = hypot(one.high - one.value, two.value - two.low)
    return Effect(value, value - below, value + above)


def middle(nats: Sequence[float]) -> Effect | None:
    """The median with the order statistics that hold it in 95 % of samples, the ends where there
    are few; None without any."""
    found, n = sorted(nats), len(nats)
    cut = max((k for k in range(n // 2) if upper_tail(n - k, n, 0.5) <= 0.025), default=0)
    return Effect(median(found), found[cut], found[n - 1 - cut], "nats") if found else None


class Test(NamedTuple):
    """What was tested: n answers or pairs, how large the effect is, and p, None without a test."""

    n: int
    effect: Effect | None
    p: float | None

    def is_usual(self, level: float) -> bool:
        """Whether chance may bring as much."""
        return self.p is None or self.p > level


def net_loss(lost: int, gained: int, n: int) -> Test:
    """Of n pairs, with Tango's interval of the net loss."""
    effect = Effect((lost - gained) / n, *tango(gained, lost, n)) if n else None
    return Test(n, effect, lost_tail(lost, gained))


def excess(found: int, n: int, others: int, of: int) -> Test:
    """Of n, beside `others` of `of`."""
    return Test(n, rates_apart(found, n, others, of), more_often(found, n, others, of))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe came to. n: answers or pairs it rests on. p: of an honest server's showing as
    much, None without a test. said: in words. worst: where to look. tokens, seconds: what was sent
    for it, and how long it was waited for; what serves several probes counts for each."""

    probe: str
    state: State
    n: int
    said: str
    effect: Effect | None = None
    p: float | None = None
    worst: Worst | None = None
    known: tuple[Known, ...] = ()
    tokens: int = 0
    seconds: float = 0.0


class Answers:
    """What was answered so far, by way of asking. level: the alpha of one probe at one look.
    promised: whether somebody says that the server takes the longest prompts."""

    def __init__(
        self, records: Mapping[str, Iterable[Record]], level: float, promised: bool = False
    ) -> None:
        self.by_way = {way: list(latest_records(found)) for way, found in records.items()}
        self.level, self.promised = level, promised

    @property
    def rows(self) -> list[tuple[str, Record]]:
        """All that was asked, each with its way."""
        return [(way, record) for way, records in self.by_way.items() for record in records]

    def of(self, *kinds: str) -> list[tuple[str, Record]]:
        """Answers of all ways of these kinds ('cold' of 'cold-32000'), each with its way."""
        return [row for row in self.rows if kind_of(row[0]) in kinds and row[1].scored]

    def refused(self, *but: str) -> list[tuple[str, Record]]:
        """Prompts that the server found too long, but those of these kinds."""
        asked = [row for row in self.rows if kind_of(row[0]) not in but and row[1].attempts]
        return [row for row in asked if row[1].failure == Failure.TOO_LONG]

    def found(
        self, kind: str, key: Callable[[Record], Hashable]
    ) -> dict[Hashable, tuple[str, Record]]:
        """The answers of one kind, each with its way, by what makes two answers a pair."""
        return {key(record): (way, record) for way, record in self.of(kind)}

    def pairs(
        self, first: str, second: str, key: Callable[[Record], Hashable]
    ) -> list[tuple[str, Record, Record]]:
        """Answers of two kinds that belong together, with the second's way."""
        left, right = self.found(first, key), self.found(second, key)
        return [(right[at][0], left[at][1], right[at][1]) for at in left if at in right]


def kind_of(way: str) -> str:
    """The kind of a way of asking: what stands before its size.

    >>> kind_of("again-2-32000"), kind_of("reference-comb-8000")
    ('again', 'reference-comb')
    """
    own = way.removeprefix(BESIDE).partition("-")[0]
    return f"{BESIDE}{own}" if way.startswith(BESIDE) else own


def place(record: Record) -> Hashable:
    """Where a record stands: of prompts that differ in their first line only."""
    return record.length_tokens, round(record.depth, 9), record.repeat


def prompt(record: Record) -> Hashable:
    """What was asked, byte for byte."""
    return record.prompt.sha256 if record.prompt else record.key


def hit(record: Record) -> bool:
    """Whether an answer is right, and ended: one that goes on and on is no pass."""
    return (record.score or 0.0) >= 1.0 and record.finish not in ("length", "max_tokens")


def share_of(records: Iterable[Record]) -> float:
    """Right answers among some; 0 without any."""
    found = [hit(record) for record in records]
    return sum(found) / len(found) if found else 0.0


def lost_tail(lost: int, gained: int) -> float:
    """Chance that of equal ways at least so many discordant pairs are lost: exact, one-sided.

    >>> round(lost_tail(5, 0), 4), lost_tail(0, 0)
    (0.0312, 1.0)
    """
    return upper_tail(lost, lost + gained, 0.5)


def upper_tail(found: int, n: int, chance: float) -> float:
    """Chance of at least so many of n, each with this chance.

    >>> round(upper_tail(3, 10, 0.05), 4)
    0.0115
    """
    terms = (comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(found, n + 1))
    return min(1.0, sum(terms))


def more_often(found: int, n: int, others: int, of: int) -> float:
    """Chance of at least so many of n, if they come as often as `others` of `of` did: exact,
    one-sided.

    >>> round(more_often(12, 60, 0, 36), 4)
    0.0022
    """
    return strata_tail([(n + of, n, found + others, found)])


def strata_tail(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Chance that the marked answers of some strata miss so often, if marks say nothing. Exact.

    Each stratum: answers, of them marked, misses, of them marked. Within one, the marked misses
    follow the hypergeometric distribution; their sum is its convolution (stratified Fisher test).

    >>> round(strata_tail([(16, 4, 4, 4)]), 5), strata_tail([(16, 4, 0, 0)])
    (0.00055, 1.0)
    """
    chances, seen = np.ones(1), 0
    for n, marked, misses, both in strata:
        most = min(marked, misses)
        ways = [comb(marked, k) * comb(n - marked, misses - k) for k in range(most + 1)]
        chances = np.convolve(chances, np.array(ways, float) / sum(ways))
        seen += both
    return min(1.0, float(chances[seen:].sum()))


def grouped(rows: Iterable[tuple[str, Record]]) -> dict[tuple[str, int], list[tuple[str, Record]]]:
    """Answers of one way and one haystack together."""
    found: dict[tuple[str, int], list[tuple[str, Record]]] = defaultdict(list)
    for way, record in rows:
        found[way, record.repeat].append((way, record))
    return found


def marked_tail(
    groups: Iterable[Sequence[tuple[str, Record]]], is_marked: Callable[[Record], bool]
) -> tuple[float, Effect | None]:
    """The p of marked answers' missing more than the others of their groups, and by how much they
    do."""
    strata, counts = [], [0, 0, 0, 0]
    for group in groups:
        marks = [is_marked(record) for _, record in group]
        missed = [not hit(record) for _, record in group]
        both = sum(mark and miss for mark, miss in zip(marks, missed, strict=True))
        strata.append((len(group), sum(marks), sum(missed), both))
        for slot, number in enumerate(
            (both, sum(marks), sum(missed) - both, len(group) - sum(marks))
        ):
            counts[slot] += number
    return strata_tail(strata), rates_apart(*counts)


def judged(
    probe: str,
    level: float,
    test: Test,
    said: str,
    shown: Sequence[tuple[str, Record]],
    *,
    able: bool,
) -> Finding:
    """What a probe's test comes to. shown: answers that show a fault, which is found where chance
    does not bring them. able: whether they would have shown it."""
    n, effect, p = test
    if shown and (p is None or p <= level):
        return Finding(probe, "fail", n, said, effect, p, worst_of(shown), FAULTS[probe])
    return Finding(probe, "pass" if able else "undecided", n, said, effect, p)


def paired(
    probe: str, pairs: Sequence[tuple[str, Record, Record]], level: float, said: str
) -> Finding:
    """Whether a second way of asking loses what a first one finds. said: how the second is named in
    words."""
    lost = [(way, other) for way, one, other in pairs if hit(one) and not hit(other)]
    gained = sum(not hit(one) and hit(other) for _, one, other in pairs)
    n, test = len(pairs), net_loss(len(lost), gained, len(pairs))
    words = f"{len(lost)} of {n} right answers are lost {said}, {gained} gained" if n else NOTHING
    able = share_of(one for _, one, _ in pairs) >= LEAST_HITS and settled(len(lost), gained)
    return judged(probe, level, test, words, lost, able=able)


def settled(lost: int, gained: int) -> bool:
    """Whether losses are what chance brings, rather than too few to tell."""
    return mcnemar(lost, gained) > 0.05 or lost <= gained


def worst_of(rows: Iterable[tuple[str, Record]]) -> Worst | None:
    """The shortest of some trials."""
    least = min(
        rows, key=lambda row: (row[1].length_tokens, row[1].depth, row[1].repeat), default=None
    )
    if least is None:
        return None
    way, record = least
    return Worst(way, record.length_tokens, record.depth, record.repeat)


class CheckFile(BaseModel):
    """check.json: what a check was asked to do, and what its probes found at its last end."""

    schema_version: int = SCHEMA
    seed: int
    model: str
    reference: str = ""
    max_length: int
    load: int
    looks: list[int] = []
    findings: list[Finding] = []

    @property
    def seen(self) -> tuple[list[int], dict[str, Finding]]:
        """The looks so far, and what was found at them."""
        return list(self.looks), {
            each.probe: each for each in self.findings if each.state == "fail"
        }


def read_check(path: Path) -> CheckFile:
    """check.json. Raises NeedlemapError where there is none, or one that is none of ours."""
    if not is_regular(path / FILE):
        raise NeedlemapError(f"No check at '{path}': it holds no {FILE}.")
    try:
        return CheckFile.model_validate_json(read_regular(path / FILE))
    except ValidationError:
        raise NeedlemapError(
            f"'{path / FILE}' is not a check's. Give another folder with -o."
        ) from None
