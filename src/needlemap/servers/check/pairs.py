"""Probe pairs of prompts that must be answered alike.

The same prompt cold and warm, alone and among others, its first fact and a later one, and one
question's reply to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from needlemap.servers.check.ask import FIRST, Answers, Ask, Key, Reply
from needlemap.servers.check.finding import AtSize, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry, crowd_index
from needlemap.servers.check.probe import (
    HELD,
    LEAST,
    Groups,
    Pair,
    Paired,
    copy_of,
    crowd_of,
    lost_of,
    smallest,
)
from needlemap.stats.verdicts import FAIL, PASS, SUSPECT, combined_word

# All of so many pairs lost is a fail at each of the first 20 looks.
LEAST_PAIRS = 24
# Share of a prompt that a server must leave uncounted before it is reported.
CLEAR = 0.02
# The same if its vocabulary is another one.
CLEAR_ELSE = 0.1
# Share of its level that `cache` leaves to facts within which a hit ends.
PARTED = 0.1
# Tokens that the prompts of all users may start with.
SHARED = 128
# Tokens that a server's template may add.
TEMPLATE = 32
# Depth from which on a fact stands well after the first one.
_LATE = 0.7


def joined(row: AtSize, other: AtSize, where: str) -> AtSize:
    """Return two rows of one size as one, both of which must pass.

    where: where the pairs of the other row stand, in words.
    """
    word = combined_word([row.state, other.state])
    deciding = [each for each in (row, other) if each.state == word]
    first = deciding[0]
    if word == PASS:
        first = max(deciding, key=lambda each: each.upper or 0.0)
    return replace(
        first,
        n=row.n + other.n,
        lost=row.lost + other.lost,
        gained=row.gained + other.gained,
        said=f"{row.said}; {other.said}{where}",
        suspects=row.suspects + other.suspects,
        noise=row.noise + other.noise,
        left=row.left + other.left,
    )


def any_right(pairs: Iterable[Pair]) -> bool:
    """Return True if any answer of some pairs is right."""
    return any(first.right or second.right for first, second in pairs)


def was_cold(reply: Reply) -> bool:
    """Return True if a first prompt was computed, not cached.

    By the server's own count, if it gives one, no more of it was cached than a template that all
    prompts share.
    """
    return (reply.cached_tokens or 0) <= SHARED


class ColdAndWarm(Paired):
    """Compares a prompt from an empty cache with the same one from a cache that holds it."""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt, and the same once more."""
        return haystack.cold, haystack.warm


class Cache(ColdAndWarm):
    """Looks for a prefix-cache hit that answers worse than a miss."""

    name = "cache"
    order = 30
    asked = (
        "each first prompt uncached, then again; a fact just before the end of a hit, "
        "and one across it"
    )
    sees = "a cache hit that answers worse than a miss"
    cannot = "caches that are off"
    share = 0.10
    must = True
    lost_in = "lost from the cache"
    known = (
        issue(
            "tenstorrent/vllm#415",
            "prefix-cache hits that answer wrong where misses are right",
            "prefix caching off, then another block size",
        ),
        issue(
            "LMCache/LMCache#4492",
            "a cache that is read back wrong",
            "the outer cache off, or emptied",
        ),
        issue(
            "vllm-project/vllm#43559",
            "positions off behind a prefix-cache hit",
            "prefix caching off, or speculative decoding off",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt cold and warm, and its question after hits that end near its
        fact.

        One hit ends just after the fact, another one within it.
        """
        near_fact = [ask for ask in (haystack.tail_ask, haystack.within_ask) if ask]
        return haystack.cold, *near_fact, haystack.warm

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return why it says nothing: the server reports that it held nothing of any prompt."""
        replies = answers.every("warm", "tail", "within", "again")
        if replies and all(reply.cached_tokens == 0 for reply in replies):
            return "needs a prefix cache: the server reports that it held nothing of any prompt"
        return ""

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of a cold answer and another one.

        That is the same prompt warm, or after a hit that ends just after the fact, or within it.
        """
        held, parted = self.sides(answers, size)
        return held + parted

    def sides(self, answers: Answers, size: int) -> tuple[list[Pair], list[Pair]]:
        """Return pairs whose fact a hit holds, and pairs within whose fact it ends."""
        cold = {reply.ask.repeat: reply for reply in answers.of(size, "cold") if was_cold(reply)}

        def with_cold(way: str) -> list[Pair]:
            return [
                (cold[reply.ask.repeat], reply)
                for reply in answers.of(size, way)
                if reply.ask.repeat in cold
            ]

        same = answers.same_prompt(size, FIRST, "warm")
        held = [(first, warm) for first, warm in same if was_cold(first)]
        return [*held, *with_cold("tail")], with_cold("within")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Judge facts that a hit holds, and with a small part of the level facts within which it
        ends.

        There are fewer of these, so they keep no size from passing unless some are lost.
        """
        held, parted = self.sides(answers, size)
        if not parted:
            return with_unreported_hits(self.compared(answers, size, level, held), held)
        row = self.compared(answers, size, (1 - PARTED) * level, held)
        row = with_unreported_hits(row, held)
        usual = HELD if size <= layout.options.holds else None
        within = self.compared(answers, size, PARTED * level, parted, usual)
        if not within.lost:
            return row
        return joined(row, within, " where a hit ends within the fact")


def with_unreported_hits(row: AtSize, pairs: Sequence[Pair]) -> AtSize:
    """Return a row that says so if the server reported for no prompt what its cache held.

    Then there may be no cache.
    """
    if not pairs or any(warm.cached_tokens is not None for _, warm in pairs):
        return row
    return replace(row, said=f"{row.said}, hits not reported")


class Onset(ColdAndWarm):
    """Compares one long cold prompt with the same length reached over a cached prefix."""

    name = "onset"
    order = 40
    asked = "uncached prompts against the same length over a cached prefix"
    sees = "one long prefill that computes something else than several shorter ones"
    cannot = "a prefill that is wrong at every length"
    share = 0.06
    # If these are found, a lost first size is asked in two steps.
    uses_shortest = True
    lost_in = "lost in one long cold prompt"
    known = (
        issue(
            "sgl-project/sglang#34947",
            "one extend above a number of tokens computes no attention",
            "a smaller chunk of prefill (--chunked-prefill-size, --max-num-batched-tokens)",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt and the same once more; of a lost size, in two steps."""
        return haystack.stepped_asks if haystack.is_lost else [haystack.cold, haystack.warm]

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of a warm and a cold answer.

        If a prompt was sent in two steps, that answer takes the place of the warm one.
        """
        stepped = {reply.ask.repeat: reply for reply in answers.of(size, "stepped")}
        same = answers.same_prompt(size, "warm", FIRST)
        alone = [pair for pair in same if pair[1].ask.way == "cold" and was_cold(pair[1])]
        among = [pair for pair in same if pair[1].ask.way != "cold" and was_cold(pair[1])]
        # What is lost beside others only is for `load` to say.
        pairs = alone if lost_of(among) and not lost_of(alone) else alone + among
        in_steps = [pair for pair in pairs if pair[1].ask.repeat in stepped]
        if in_steps and not any_right(in_steps):
            return [(stepped[cold.ask.repeat], cold) for _, cold in in_steps]
        return pairs

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Judge the pairs.

        Of a known model, what two steps find and one loses is lost, because nothing can be gained.
        """
        pairs = self.pairs(answers, size)
        is_stepped = any(first.ask.way == "stepped" for first, _ in pairs)
        usual = HELD if is_stepped and size <= layout.options.holds else None
        return self.compared(answers, size, level, pairs, usual)

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """Return copies of a pair; what was reached in two steps is so again."""
        if pair[0].ask.way != "stepped":
            return super().copies(layout, answers, pair, lost, number)
        stepped, cold = self.pair_again(pair, number)
        crowd = crowd_of(layout, pair[1].ask, number) if cold.state == "loaded" else []
        half = copy_of(layout.haystack(pair[1].ask).stepped_asks[0], number)
        return [[cold, *crowd], [half, stepped]]

    def further(self, layout: Geometry, answers: Answers, row: AtSize) -> Sequence[CheckHaystack]:
        """Return the same documents, to be read in two steps.

        That is done if neither way finds anything in the whole haystacks of a size, and a shorter
        size is found.
        """
        index = layout.sizes.index(row.size)
        shorter = layout.sizes[index - 1] if index else layout.short
        replies = answers.of(shorter, "ask", "short", "warm")
        finds_shorter = 2 * sum(reply.right for reply in replies) > len(replies)
        # Haystacks whose lengths are drawn from between the sizes may be found.
        between = layout.drawn_lengths[row.size]
        whole = [
            pair for pair in self.pairs(answers, row.size) if pair[1].ask.length not in between
        ]
        if any_right(whole) or not finds_shorter:
            return ()
        return [
            CheckHaystack(
                layout,
                row.size,
                repeat=cold.ask.repeat,
                round=2,
                probes=(self,),
                is_lost=True,
            )
            for _, cold in whole[:LEAST_PAIRS]
        ]


class Load(Paired):
    """Compares the same prompts alone and among others."""

    name = "load"
    order = 50
    crowds = True
    asked = (
        "the same prompts alone, then at a time with fresh ones (`--load`), then alone once more"
    )
    sees = "answers that are lost among other prompts"
    cannot = "other kinds of load"
    share = 0.08
    lost_in = "lost among other prompts"
    known = (
        issue(
            "local-inference-lab/vllm#616",
            "answers that are wrong while other prompts are computed",
            "fewer tokens a step, or prefill and decoding apart",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """Return what is missing: a model that answers several prompts at a time."""
        return "a model that answers several prompts at a time" if layout.options.serial else ""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return some prompts alone and at a time, with a crowd of others.

        The first prompt of every second haystack is sent with that crowd, and alone after it.
        """
        first = [haystack.cold, haystack.warm] if haystack.is_crowded else []
        wave = *haystack.wave, *haystack.crowd
        return (
            *first,
            *haystack.questions,
            *wave,
            *haystack.asks_after_wave,
            *haystack.crowd_repeats,
        )

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of an answer alone and one among others, or alone after those."""
        among = answers.same_prompt(size, "ask", "loaded")
        return [*among, *self.crowded(answers, size), *self.behind(answers, size)]

    def behind(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of prompts of a wave: alone before it, and alone after it."""
        waved = {reply.ask.prompt for reply in answers.of(size, "loaded")}
        pairs = answers.same_prompt(size, "ask", "after|again")
        return [pair for pair in pairs if pair[0].ask.prompt in waved]

    def crowded(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of first prompts: alone from the cache, and computed with others."""
        return answers.same_prompt(size, "warm", "crowded")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Judge prompts that a cache holds, that are computed, and all after the wave.

        Each has a part of the level. There are fewer after the wave, so they keep no size from
        passing unless some are lost.
        """
        held = answers.same_prompt(size, "ask", "loaded")
        row = self.compared(answers, size, level / 2, held)
        computed = self.crowded(answers, size)
        if computed:
            computed_row = self.compared(answers, size, level / 4, computed)
            row = joined(row, computed_row, " while computed")
        index = layout.sizes.index(size)
        crowd = [
            (alone, after)
            for alone, after in answers.same_prompt(layout.short, "crowd", "crowd-after")
            if crowd_index(alone.ask) == index
        ]
        after_wave = self.behind(answers, size) + crowd
        after_row = self.compared(answers, size, level / 4, after_wave)
        return joined(row, after_row, " behind the wave") if after_row.lost else row

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Yield copies of the pairs that were lost, of each kind."""
        for pairs in (
            self.crowded(answers, size),
            answers.same_prompt(size, "ask", "loaded"),
            self.behind(answers, size),
        ):
            yield from self.asked_again(layout, answers, pairs)


class Cut(Paired):
    """Checks whether the head of a long prompt is still there.

    Answers are believed before counters.
    """

    name = "cut"
    order = 80
    asked = "a fact at the very beginning next to one behind the middle; the counted tokens"
    sees = "a prompt whose head was cut off"
    cannot = "a cut of a few tokens"
    share = 0.05
    # What is counted of them is what the server adds to every prompt.
    uses_shortest = True
    lost_in = "lost at the very beginning"
    known = (
        issue(
            "marin-community/marin#7626",
            "a prompt whose head is cut off without a word",
            "a larger context size on the server (Ollama: num_ctx; llama.cpp: --ctx-size)",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return prompts for facts at the beginning and after the middle."""
        return haystack.cold, haystack.warm, *haystack.questions

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of a fact after the middle and one at the haystack's beginning."""
        heads, later = dict[int, Reply](), dict[int, Reply]()
        for reply in answers.of(size, "warm", "ask"):
            ask = reply.ask
            if ask.facts == 1:
                # With one fact a haystack, neighbours are compared with each other.
                side = heads if ask.depth == 0 else later
                side.setdefault(ask.repeat // 3, reply)
            elif ask.fact == 0 and ask.depth == 0:
                heads.setdefault(ask.repeat, reply)
            elif (ask.depth >= _LATE and ask.fact < ask.facts - 1) or ask.facts == 2:
                later.setdefault(ask.repeat, reply)
        return [(later[number], head) for number, head in heads.items() if number in later]

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Judge the pairs, and fail only if the counters say so too, or if the model is known to
        find all.

        A model that sees the last tokens only also loses all heads. If nothing is found, and most
        was not counted, that is a cut as well.
        """
        row = self.at(answers, size, level)
        pairs = self.pairs(answers, size)
        if not pairs:
            return row
        cut = left_out(answers, size)
        said = row.said
        if cut:
            sent, counted = cut[0].own_tokens or 1, cut[0].prompt_tokens or 0
            said += f"; the server counts {counted:,} of {sent:,} tokens sent"
            if 2 * sum(head.right for _, head in pairs) > len(pairs):
                said += ", though what stands at the beginning is found"
            shortest_cut = min(reply.ask.length for reply in cut)
            longer = [pair for pair in pairs if pair[1].ask.length >= shortest_cut]
            is_lost = len(longer) >= LEAST and not any_right(longer)
            if is_lost and 2 * counted < sent:
                row = replace(row, state=FAIL, worst=smallest(head for _, head in longer))
        if row.state == FAIL and not cut and size > layout.options.holds:
            row = replace(row, state=SUSPECT)
            said += ": the model or the server"
        return replace(row, said=said)


def left_out(answers: Answers, size: int) -> list[Reply]:
    """Return the first prompts of which too many tokens were not counted.

    They are compared with what is counted of the shortest prompts. Prompts that a cache holds are
    left aside, because some servers count only what they compute.
    """
    counted = [reply for reply in answers.every() if reply.prompt_tokens and reply.own_tokens]
    first_ways = FIRST.split("|")
    first = [reply for reply in counted if reply.ask.size == size and reply.ask.way in first_ways]
    if not first:
        return []
    shortest = min(counted, key=lambda reply: reply.own_tokens or 0)
    return [reply for reply in first if _is_cut(reply, shortest)]


def _is_cut(reply: Reply, shortest: Reply) -> bool:
    """Return True if a server counts clearly fewer tokens than were sent.

    shortest: the shortest prompt, which shows what the server adds to each.
    """
    sent, counted = reply.own_tokens or 1, reply.prompt_tokens or 0
    sent_short = shortest.own_tokens or 0
    added = (shortest.prompt_tokens or 0) - sent_short
    if abs(added) <= TEMPLATE:
        # The vocabulary is the same.
        return sent + added - counted > max(TEMPLATE, CLEAR * sent)
    return 1 - counted / sent / (1 + added / (sent_short or 1)) > CLEAR_ELSE


class Replies(Paired):
    """Checks whether another question about a haystack is answered with the first one's reply."""

    name = "replies"
    order = 60
    asked = "prompts that share their haystack, not their question"
    sees = "a reply cache keyed on a prompt's beginning"
    cannot = "one keyed on the whole prompt, which is right"
    share = 0.06
    lost_in = "answered with an earlier reply"
    known = (
        issue(
            "zilliztech/GPTCache#435",
            "the first question's reply to every other question",
            "the cache of replies off, in the gateway too",
        ),
    )

    def needs(self, layout: Geometry) -> str:
        """Return what is missing: haystacks with several facts."""
        if layout.options.facts > 1:
            return ""
        return "several facts a haystack: a {placeholder} in --needle and --question, with --draw"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first question, then others."""
        return haystack.cold, *haystack.questions

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of the first question's answer and another's.

        The other is only lost if it is the first's.
        """
        first = {reply.ask.repeat: reply for reply in answers.of(size, "cold", "crowded")}
        return [
            self.taken(first[reply.ask.repeat], reply)
            for reply in answers.of(size, "ask")
            if reply.ask.repeat in first and first[reply.ask.repeat].ask.fact != reply.ask.fact
        ]

    def repeated(self, answers: Answers, pair: Pair) -> list[Pair]:
        """Return the same two questions, sent again."""
        return [self.taken(first, second) for first, second in super().repeated(answers, pair)]

    def taken(self, first: Reply, second: Reply) -> Pair:
        """Return two answers, of which one is only wrong if it is the other one's reply."""
        if first.right == second.right or first.answer == second.answer:
            return first, second
        return replace(first, right=True), replace(second, right=True)
