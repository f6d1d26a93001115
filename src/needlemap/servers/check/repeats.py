"""Probes of single answers: another answer to the same prompt, a foreign secret, an answer that
never ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from needlemap.servers.check.ask import (
    TIMES_ROOM,
    TOSS,
    Answers,
    Ask,
    Reply,
    framing_of,
    with_larger_budget,
)
from needlemap.servers.check.effects import rate, rates_apart, rounded_up
from needlemap.servers.check.finding import AtSize, Finding, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.owners import LONG_SECRET, Owners
from needlemap.servers.check.probe import LEAST, NOTHING, Groups, Pair, Probe, smallest
from needlemap.stats.exact import binomial_tail, chance_of_more
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, SUSPECT, row_word

# The share of changed repeats that a pass rules out.
CHANGED = 0.25
# The share of repeats that may change on a server that samples: two answers that are each right by
# chance differ in half of the cases at most.
SAMPLING_RATE = 0.5
# The share of repeats that rounding may change if six answers are about equally likely.
ROUNDING_RATE = 0.2
# A p below it keeps a size from passing: 5 % for three sizes.
SUSPICIOUS = 0.015
# Endless answers that must stay endless with more room before a size fails.
ENDLESS_RETRIES = 3
# Endless answers of a size that are sent again with more room.
MOST_ROOMY = 8
# The share of endless answers that a pass rules out.
NEVER = 0.20


class Same(Probe):
    """The same prompt twice: how often is one answer right and one wrong?

    A known model is also asked what has several right answers, all as likely. A server that samples
    tosses there; one that takes the likeliest token gives the same answer again, or now and then
    another one where rounding tips a tie.
    """

    name = "same"
    order = 70
    asked = "the same cached prompt twice, at every size"
    sees = "right and wrong in turn: a race, one bad replica; with the gauge a temperature"
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
        """Return the prompts that are sent twice, and their repeats."""
        return haystack.warm, *haystack.questions, *haystack.repeated_asks

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True: repeats change if one is right and the other is not."""
        return True

    def helps(self, row: AtSize) -> bool:
        """Return True if there are repeats: with a race, half of them may change."""
        return row.n > 0

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return the finding of all sizes, each compared with the shortest prompts.

        If the shortest prompts, or all repeats, change more often than a server that samples can
        explain, the shortest prompts excuse nothing. Behind a balancer with a dead back end they
        change each time.
        """
        toss_pairs = answers.same_prompt(layout.short, *TOSS)
        level = self.level(look, len(layout.sizes) + bool(toss_pairs))
        short_pairs = answers.same_prompt(layout.short, "short", "short-again")
        short_counts = count_changes(short_pairs), len(short_pairs)
        repeats = [pair for size in layout.sizes for pair in repeats_of(answers, size)]
        repeats += short_pairs
        p_sampling = min(
            binomial_tail(count_changes(pairs), len(pairs), SAMPLING_RATE)
            for pairs in (repeats, short_pairs)
        )
        rows = [
            self._row_at(
                answers, size, short_counts=short_counts, p_sampling=p_sampling, level=level
            )
            for size in layout.sizes
        ]
        if not toss_pairs:
            return self.whole(rows)

        finding = self.whole([with_toss(rows[0], toss_pairs, level), *rows[1:]])
        has_race = any(row.state == FAIL for row in rows)
        if not has_race:
            # The known issues are races, and what was found is a server that samples.
            finding = replace(finding, known=())
        return finding

    def _row_at(
        self,
        answers: Answers,
        size: int,
        short_counts: tuple[int, int],
        p_sampling: float,
        level: float,
    ) -> AtSize:
        """Return the row of one size.

        short_counts: how many of the shortest prompts' answers changed, of how many. p_sampling:
            the chance that a server that samples changes so many answers. level: the alpha of this
            size.
        """
        pairs = repeats_of(answers, size)
        if not pairs:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

        changed_pairs = [(first, second) for first, second in pairs if first.right != second.right]
        found_count = sum(first.right or second.right for first, second in pairs)
        n = len(pairs)
        count = len(changed_pairs)
        effect = rate(count, n)
        # There are pairs, so there is an effect.
        assert effect is not None

        short_count, short_n = short_counts
        if short_n:
            p_more = chance_of_more(count, n, short_count, short_n)
            highest_rate = max(count / n, short_count / short_n)
        else:
            p_more = 1.0
            highest_rate = count / n
        if highest_rate <= SAMPLING_RATE:
            p_sampling = 1.0
        # Three tests share the level: that of the shortest prompts, and both of `p_sampling`.
        p = min(1.0, 3 * min(p_more, p_sampling))

        fails = p <= level and count > 0
        passes = n >= LEAST and 2 * found_count >= n
        passes = passes and effect.high < CHANGED and p_more > SUSPICIOUS
        sentence = f"{count} of {n} change when asked again"
        if count:
            sentence += f" ({short_count} of {short_n} of the shortest)"
        if count and not passes and not fails and 4 * short_count > short_n:
            sentence += ": as of a temperature, which all lengths share"
        wrong_replies = [second if first.right else first for first, second in changed_pairs]
        return AtSize(
            size=size,
            state=row_word(fails=fails, passes=passes, points=count > 0 or 2 * found_count < n),
            n=n,
            lost=count,
            effect=effect,
            upper=100 * effect.high,
            p=p,
            said=sentence,
            worst=None if passes else smallest(wrong_replies),
        )


def with_toss(row: AtSize, pairs: Sequence[Pair], level: float) -> AtSize:
    """Return a row with the outcome of the question that has several right answers.

    If surely more than ROUNDING_RATE of the repeats have another answer, the row fails.
    """
    changed_repeats = [repeat for first, repeat in pairs if first.answer != repeat.answer]
    if not changed_repeats:
        return row

    p = binomial_tail(len(changed_repeats), len(pairs), ROUNDING_RATE)
    sentence = (
        f"{row.said}; asked for what has six answers, {len(changed_repeats)} of {len(pairs)} give "
        "another one"
    )
    if p > SUSPICIOUS:
        return replace(row, said=sentence)

    sentence += ": a temperature or another sampling is on"
    fails = row.state == FAIL or p <= level
    return replace(
        row,
        state=FAIL if fails else SUSPECT,
        p=p,
        said=sentence,
        worst=row.worst or smallest(changed_repeats),
    )


def repeats_of(answers: Answers, size: int) -> list[Pair]:
    """Return the pairs of answers to the same prompts at one size."""
    return answers.same_prompt(size, "warm|ask", "again")


def count_changes(pairs: Iterable[Pair]) -> int:
    """Return the number of pairs of which one answer is right and the other is wrong."""
    return sum(first.right != second.right for first, second in pairs)


class Mates(Probe):
    """Does an answer hold the secret of another prompt?"""

    name = "mates"
    order = 55
    asked = "every prompt hides twelve-digit secrets of its own"
    sees = (
        "another prompt's secret in an answer: one of 12 characters or more is a FAIL, and so are "
        "more short numbers than chance explains; short words are SUSPECT"
    )
    cannot = "rates below the one that it names"
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
        """Return the option that is needed if all haystacks have the same secrets, else ''."""
        return "" if layout.options.distinct else "facts that differ by haystack: give --draw"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the prompts that are sent alone, and those that are sent at the same time.

        A model that answers one prompt at a time is sent only the first kind.
        """
        alone = haystack.cold, *haystack.questions
        if haystack.layout.options.serial:
            return alone

        wave = *haystack.wave, *haystack.crowd
        return *alone, *wave, *haystack.asks_after_wave, *haystack.crowd_repeats

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return the finding of all answers, by size.

        The answers to the shortest prompts count at the first size.
        """
        replies = answers.every()
        owners = Owners[Hashable]()
        for reply in replies:
            owners.add((reply.secret, *reply.other_secrets), reply.ask.haystack[:2])

        by_size: dict[int, list[Reply]] = {size: [] for size in layout.sizes}
        for reply in replies:
            by_size.setdefault(reply.ask.size, []).append(reply)
        by_size[layout.sizes[0]] += by_size.pop(layout.short, [])

        level = self.level(look, len(layout.sizes))
        return self.whole(
            [self._at(size, by_size[size], owners=owners, level=level) for size in layout.sizes]
        )

    def _at(
        self, size: int, replies: Sequence[Reply], owners: Owners[Hashable], level: float
    ) -> AtSize:
        if not replies:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

        leaks = [reply for reply in replies if _foreign_secret(reply, owners)]
        n = len(replies)
        right_count = sum(reply.right for reply in replies)
        sentence = f"{len(leaks)} of {n} hold another prompt's secret"
        p = None
        # Short secrets may be equal by chance.
        if owners.shortest_size < LONG_SECRET:
            wrong_count = n - right_count
            chance = min(1.0, len(owners.by_secret) * 0.1 ** max(1, owners.shortest_size))
            p = min(1.0, binomial_tail(len(leaks), max(wrong_count, len(leaks)), chance))
        effect = rate(len(leaks), n)
        # There are replies, so there is an effect.
        assert effect is not None

        # How often a model says a short word without a leak is not known, so words prove nothing.
        are_short_words = p is not None and not owners.all_digits
        fails = bool(leaks) and not are_short_words and (p is None or p <= level)
        is_suspicious = _is_beyond_chance(len(leaks), p)
        if leaks and not is_suspicious:
            sentence += f", which has {owners.shortest_size} characters: chance explains that"
        elif leaks and are_short_words:
            sentence += ", a short word, which a model may say without a leak"
        passes = n >= LEAST and 2 * right_count >= n and not is_suspicious
        return AtSize(
            size=size,
            state=row_word(fails=fails, passes=passes, points=is_suspicious or 2 * right_count < n),
            n=n,
            lost=len(leaks),
            effect=effect,
            upper=100 * effect.high,
            p=p,
            said=sentence,
            worst=None if passes else smallest(leaks),
        )

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True if no secret leaked, so that the row is open for want of right answers."""
        return not _is_beyond_chance(row.lost, row.p)

    def excluded(self, upper: float) -> str:
        """Return the rate of answers that a pass rules out."""
        return f"{rounded_up(upper / 100)} %"


def _is_beyond_chance(leaks: int, p: float | None) -> bool:
    """Return True if wrong answers do not explain the leaks. p: None for long secrets."""
    return leaks > 0 and (p is None or p <= SUSPICIOUS)


def _foreign_secret(reply: Reply, owners: Owners[Hashable]) -> str:
    """Return a secret of another haystack that an answer holds, or '' if there is none.

    A short right answer in words has no room for another secret.
    """
    if not owners.are_numbers and reply.right and len(reply.answer) < 2 * len(reply.secret):
        return ""
    return owners.foreign_secret(reply.answer, (reply.secret, *reply.other_secrets))


class Stop(Probe):
    """Do answers end? A fault is if they end after short prompts and not after long ones."""

    name = "stop"
    order = 90
    asked = (
        "answers that never end, after long prompts and short ones; some again with "
        "four times the budget"
    )
    sees = "a stop token that is ignored after long prompts"
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
        """Return the prompts that are sent alone."""
        return haystack.cold, *haystack.questions

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True: an endless answer is never right."""
        return True

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Yield prompts with endless answers once more, with four times the budget.

        With more room, a model that thinks longer after long prompts ends. A server that ignores a
        stop token does not.
        """
        context = layout.options.context
        # The server's own template takes room too.
        further_tokens = (TIMES_ROOM - 1) * layout.options.answer_tokens
        further_tokens += framing_of(answers) or 0
        endless = [
            reply.ask
            for reply in self.replies(answers, size)
            if not reply.ended and (context is None or reply.ask.length + further_tokens <= context)
        ]
        for ask in endless[:MOST_ROOMY]:
            yield [[with_larger_budget(ask)]]

    def replies(self, answers: Answers, size: int) -> list[Reply]:
        """Return the answers of one size."""
        return answers.of(size, "cold", "crowded", "warm", "ask")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size, compared with the shortest prompts."""
        replies = self.replies(answers, size)
        if not replies:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

        endless = [reply for reply in replies if not reply.ended]
        n = len(replies)
        count = len(endless)
        short = answers.of(layout.short, "short", "short-again")
        short_count, short_n = sum(not reply.ended for reply in short), len(short)
        p = chance_of_more(count, n, short_count, short_n) if short_n else 1.0
        effect = rate(count, n)
        # There are replies, so there is an effect.
        assert effect is not None
        # None if there are no short prompts to compare with.
        difference = rates_apart(count, n, short_count, short_n)

        retries = []
        for reply in endless:
            retry = answers.by_key.get(with_larger_budget(reply.ask).key)
            if retry is not None and retry.measured:
                retries.append(retry)
        ended_count = sum(retry.ended for retry in retries)

        has_enough_retries = count > 0 and len(retries) >= min(ENDLESS_RETRIES, count)
        fails = p <= level and has_enough_retries and not ended_count
        passes = n >= LEAST and effect.high < NEVER and p > 0.05
        said = f"{count} of {n} never end"
        if ended_count:
            said += (
                f", {ended_count} of {len(retries)} do with {TIMES_ROOM} times the budget: raise "
            )
            said += "--max-answer-tokens"
        elif retries:
            said += f", nor do {len(retries)} of {len(retries)} with {TIMES_ROOM} times the budget"
        if count and 2 * short_count > short_n:
            said += (
                f", {short_count} of {short_n} of the shortest: the template or the answer's budget"
            )
        return AtSize(
            size=size,
            state=row_word(fails=fails, passes=passes, points=count > 0),
            n=n,
            lost=count,
            effect=difference or effect,
            upper=100 * effect.high,
            p=p,
            said=said,
            worst=None if passes else smallest(endless),
        )
