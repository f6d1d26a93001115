"""Probes of lengths and places: what is found by length, at consecutive lengths, at consecutive
places."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import ClassVar

from needlemap.grid import short_size
from needlemap.servers.check.ask import FIRST, FIRST_BESIDE, Answers, Ask, Reply
from needlemap.servers.check.exact import (
    Effect,
    lost_tail,
    rate,
    rates_apart,
    strata_tail,
    upper_tail,
)
from needlemap.servers.check.finding import AtSize, Finding, issue
from needlemap.servers.check.haystack import BEHIND, CheckHaystack, Geometry
from needlemap.servers.check.probe import HELD, LEAST, NOTHING, Probe, smallest
from needlemap.stats.verdicts import NOT_ENOUGH_DATA, SUSPECT, row_word

FALL = 0.20  # of the found share, which a pass excludes
# Of a known model's facts: it missed none of 600 at each length, so that three, and so large a
# share, are the server's.
LEAST_LOST, LOST_KNOWN = 3, 0.05
SILENT = 0.1  # share of what was tried that may bring no answer
LEAST_FOUND = 0.5  # below it nothing is shown about the server
SUSPICIOUS = 0.05  # a p below it keeps a row from passing
BEYOND = 0.25  # misses, beside other answers of that size, that a pass excludes
RESIDUES = (2, 3, 4, 8, 16, 32, 64)


class Length(Probe):
    """Is as much found at each size as in the shortest prompts?"""

    name = "length"
    order = 0
    asked = "questions about the facts of each haystack, at all depths, behind shared prefixes"
    sees = "a length from which on facts are lost, whatever the cause"
    cannot = "whether the model or the server loses them; only `--reference` tells"
    excludes = "a fall of the found share, beside the shortest prompts"
    share = 0.02
    must = True
    uses_shortest = True
    known = (
        issue(
            "vllm-project/vllm#2064",
            "answers that are nonsense beyond a length",
            "the same prompts of the same weights elsewhere: --reference hf/PATH or an address",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Other questions about it."""
        return haystack.questions

    def helps(self, row: AtSize) -> bool:
        """Only where the interval holds both a fall that matters and one that does not."""
        return row.n > 0 and row.effect is not None and row.effect.low < FALL

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size beside the shortest prompts; beside a reference too, where one was asked, and
        beside what the model is known to find."""
        level = self.level(look, len(layout.sizes))
        short, holds = answers.of(layout.short, "short"), layout.options.holds
        least = layout.comb + BEHIND  # tokens by which a size's own prompts are shorter at most
        rows = [
            self._beside(answers, size, size - least, short, level, held=size <= holds)
            for size in layout.sizes
        ]
        return self.whole(rows)

    def _beside(
        self,
        answers: Answers,
        size: int,
        least: int,
        short: Sequence[Reply],
        level: float,
        *,
        held: bool,
    ) -> AtSize:
        every = answers.of(size, "ask")
        rows = [reply for reply in every if reply.ask.length >= least]
        between = [reply for reply in every if reply.ask.length < least]
        missed = sum(not reply.right for reply in between)
        found, n = sum(reply.right for reply in rows), len(rows)
        silent, tried, why = answers.unanswered(size)
        is_silent = silent > SILENT * tried
        said = ", ".join(
            [f"{found} of {n}"] * (n > 0)
            + [f"{missed} of {len(between)} between lost"] * (missed > 0)
            + [f"{silent} of {tried} without an answer: {why}"] * (silent > 0)
        )
        if not n:
            return AtSize(
                size, SUSPECT if is_silent else NOT_ENOUGH_DATA, said=said if silent else NOTHING
            )
        base = sum(reply.right for reply in short), len(short)
        if not base[1]:
            base = found, n
        effect = rates_apart(n - found, n, base[1] - base[0], base[1])
        assert effect is not None  # both have trials
        upper, share = 100 * effect.high, found / n
        lost = [reply for reply in (*rows, *between) if not reply.right]
        p = (
            upper_tail(n - found + missed, n + len(between), HELD)
            if held
            else self._beside_reference(answers, size)
        )
        lost_alone = n - found + missed
        too_many = held and lost_alone >= max(LEAST_LOST, LOST_KNOWN * (n + len(between)))
        fails = too_many or (p is not None and p <= level)
        passes = n >= LEAST and effect.high < FALL and share >= LEAST_FOUND and not is_silent
        points = share < LEAST_FOUND or effect.low > 0 or is_silent
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=points),
            n,
            n - found,
            0,
            effect,
            upper,
            p,
            said,
            None if passes else smallest(lost),
        )

    def _beside_reference(self, answers: Answers, size: int) -> float | None:
        pairs = answers.same_prompt(size, FIRST_BESIDE, FIRST)
        lost = sum(there.right and not here.right for there, here in pairs)
        gained = sum(here.right and not there.right for there, here in pairs)
        return lost_tail(lost, gained) if pairs else None

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """As the first line has it; where it falls, whose it may be."""
        said = super().in_words(rows)
        open_rows = [row for row in rows if row.state == SUSPECT and row.n]
        fallen = [short_size(row.size) for row in open_rows]
        if fallen:
            said += f"; at {', '.join(fallen)} the model or the server loses facts"
        return said


class Residues(Probe):
    """Are answers at one residue of a number missed more often than at others?"""

    noun: ClassVar[str]
    way: ClassVar[str]
    most: ClassVar[int]

    def number(self, reply: Reply) -> int:
        """The number whose residues are tried."""
        raise NotImplementedError

    def rows(self, answers: Answers, size: int) -> list[Reply]:
        """The answers whose residues are tried."""
        return answers.of(size, self.way)

    def stratum(self, _reply: Reply) -> Hashable:
        """Only answers of one stratum are set beside each other."""
        return None

    def beyond(self, _answers: Answers, _size: int) -> Effect | None:
        """By how much more is missed than in other answers, which no residue tells; None where all
        are tried."""
        return None

    def at(self, answers: Answers, size: int, level: float) -> AtSize:
        """The worst residue, at a level that is divided among all that are tried."""
        rows = self.rows(answers, size)
        if not rows:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        missed = [reply for reply in rows if not reply.right]
        tried = [by for by in RESIDUES if by <= self.most]
        classes = sum(tried)
        p, (by, rest), effect = worst_residue(rows, self.number, self.stratum, tried)
        p = min(1.0, p * classes)
        marked = [reply for reply in missed if self.number(reply) % by == rest]
        fails = p <= level and bool(marked)
        lost = len(missed) > LEAST_FOUND * len(rows)
        able = len(rows) >= LEAST and not lost
        beyond = self.beyond(answers, size)
        more = beyond is not None and beyond.high >= BEYOND
        passes = able and p > SUSPICIOUS and not more
        points = p <= SUSPICIOUS or lost or (beyond is not None and beyond.low > 0)
        worst = None if passes or lost else smallest(missed)  # where most are, no place is special
        said = f"{len(missed)} of {len(rows)} missed"
        if p <= SUSPICIOUS:
            worst = smallest(marked)
            of = sum(self.number(reply) % by == rest for reply in rows)
            said += f", {len(marked)} of {of} where {self.noun} % {by} = {rest}"
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=points),
            len(rows),
            len(missed),
            0,
            effect,
            self._upper(rows),
            p,
            said,
            worst,
        )

    def _upper(self, rows: Sequence[Reply]) -> float:
        """Points of loss at one residue of 4 that are not excluded."""
        worst = 0.0
        for rest in range(4):
            mine = [not reply.right for reply in rows if self.number(reply) % 4 == rest]
            found = rate(sum(mine), len(mine))
            worst = max(worst, found.high if found else 1.0)
        return 100 * worst

    def excluded(self, upper: float) -> str:
        """The rate at one residue of four."""
        return f"{upper:.0f} points at one in 4"


def worst_residue(
    rows: Sequence[Reply],
    number: Callable[[Reply], int],
    stratum: Callable[[Reply], Hashable],
    tried: Sequence[int],
) -> tuple[float, tuple[int, int], Effect | None]:
    """The least p of all residues, the residue, and by how much it is missed more often."""
    strata = defaultdict[Hashable, list[tuple[int, bool]]](list)
    for reply in rows:
        strata[stratum(reply)].append((number(reply), not reply.right))
    total = sum(miss for each in strata.values() for _, miss in each)
    best: tuple[float, tuple[int, int], Effect | None] = (1.0, (tried[0], 0), None)
    for by in tried:
        misses = Counter(at % by for each in strata.values() for at, miss in each if miss)
        for rest, found in misses.items():
            if found * by <= total:
                continue
            counts = [_counted(each, by, rest) for each in strata.values()]
            p = strata_tail(counts)
            if p <= best[0]:  # of two that fit alike, the rarer residue
                marked = sum(row[1] for row in counts)
                others = total - found, len(rows) - marked
                best = p, (by, rest), rates_apart(found, marked, *others)
    return best


def _counted(rows: Sequence[tuple[int, bool]], by: int, rest: int) -> tuple[int, int, int, int]:
    """Answers of a stratum, of them at a residue, misses, of them at it."""
    mine = [miss for at, miss in rows if at % by == rest]
    return len(rows), len(mine), sum(miss for _, miss in rows), sum(mine)


class Comb(Residues):
    """Consecutive lengths: is one residue missed where its neighbours are not?"""

    name = "comb"
    order = 10
    noun, way, most = "length", "ask", 64
    asked = "64 consecutive lengths behind a cached prefix; misses by length modulo 2 to 64"
    sees = "one length in two, four, ... or sixty-four that is computed wrong"
    cannot = "what goes wrong at every length; one length in 64 that is wrong now and then"
    excludes = "a loss at one length in four"
    share = 0.10
    must = True
    known = (
        issue(
            "vllm-project/vllm#55927",
            "a wrong token at one prompt length in four",
            "another kernel or attention back end; pad prompts by a token and ask again",
        ),
        issue(
            "sgl-project/sglang#29633",
            "a first token that is wrong on hits of one length modulo 64",
            "prefix caching off, or another page size",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Questions at lengths of their own."""
        return haystack.questions

    def number(self, reply: Reply) -> int:
        """The length."""
        return reply.ask.length


class Edges(Residues):
    """Consecutive places of the needle at one length."""

    name = "edges"
    order = 20
    noun, way, most = "place", "edges", 64
    asked = (
        "a fact at sixteen consecutive tokens around the last end of a block near the prompt's; "
        "all facts by the token at which they stand, modulo 2 to 64"
    )
    sees = "a fact that is lost at some places of a block or chunk"
    cannot = "a loss so small that answers stay right; one place in 64, with few facts there"
    excludes = "a loss at one place in four"
    share = 0.08
    known = (
        issue(
            "tinygrad/tinygrad#15182",
            "chunked prefill that feeds wrong tokens at a chunk's edge",
            "another chunk size, or chunked prefill off",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The last fact at another place."""
        return haystack.edges

    def rows(self, answers: Answers, size: int) -> list[Reply]:
        """Facts at the chosen places and, where those were asked for, at their usual ones."""
        chosen = answers.of(size, self.way)
        return chosen + answers.of(size, "ask") if chosen else []

    def number(self, reply: Reply) -> int:
        """Tokens before the fact."""
        return reply.start

    def stratum(self, reply: Reply) -> Hashable:
        """Facts at one depth: a model may find less at another."""
        return reply.ask.way, reply.ask.fact

    def beyond(self, answers: Answers, size: int) -> Effect | None:
        """Facts at the chosen places beside those at their usual ones."""
        sides = answers.of(size, self.way), answers.of(size, "ask")
        (mine, n), (others, of) = [
            (sum(not reply.right for reply in side), len(side)) for side in sides
        ]
        return rates_apart(mine, n, others, of)
