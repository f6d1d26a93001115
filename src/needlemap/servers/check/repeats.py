"""Probes of single answers: the same prompt again, somebody else's secret, an answer that never
ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from needlemap.servers.check.ask import TIMES_ROOM, TOSS, Answers, Ask, Reply, roomy
from needlemap.servers.check.effects import rate, rates_apart
from needlemap.servers.check.finding import AtSize, Finding, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.owners import LONG_SECRET, Owners
from needlemap.servers.check.probe import LEAST, NOTHING, Groups, Pair, Probe, smallest
from needlemap.stats.exact import binomial_tail, more_often
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, SUSPECT, row_word

CHANGED = 0.25  # share of repeats that a pass excludes
# Share of repeats that may change on a server that samples: two answers, each right by a chance of
# its own, differ in half of the cases at most.
RESTLESS = 0.5
TIPPED = 0.2  # share of repeats that rounding may tip, where six answers are about as likely
SUSPICIOUS = 0.015  # a p below it keeps a size from passing: 5 % for three sizes
TOLD = 3  # endless answers that must stay so with more room before a size fails
MOST_ROOMY = 8  # endless answers of a size that are asked for again with more room
NEVER = 0.20  # share of answers without an end that a pass excludes


class Same(Probe):
    """The same prompt twice: how often is one answer right and one wrong?

    A known model is also asked what has several right answers, all as likely. A server that samples
    tosses there; one that takes the likeliest token gives the same answer again, or now and then
    another one where rounding tips a tie.
    """

    name = "same"
    order = 70
    asked = (
        "the same warm prompt twice, at every size; the shortest prompts twice are the yardstick; "
        "the gauge also with each six-answer prompt"
    )
    sees = (
        "right and wrong in turn: a race, one bad replica, a dead back end behind a balancer; with "
        "the gauge a temperature that was left on"
    )
    cannot = "faults that occur every time"
    excludes = "answers that change when asked again"
    share = 0.08
    must = True
    uses_shortest = True
    tosses = True
    known = (
        issue(
            "ikawrakow/ik_llama.cpp#2083",
            "a race that overwrites rows of the cache, now and then",
            "one sequence at a time; fewer threads or streams; each replica by itself",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Some prompts twice."""
        return haystack.warm, *haystack.questions, *haystack.again

    def helps(self, row: AtSize) -> bool:
        """Further repeats may decide, also where half of them change, as of a race they do."""
        return row.n > 0

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size beside the shortest prompts. These excuse nothing where they, or all
        repeats, change more often than a server that samples may: behind a balancer with a
        dead back end the shortest change each time."""
        tossed = answers.same_prompt(layout.short, *TOSS)
        level = self.level(look, len(layout.sizes) + bool(tossed))
        short = answers.same_prompt(layout.short, "short", "short-again")
        base = changes_of(short), len(short)
        every = [pair for size in layout.sizes for pair in repeats_of(answers, size)] + short
        restless = min(
            binomial_tail(changes_of(each), len(each), RESTLESS) for each in (every, short)
        )
        rows = [self._at(answers, size, base, restless, level) for size in layout.sizes]
        if not tossed:
            return self.whole(rows)
        races = any(row.state == FAIL for row in rows)
        found = self.whole([sampled(rows[0], tossed, level), *rows[1:]])
        return found if races else replace(found, known=())

    def _at(
        self, answers: Answers, size: int, base: tuple[int, int], restless: float, level: float
    ) -> AtSize:
        pairs = repeats_of(answers, size)
        if not pairs:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        changed = [pair for pair in pairs if pair[0].right != pair[1].right]
        found = sum(one.right or other.right for one, other in pairs)
        n, count = len(pairs), len(changed)
        effect = rate(count, n)
        assert effect is not None  # there are some
        more = more_often(count, n, *base) if base[1] else 1.0
        often = max(count / n, base[0] / base[1] if base[1] else 0.0) > RESTLESS
        p = min(1.0, 3 * min(more, restless if often else 1.0))
        fails = p <= level and count > 0
        able = n >= LEAST and 2 * found >= n
        passes = able and effect.high < CHANGED and more > SUSPICIOUS
        said = f"{count} of {n} change when asked again"
        if count:
            said += f" ({base[0]} of {base[1]} of the shortest)"
        if count and not passes and not fails and 4 * base[0] > base[1]:
            said += ": as of a temperature, which all lengths share"
        wrong = [one if not one.right else other for one, other in changed]
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=count > 0 or 2 * found < n),
            n,
            count,
            0,
            effect,
            100 * effect.high,
            p,
            said,
            smallest(wrong) if not passes else None,
        )


def sampled(row: AtSize, pairs: Sequence[Pair], level: float) -> AtSize:
    """A row with what became of the question that has several right answers: a fail where
    surely more than one asking in five brings another answer."""
    other = sum(one.answer != again.answer for one, again in pairs)
    if not other:
        return row
    p = binomial_tail(other, len(pairs), TIPPED)
    said = f"{row.said}; asked for what has six answers, {other} of {len(pairs)} give another one"
    if p > SUSPICIOUS:
        return replace(row, said=said)
    said += ": a temperature or another sampling is on"
    worst = row.worst or smallest(again for one, again in pairs if one.answer != again.answer)
    fails = row.state == FAIL or p <= level
    return replace(row, state=FAIL if fails else SUSPECT, p=p, said=said, worst=worst)


def repeats_of(answers: Answers, size: int) -> list[Pair]:
    """The same prompts twice, at one size."""
    return answers.same_prompt(size, "warm|ask", "again")


def changes_of(pairs: Iterable[Pair]) -> int:
    """Pairs of which one answer is right and one is wrong."""
    return sum(one.right != other.right for one, other in pairs)


class Mates(Probe):
    """Does an answer hold the secret of another prompt?"""

    name = "mates"
    order = 55
    asked = "every prompt hides secrets of its own, of twelve digits"
    sees = "another prompt's secret in an answer: one is a fail, at every look"
    cannot = "leaks that change no answer, and rates below the one that it names"
    excludes = "answers with a foreign secret"
    share = 0.01
    must = True
    known = (
        issue(
            "LMCache/LMCache#4385",
            "answers that hold another prompt's secret",
            "the shared cache off: this is a leak between users, whatever else it is",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """Secrets that differ."""
        return "" if layout.options.distinct else "facts that differ by haystack: give --draw"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Alone and, where the model answers several at a time, among others."""
        alone = haystack.cold, *haystack.questions
        serial = haystack.layout.options.serial
        if serial:
            return alone
        wave = *haystack.loaded, *haystack.crowd
        return *alone, *wave, *haystack.after, *haystack.crowd_after

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """All answers, by size; those of short prompts beside others count at the first."""
        every = answers.every()
        owners = Owners[Hashable]()
        for reply in every:
            owners.add((reply.secret, *reply.beside), reply.ask.haystack[:2])
        by_size: dict[int, list[Reply]] = {size: [] for size in layout.sizes}
        for reply in every:
            by_size.setdefault(reply.ask.size, []).append(reply)
        by_size[layout.sizes[0]] += by_size.pop(layout.short, [])
        level = self.level(look, len(layout.sizes))
        return self.whole([self._at(size, by_size[size], owners, level) for size in layout.sizes])

    def _at(
        self, size: int, rows: Sequence[Reply], owners: Owners[Hashable], level: float
    ) -> AtSize:
        if not rows:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        leaks = [reply for reply in rows if _foreign(reply, owners)]
        n = len(rows)
        p = None
        if owners.least < LONG_SECRET:  # short ones may be equal by chance
            wrong = sum(not reply.right for reply in rows)
            alike = min(1.0, len(owners.of) * 0.1 ** max(1, owners.least))
            p = min(1.0, binomial_tail(len(leaks), max(wrong, len(leaks)), alike))
        fails = bool(leaks) and (p is None or p <= level)
        effect = rate(len(leaks), n)
        assert effect is not None  # there are some
        told = sum(reply.right for reply in rows)
        able = n >= LEAST and 2 * told >= n
        passes = able and not leaks
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=bool(leaks) or 2 * told < n),
            n,
            len(leaks),
            0,
            effect,
            100 * effect.high,
            p,
            f"{len(leaks)} of {n} hold another prompt's secret",
            smallest(leaks),
        )

    def excluded(self, upper: float) -> str:
        """A rate of answers."""
        return f"{upper:.1f} %"


def _foreign(reply: Reply, owners: Owners[Hashable]) -> str:
    """A secret of another haystack that an answer holds; '' without one. A short right answer
    in words has no room for another secret."""
    if not owners.are_numbers and reply.right and len(reply.answer) < 2 * len(reply.secret):
        return ""
    return owners.foreign(reply.answer, (reply.secret, *reply.beside))


class Stop(Probe):
    """Do answers end? One that goes on behind long prompts, and ends behind short ones, is none."""

    name = "stop"
    order = 90
    asked = (
        "answers that never end, behind long prompts and the shortest; some of them once more with "
        "four times the budget"
    )
    sees = "a stop token that is not heeded behind long prompts"
    cannot = "a budget that is too small for the model"
    excludes = "answers that never end"
    share = 0.04
    uses_shortest = True
    known = (
        issue(
            "local-inference-lab/vllm#616",
            "answers that go on and on behind long prompts",
            "the stop tokens and the chat template that the server uses",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Whatever is asked alone."""
        return haystack.cold, *haystack.questions

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Some endless answers with four times the budget: a model that thinks longer behind long
        prompts ends then, and a stop token that is not heeded changes nothing."""
        context = layout.options.context
        more = (TIMES_ROOM - 1) * layout.options.answer_tokens
        endless = [
            reply.ask
            for reply in self.rows(answers, size)
            if not reply.ended and (context is None or reply.ask.length + more <= context)
        ]
        for ask in endless[:MOST_ROOMY]:
            yield [[roomy(ask)]]

    def rows(self, answers: Answers, size: int) -> list[Reply]:
        """Return the answers of one size."""
        return answers.of(size, "cold", "crowded", "warm", "ask")

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size beside the shortest prompts."""
        short = answers.of(layout.short, "short", "short-again")
        base = sum(not reply.ended for reply in short), len(short)
        level = self.level(look, len(layout.sizes))
        return self.whole([self._at(answers, size, base, level) for size in layout.sizes])

    def _at(self, answers: Answers, size: int, base: tuple[int, int], level: float) -> AtSize:
        rows = self.rows(answers, size)
        if not rows:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        endless = [reply for reply in rows if not reply.ended]
        n, count = len(rows), len(endless)
        p = more_often(count, n, *base) if base[1] else 1.0
        effect = rate(count, n)
        apart = rates_apart(count, n, *base)
        assert effect is not None  # there are some
        longer = [answers.by_key.get(roomy(reply.ask).key) for reply in endless]
        told = [reply for reply in longer if reply is not None and reply.measured]
        ended = sum(reply.ended for reply in told)
        fails = p <= level and len(told) >= min(TOLD, count) > 0 == ended
        passes = n >= LEAST and effect.high < NEVER and p > 0.05
        said = f"{count} of {n} never end"
        if ended:
            said += f", {ended} of {len(told)} do with {TIMES_ROOM} times the budget: raise "
            said += "--max-answer-tokens"
        elif told:
            said += f", nor do {len(told)} of {len(told)} with {TIMES_ROOM} times the budget"
        if count and 2 * base[0] > base[1]:
            said += f", {base[0]} of {base[1]} of the shortest: the template or the answer's budget"
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=count > 0),
            n,
            count,
            0,
            apart or effect,
            100 * effect.high,
            p,
            said,
            smallest(endless) if not passes else None,
        )
