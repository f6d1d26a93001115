"""Probes beside something else: log-probabilities cold and warm, the context that the server tells,
the same weights elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from statistics import fmean, median

from needlemap.servers.check.ask import (
    BESIDE,
    FIRST,
    FIRST_BESIDE,
    Answers,
    Ask,
    Key,
    Reply,
    framing_of,
)
from needlemap.servers.check.effects import middle, rates_apart
from needlemap.servers.check.finding import AtSize, Finding, Worst, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.margins import LEAST_NATS, TIMES_USUAL, finest_type, nats_apart
from needlemap.servers.check.probe import (
    HELD,
    LEAST,
    NOTHING,
    Groups,
    Pair,
    Paired,
    Probe,
    crowd_of,
    smallest,
)
from needlemap.stats.exact import binomial_tail, more_often
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, row_word

ROUNDED_NATS = 0.25  # a token: two steps of bfloat16 between 16 and 32, where logits lie
MOVED = 0.2  # share of haystacks whose margins an honest copy of the weights may move by so much
MOVED_KNOWN = 0.05  # the same of a known model, whose limit is twice what honest engines move any
SUSPICIOUS = 0.05  # a p below it keeps a known model's size from passing


class Nats(Probe):
    """Is a model as sure of the same answer behind a warm cache as behind an empty one?

    What two warm askings differ by is the server's own noise: of a sound one the cold asking is as
    likely as not to differ by less.
    """

    name = "nats"
    order = 35
    asked = "each first prompt cold, warm and warm again: its margin over the runner-up in nats"
    sees = "a warm cache under which the same answer is more or less likely"
    cannot = "a move of less than twice the server's own noise, or than 0.02 nats a token"
    share = 0.03
    known = (
        issue(
            "vllm-project/vllm#43559",
            "positions off behind a prefix-cache hit",
            "prefix caching off, or speculative decoding off",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """A server that gives log-probabilities."""
        return "" if layout.options.logprobs else "log-probabilities, which this back end lacks"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first prompt cold, warm, and warm again, with others between them."""
        return haystack.cold, haystack.warm, haystack.again[0], *haystack.questions

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Whether the server gave none."""
        rows = answers.every("warm")
        if rows and all(reply.margins is None for reply in rows):
            return "needs log-probabilities, which the server does not give"
        return ""

    def helps(self, row: AtSize) -> bool:
        """Only where answers were alike."""
        return row.n > 0

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """A sign test of the pairs whose margins move beyond the server's own noise."""
        again = {warm.ask.prompt: other for warm, other in _pairs(answers, size, "warm", "again")}
        moved = list[tuple[float, float, Reply]]()
        for cold, warm in answers.same_prompt(size, FIRST, "warm"):
            if warm.ask.prompt in again:
                apart = nats_apart(cold.margins, warm.margins)
                usual = nats_apart(warm.margins, again[warm.ask.prompt].margins)
                if apart is not None and usual is not None:
                    moved.append((apart, usual, warm))
        if not moved:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        told = _least_shift([row[1] for row in moved], most_moved(layout))
        if layout.options.moves:  # not learnt from a server that may be spoilt already
            told = min(told, most_moved(layout))
        beyond = [row for row in moved if row[0] > told]
        # A fault that begins at this size moves no margin of the haystacks between the sizes.
        between = layout.drawn_lengths[size]
        tested = [moved, [row for row in moved if row[2].ask.length not in between]]
        counts = [(sum(row[0] > told for row in rows), len(rows)) for rows in tested]
        n = len(moved)
        p = min(1.0, 2 * min(binomial_tail(count, of, 0.5) for count, of in counts))
        most_move = any(2 * count > of for count, of in counts)
        fails = p <= level and bool(beyond)
        passes = n >= LEAST and not most_move
        effect = middle([row[0] for row in moved])
        said = f"{len(beyond)} of {n} margins move once cached"
        if beyond:
            noise = median(row[1] for row in moved)
            said += f", by {effect.value if effect else 0:.2g} nats a token, noise {noise:.2g}"
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=most_move),
            n,
            len(beyond),
            0,
            effect,
            None,
            p,
            said,
            smallest(row[2] for row in beyond) if not passes else None,
        )


def _pairs(answers: Answers, size: int, first: str, second: str) -> list[Pair]:
    return answers.same_prompt(size, first, second)


def _least_shift(usual: Sequence[float], rounded: float) -> float:
    """Nats by which a margin must move to be told, beside what equal askings differ by. rounded:
    what the coarsest rounding may move it by.

    Where these are the same to the last bit, they do not tell in which precision a server rounds.
    """
    middling = median(usual)
    if not middling and not any(0 < each < LEAST_NATS for each in usual):
        return rounded
    return max(LEAST_NATS, TIMES_USUAL * middling)


def most_moved(layout: Geometry) -> float:
    """By how many nats a token the margins of an honest engine differ from the reference's at
    most: of a known model by its coarsest data type."""
    moves = layout.options.moves
    return moves[-1][1] if moves else ROUNDED_NATS


def data_type(layout: Geometry, most: float) -> str:
    """The finest data type that explains a move of margins, in words; '' where none is known.

    most: the largest move of a prompt, nats a token."""
    found = finest_type(layout.options.moves, most)
    return f", as {found[0]} may (to {found[1]:g})" if found else ""


class Window(Probe):
    """Prompts that were promised room are taken, the last tokens of the context too; a longer one
    is refused, not cut."""

    name = "window"
    order = 110
    asked = "the last eight tokens of the context that the server tells, and one beyond"
    sees = "a context that ends before what was promised, or a longer prompt that is answered"
    cannot = "servers that tell no context; lengths of another vocabulary"
    share = 0.02
    known = (
        issue(
            "marin-community/marin#7626",
            "a context that ends before the length that was promised",
            "a larger context size on the server, for each of its slots (Ollama: num_ctx; "
            "llama.cpp: --ctx-size)",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """A context that the server tells, within --max-length; or a promise that it broke."""
        options = layout.options
        if options.context is None:
            return "" if options.promised else "a server that tells its context"
        if options.context > layout.sizes[-1] and not options.promised:
            return f"--max-length {options.context}, the context that the server tells"
        return ""

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Whether nothing was refused and nothing asked at the context's end."""
        options = layout.options
        if self._broken(layout, answers):
            return ""
        if options.context is None:
            return "needs a server that tells its context"
        if options.context > layout.sizes[-1]:
            return f"needs --max-length {options.context}, the context that the server tells"
        if not answers.every("window", "beyond"):
            return "needs lengths of the model's own vocabulary"
        return ""

    def _broken(self, layout: Geometry, answers: Answers) -> list[Reply]:
        """Refused prompts for which there was room: by --max-length, or by the context that the
        server tells, in tokens of its own."""
        refused = [each for each in answers.refused() if each.ask.way != "beyond"]
        context, framing = layout.options.context, framing_of(answers)
        if layout.options.promised or context is None or framing is None:
            return refused if layout.options.promised else []
        return [each for each in refused if each.ask.length + framing <= context]

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """One row: the end of the context, beside other prompts of that length."""
        why = self.absent(layout, answers)
        if why:
            return Finding(self.name, "not applicable", 0, why)
        return self.whole([self._end(layout, answers, self.level(look, 1))])

    def _end(self, layout: Geometry, answers: Answers, level: float) -> AtSize:
        size = layout.sizes[-1]
        if refused := self._broken(layout, answers):
            least = min(refused, key=lambda reply: reply.ask.length)
            said = f"prompts of {least.ask.length:,} tokens are refused: less than promised"
            return AtSize(size, FAIL, len(refused), said=said, worst=Worst.of(least))
        inside, beyond = answers.every("window"), answers.every("beyond")
        if beyond:
            counted = beyond[0].prompt_tokens
            said = "a prompt longer than the context is answered, not refused"
            said += f"; {counted:,} of its tokens were counted" if counted is not None else ""
            return AtSize(size, FAIL, 1, said=said, worst=Worst.of(beyond[0]))
        if not inside:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        missed = [reply for reply in inside if not reply.right]
        others = answers.of(size, "cold", "crowded", "ask")
        wrong = sum(not reply.right for reply in others)
        p = more_often(len(missed), len(inside), wrong, len(others))
        effect = rates_apart(len(missed), len(inside), wrong, len(others))
        fails = p <= level and bool(missed)
        passes = not missed and 2 * wrong <= len(others)
        said = f"{len(missed)} of {len(inside)} missed at the end of the context"
        said += f", {wrong} of {len(others)} elsewhere at that length" if missed else ""
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=bool(missed)),
            len(inside),
            len(missed),
            0,
            effect,
            None,
            p,
            said,
            smallest(missed) if missed else None,
        )


class Reference(Paired):
    """What the same weights find elsewhere and the server loses; and answers that both give, with
    other margins. Engines differ in the last digits: how much is usual is seen where the server is
    asked twice."""

    name = "reference"
    order = 100
    asked = "the same prompts of the same weights elsewhere: answers, and their margins"
    sees = (
        "all that is wrong cold and warm, alone and loaded alike: windows, positions, quantised "
        "caches"
    )
    cannot = (
        "a fault that both have; margins that move by less than 0.25 nats a token, as engines in "
        "bfloat16 may; random weights, whose margins differ between any two engines"
    )
    share = 0.09
    lost_in = "lost that the reference finds"
    known = (
        issue(
            "tinygrad/tinygrad#15182",
            "wrong tokens or rows in prefill",
            "another chunk size, or chunked prefill off",
        ),
        issue(
            "ml-explore/mlx-examples#799",
            "rotary positions scaled in another way than the model was trained with",
            "the rope_scaling and rope_theta that the server took from the configuration",
        ),
        issue(
            "vllm-project/vllm#54705",
            "a quantised KV cache, whose losses answers alone do not show",
            "the KV cache in the weights' own precision",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """A reference."""
        return "" if layout.options.reference else "--reference hf/PATH, or a server's address"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first prompt, here and there."""
        there = replace(haystack.cold, way=f"{BESIDE}{haystack.cold.way}", state="warm")
        return (haystack.cold, there) if haystack.is_beside else ()

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """There, then here."""
        return answers.same_prompt(size, FIRST_BESIDE, FIRST)

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """Here and there, behind a first line of its own; here beside others where it was."""
        there, here = self.pair_again(pair, number)
        crowd = crowd_of(layout, pair[1].ask, number) if here.state == "loaded" else []
        return [[here, *crowd], [there]]

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Half of the level for answers, half for margins."""
        pairs = self.pairs(answers, size)
        usual = HELD if size <= layout.options.holds else None
        row = self.compared(answers, size, level / 2, pairs, usual)
        if not pairs:
            return row
        # A known model's limit is not learnt from the server, which may be spoilt already.
        usual_nats = 0.0 if layout.options.moves else TIMES_USUAL * _usual(answers, size)
        told = max(most_moved(layout), usual_nats)
        apart = [(nats_apart(there.margins, here.margins), here) for there, here in pairs]
        moved = [(nats, here) for nats, here in apart if nats is not None]
        far = [here for nats, here in moved if nats > told]
        sure = 2 * sum(there.right for there, _ in pairs) >= len(pairs)
        share = MOVED_KNOWN if layout.options.moves else MOVED
        p = binomial_tail(len(far), len(moved), share) if moved and sure else 1.0
        said = row.said
        if moved:
            mean = fmean(nats for nats, _ in moved)
            said += f"; margins move by {mean:.2g} nats a token"
            kind = data_type(layout, max(nats for nats, _ in moved))
            said += kind or f", {len(far)} of {len(moved)} by over {told:.2g}"
        if counts := counted_apart(pairs) if layout.options.holds else "":
            said += f"; {counts}"
            row = replace(row, state=FAIL, worst=row.worst or smallest([pairs[0][1]]))
        row = replace(row, said=said)
        if p <= level / 2 and far:
            worst = smallest(far)
            row = replace(row, state=FAIL, p=p, worst=row.worst or worst)
        elif layout.options.moves and far and p <= SUSPICIOUS and row.state == PASS:
            row = replace(row, state=SUSPECT, p=p, worst=smallest(far))
        if not sure and row.state == PASS:
            points = bool(row.suspects) or row.lost - row.noise > row.gained
            state = row_word(fails=False, passes=False, points=points)
            row = replace(row, state=state, said=f"{said}: the reference finds too little")
        return row


def counted_apart(pairs: Sequence[Pair]) -> str:
    """That the server counts another number of tokens than the reference in each prompt, in words:
    its template or its tokenizer is another one."""
    counts = [(there.prompt_tokens, here.prompt_tokens) for there, here in pairs]
    known = [(one, other) for one, other in counts if one is not None and other is not None]
    if len(known) < LEAST or any(one == other for one, other in known):
        return ""
    one, other = known[0]
    return f"the server counts {other:,} tokens where the model has {one:,}: another chat template"


def _usual(answers: Answers, size: int) -> float:
    """By how many nats a token margins move at most when the server is asked the same again."""
    pairs: Sequence[Pair] = answers.same_prompt(size, "warm", "again")
    return max((nats_apart(one.margins, other.margins) or 0.0 for one, other in pairs), default=0.0)
