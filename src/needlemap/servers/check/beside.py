"""Probe the end of the context that a server tells, and compare with the same weights elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean

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
from needlemap.servers.check.effects import rates_apart
from needlemap.servers.check.finding import AtSize, Finding, Worst, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.margins import TIMES_USUAL, finest_type, nats_apart
from needlemap.servers.check.probe import (
    KNOWN_MISS_RATE,
    LEAST,
    NOTHING,
    Groups,
    Pair,
    Paired,
    Probe,
    crowd_of,
    smallest,
)
from needlemap.stats.exact import binomial_tail, chance_of_more
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, row_word

# Nats a token: two steps of bfloat16 between 16 and 32, where logits lie.
ROUNDED_NATS = 0.25
# Share of haystacks whose margins an honest copy of the weights may move by so much.
MOVED = 0.2
# The same of a known model, whose limit is twice what honest engines move any.
MOVED_KNOWN = 0.05
# A p below it keeps a known model's size from passing.
SUSPICIOUS = 0.05


def largest_honest_move(layout: Geometry) -> float:
    """Return the largest move of an honest engine's margins, in nats a token.

    For a known model it is the move by the coarsest data type.
    """
    moves = layout.options.moves
    if not moves:
        return ROUNDED_NATS
    _, limit = moves[-1]
    return limit


def data_type_words(layout: Geometry, most: float) -> str:
    """Return the finest data type that explains a move of margins, in words, or '' if none does.

    most: the largest move of a prompt, in nats a token.
    """
    finest = finest_type(layout.options.moves, most)
    if finest is None:
        return ""
    name, limit = finest
    return f", as {name} may (to {limit:g})"


class Window(Probe):
    """Sends prompts that end with the last tokens of the context, and one that is longer.

    Prompts that were promised room must be answered, and the longer one refused, not cut.
    """

    name = "window"
    order = 110
    asked = "the last eight tokens of the advertised context, and one beyond"
    sees = "a context that ends before what was promised, or a longer prompt that is answered"
    cannot = "servers that report no context length"
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
        """Return what is missing: a context that the server tells, within --max-length, or a
        promise that it may break."""
        options = layout.options
        if options.context is None:
            return "" if options.promised else "a server that tells its context"
        if options.context > layout.sizes[-1] and not options.promised:
            return f"--max-length {options.context}, the context that the server tells"
        return ""

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return why there is nothing to judge, or '' if there is.

        Prompts that were promised room and refused can always be judged.
        """
        options = layout.options
        if self._wrongly_refused(layout, answers):
            return ""
        if options.context is None:
            return "needs a server that tells its context"
        if options.context > layout.sizes[-1]:
            return f"needs --max-length {options.context}, the context that the server tells"
        if not answers.every("window", "beyond"):
            return "needs lengths of the model's own vocabulary"
        return ""

    def _wrongly_refused(self, layout: Geometry, answers: Answers) -> list[Reply]:
        """Return the replies to refused prompts for which there was room.

        Room is promised by --max-length, or by the context that the server reports, in its tokens.
        """
        refused = answers.refused()
        if layout.options.promised:
            return refused
        context, framing = layout.options.context, framing_of(answers)
        if context is None or framing is None:
            return []
        return [reply for reply in refused if reply.ask.length + framing <= context]

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return one row: the end of the context, compared with other prompts of that length."""
        reason = self.absent(layout, answers)
        if reason:
            return Finding(self.name, "not applicable", 0, reason)
        return self.whole([self._row_at_end(layout, answers, self.level(look, 1))])

    def _row_at_end(self, layout: Geometry, answers: Answers, level: float) -> AtSize:
        size = layout.sizes[-1]
        refused_replies = self._wrongly_refused(layout, answers)
        if refused_replies:
            shortest = min(refused_replies, key=lambda reply: reply.ask.length)
            return AtSize(
                size,
                FAIL,
                n=len(refused_replies),
                said=f"prompts of {shortest.ask.length:,} tokens are refused: less than promised",
                worst=Worst.of(shortest),
            )

        replies_beyond = answers.every("beyond")
        if replies_beyond:
            reply = replies_beyond[0]
            sentence = "a prompt longer than the context is answered, not refused"
            if reply.prompt_tokens is not None:
                sentence += f"; {reply.prompt_tokens:,} of its tokens were counted"
            return AtSize(size, FAIL, n=1, said=sentence, worst=Worst.of(reply))

        end_replies = answers.every("window")
        if not end_replies:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        return self._compare_with_others(end_replies, answers, size, level)

    def _compare_with_others(
        self, end_replies: Sequence[Reply], answers: Answers, size: int, level: float
    ) -> AtSize:
        """Return the row of the prompts at the end of the context.

        end_replies: the replies to these prompts. level: the alpha of the comparison with other
            prompts of the size.
        """
        missed = [reply for reply in end_replies if not reply.right]
        others = answers.of(size, "cold", "crowded", "ask")
        wrong_count = sum(not reply.right for reply in others)
        p = chance_of_more(len(missed), len(end_replies), wrong_count, len(others))

        sentence = f"{len(missed)} of {len(end_replies)} missed at the end of the context"
        if missed:
            sentence += f", {wrong_count} of {len(others)} elsewhere at that length"
        word = row_word(
            fails=p <= level and bool(missed),
            passes=not missed and 2 * wrong_count <= len(others),
            points=bool(missed),
        )
        return AtSize(
            size,
            word,
            n=len(end_replies),
            lost=len(missed),
            effect=rates_apart(len(missed), len(end_replies), wrong_count, len(others)),
            p=p,
            said=sentence,
            worst=smallest(missed) if missed else None,
        )


class Reference(Paired):
    """Compares answers and their margins with those of the same weights elsewhere.

    Engines differ in the last digits. The usual difference is that of the server's answers to
    the same prompt, sent twice.
    """

    name = "reference"
    order = 100
    asked = "the same prompts of the same weights elsewhere: answers and their margins"
    sees = "all that is wrong in every way: windows, positions, coarse caches"
    cannot = "a fault that both have; margins that move by less than 0.25 nats a token"
    share = 0.09
    shows_pass = True
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
        """Return '' if there is a reference, else the option that names one."""
        return "" if layout.options.reference else "--reference hf/PATH, or a server's address"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt, for the server and for the reference."""
        if not haystack.is_for_reference:
            return ()
        reference = replace(haystack.cold, way=f"{BESIDE}{haystack.cold.way}", state="warm")
        return haystack.cold, reference

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of the reference's and the server's answer to one prompt."""
        return answers.same_prompt(size, FIRST_BESIDE, FIRST)

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return False: margins and counted tokens are compared too."""
        return False

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """Return copies of both prompts, with a crowd if the first was sent among others."""
        reference, server = self.pair_again(pair, number)
        crowd = crowd_of(layout, pair[1].ask, number) if server.state == "loaded" else []
        return [[server, *crowd], [reference]]

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of answers and margins, each judged at half of the level."""
        pairs = self.pairs(answers, size)
        miss_rate = KNOWN_MISS_RATE if size <= layout.options.holds else None
        row = self.compared(answers, size, level / 2, pairs, miss_rate)
        if not pairs:
            return row
        margins = self._margins(layout, answers, size, pairs)
        said = row.said + margins.sentence
        counts = counted_apart(pairs) if layout.options.holds else ""
        if counts:
            said += f"; {counts}"
            row = replace(row, state=FAIL, worst=row.worst or smallest([pairs[0][1]]))
        row = replace(row, said=said)

        finds_enough = 2 * sum(reference.right for reference, _ in pairs) >= len(pairs)
        p = margins.p if finds_enough else 1.0
        if margins.far_replies and p <= level / 2:
            row = replace(row, state=FAIL, p=p, worst=row.worst or smallest(margins.far_replies))
        elif layout.options.moves and margins.far_replies and p <= SUSPICIOUS and row.state == PASS:
            row = replace(row, state=SUSPECT, p=p, worst=smallest(margins.far_replies))
        if not finds_enough and row.state == PASS:
            points = bool(row.suspects) or row.lost - row.noise > row.gained
            row = replace(
                row,
                state=row_word(fails=False, passes=False, points=points),
                said=f"{said}: the reference finds too little",
            )
        return row

    def _margins(
        self, layout: Geometry, answers: Answers, size: int, pairs: Sequence[Pair]
    ) -> MarginMoves:
        """Return the moves of the server's margins from the reference's."""
        moves = [
            (nats, server)
            for reference, server in pairs
            if (nats := nats_apart(reference.margins, server.margins)) is not None
        ]
        if not moves:
            sentence = ""
            if any(_lacks_runners_up(reply) for pair in pairs for reply in pair):
                sentence = (
                    "; margins were not compared, so a coarse cache is not seen: they need "
                    "log-probabilities with runners-up (top_logprobs)"
                )
            return MarginMoves(far_replies=(), p=1.0, sentence=sentence)

        limit = largest_honest_move(layout)
        share = MOVED_KNOWN
        if not layout.options.moves:
            # A known model's limit is not learnt from the server, which may be spoilt already.
            limit = max(limit, TIMES_USUAL * _largest_own_move(answers, size))
            share = MOVED

        far_replies = tuple(server for nats, server in moves if nats > limit)
        mean = fmean(nats for nats, _ in moves)
        sentence = f"; margins move by {mean:.2g} nats a token"
        data_type = data_type_words(layout, max(nats for nats, _ in moves))
        if data_type:
            sentence += data_type
        else:
            sentence += f", {len(far_replies)} of {len(moves)} by over {limit:.2g}"
        return MarginMoves(
            far_replies=far_replies,
            p=binomial_tail(len(far_replies), len(moves), share),
            sentence=sentence,
        )


@dataclass(frozen=True, slots=True)
class MarginMoves:
    """The moves of the server's margins from the reference's.

    Attributes:
        far_replies: The replies whose margins moved beyond the limit.
        p: The chance that an honest engine has so many of them.
        sentence: The moves in words.
    """

    far_replies: tuple[Reply, ...]
    p: float
    sentence: str


def counted_apart(pairs: Sequence[Pair]) -> str:
    """Return a sentence if the server counts other tokens than the reference in every prompt.

    Its template or its tokenizer is then another one. Otherwise the result is ''.
    """
    counts = [
        (reference.prompt_tokens, server.prompt_tokens)
        for reference, server in pairs
        if reference.prompt_tokens is not None and server.prompt_tokens is not None
    ]
    if len(counts) < LEAST or any(expected == counted for expected, counted in counts):
        return ""
    expected, counted = counts[0]
    return (
        f"the server counts {counted:,} tokens where the model has {expected:,}: another chat "
        "template"
    )


def _lacks_runners_up(reply: Reply) -> bool:
    """Return True if an answer has no log-probabilities, or those of its own tokens alone."""
    return all(margin is None for _, margin in reply.margins or ())


def _largest_own_move(answers: Answers, size: int) -> float:
    """Return the largest move of margins if the same prompt is sent twice, in nats a token."""
    pairs: Sequence[Pair] = answers.same_prompt(size, "warm", "again")
    moves = (nats_apart(first.margins, again.margins) or 0.0 for first, again in pairs)
    return max(moves, default=0.0)
