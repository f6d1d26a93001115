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
    KNOWN_MISS_RATE,
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
UNCOUNTED_SHARE = 0.02
# The same if its vocabulary is another one.
UNCOUNTED_SHARE_OTHER_VOCABULARY = 0.1
# Share of its level that `cache` leaves to facts within which a hit ends.
LEVEL_SHARE_WITHIN = 0.1
# Tokens that the prompts of all users may start with.
SHARED = 128
# Tokens that a server's template may add.
TEMPLATE = 32
# Depth from which on a fact stands well after the first one.
_LATE = 0.7


def join_rows(row: AtSize, other: AtSize, condition: str) -> AtSize:
    """Return two rows of one size as one, both of which must pass.

    condition: the condition of the other row's pairs, in words that end its sentence.
    """
    word = combined_word([row.state, other.state])
    deciding_rows = [candidate for candidate in (row, other) if candidate.state == word]
    deciding_row = deciding_rows[0]
    if word == PASS:
        deciding_row = max(deciding_rows, key=lambda candidate: candidate.upper or 0.0)
    return replace(
        deciding_row,
        n=row.n + other.n,
        lost=row.lost + other.lost,
        gained=row.gained + other.gained,
        said=f"{row.said}; {other.said}{condition}",
        suspects=row.suspects + other.suspects,
        noise=row.noise + other.noise,
        left=row.left + other.left,
    )


def any_right(pairs: Iterable[Pair]) -> bool:
    """Return True if any answer of some pairs is right."""
    return any(first.right or second.right for first, second in pairs)


def was_cold(reply: Reply) -> bool:
    """Return True if a first prompt was computed, not read from a cache.

    If the server counts cached tokens, no more of them may be cached than a template that all
    prompts share. If it does not, the prompt is taken to be computed.
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
        """Return the first prompt cold and warm, and prompts whose hits end near its fact.

        One hit ends just after the fact, another one within it.
        """
        near_fact = [ask for ask in (haystack.tail_ask, haystack.within_ask) if ask]
        return haystack.cold, *near_fact, haystack.warm

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return the reason if the server reports that it held nothing of any prompt, else ''."""
        replies = answers.every("warm", "tail", "within", "again")
        if replies and all(reply.cached_tokens == 0 for reply in replies):
            return "needs a prefix cache: the server reports that it held nothing of any prompt"
        return ""

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of a cold answer and one after a hit.

        The second prompt is the same one warm, or one whose hit ends just after the fact or within
        it.
        """
        pairs_after, pairs_within = self.pairs_by_hit(answers, size)
        return pairs_after + pairs_within

    def pairs_by_hit(self, answers: Answers, size: int) -> tuple[list[Pair], list[Pair]]:
        """Return the pairs whose hit ends after the fact, and those whose hit ends within it."""
        cold_replies = {
            reply.ask.repeat: reply for reply in answers.of(size, "cold") if was_cold(reply)
        }

        def with_cold(way: str) -> list[Pair]:
            return [
                (cold_replies[reply.ask.repeat], reply)
                for reply in answers.of(size, way)
                if reply.ask.repeat in cold_replies
            ]

        first_and_warm = answers.same_prompt(size, FIRST, "warm")
        warm_pairs = [(first, warm) for first, warm in first_and_warm if was_cold(first)]
        return [*warm_pairs, *with_cold("tail")], with_cold("within")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of the pairs, each kind judged at a part of the level.

        There are few pairs whose hit ends within the fact, so they have a small part of the level,
        and keep a size from passing only if some of them are lost.
        """
        pairs_after, pairs_within = self.pairs_by_hit(answers, size)
        if not pairs_within:
            row = self.compared(answers, size, level, pairs_after)
            return with_unreported_hits(row, pairs_after)

        row = self.compared(answers, size, (1 - LEVEL_SHARE_WITHIN) * level, pairs_after)
        row = with_unreported_hits(row, pairs_after)
        miss_rate = KNOWN_MISS_RATE if size <= layout.options.holds else None
        row_within = self.compared(
            answers, size, LEVEL_SHARE_WITHIN * level, pairs_within, miss_rate
        )
        if not row_within.lost:
            return row
        return join_rows(row, row_within, " where a hit ends within the fact")


def with_unreported_hits(row: AtSize, pairs: Sequence[Pair]) -> AtSize:
    """Return a row, with a note if the server reported cached tokens for no prompt.

    It may have no cache then.
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
        """Return the first prompt twice; if the size is lost, a copy of it in two steps."""
        return haystack.stepped_asks if haystack.is_lost else [haystack.cold, haystack.warm]

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of a warm and a cold answer.

        If a prompt was sent in two steps, that answer takes the place of the warm one.
        """
        stepped_replies = {reply.ask.repeat: reply for reply in answers.of(size, "stepped")}
        cold_pairs = [
            (warm, first)
            for warm, first in answers.same_prompt(size, "warm", FIRST)
            if was_cold(first)
        ]
        lone_pairs = [pair for pair in cold_pairs if pair[1].ask.way == "cold"]
        crowded_pairs = [pair for pair in cold_pairs if pair[1].ask.way != "cold"]

        pairs = lone_pairs + crowded_pairs
        # If only prompts that were sent among others are lost, that is for `load` to find.
        if lost_of(crowded_pairs) and not lost_of(lone_pairs):
            pairs = lone_pairs
        pairs_in_steps = [pair for pair in pairs if pair[1].ask.repeat in stepped_replies]
        if pairs_in_steps and not any_right(pairs_in_steps):
            return [(stepped_replies[cold.ask.repeat], cold) for _, cold in pairs_in_steps]
        return pairs

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of the pairs.

        If two steps find what a known model loses in one, each such pair is a loss: nothing can be
        gained, so losses are not compared with gains.
        """
        pairs = self.pairs(answers, size)
        is_stepped = any(first.ask.way == "stepped" for first, _ in pairs)
        is_known = is_stepped and size <= layout.options.holds
        miss_rate = KNOWN_MISS_RATE if is_known else None
        return self.compared(answers, size, level, pairs, miss_rate)

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """Return copies of a pair; a prompt in two steps is copied with both steps."""
        if pair[0].ask.way != "stepped":
            return super().copies(layout, answers, pair, lost, number)
        stepped, cold = self.pair_again(pair, number)
        crowd = crowd_of(layout, pair[1].ask, number) if cold.state == "loaded" else []
        half = copy_of(layout.haystack(pair[1].ask).stepped_asks[0], number)
        return [[cold, *crowd], [half, stepped]]

    def further(self, layout: Geometry, answers: Answers, row: AtSize) -> Sequence[CheckHaystack]:
        """Return the same haystacks, to be read in two steps.

        If any pair of the whole haystacks is found, or if little is found at the next smaller size,
        the result is ().
        """
        index = layout.sizes.index(row.size)
        shorter = layout.sizes[index - 1] if index else layout.short
        replies = answers.of(shorter, "ask", "short", "warm")
        finds_shorter = 2 * sum(reply.right for reply in replies) > len(replies)
        # Shorter haystacks, whose lengths are drawn from between the sizes, may be found.
        drawn_lengths = layout.drawn_lengths[row.size]
        whole_pairs = [
            pair
            for pair in self.pairs(answers, row.size)
            if pair[1].ask.length not in drawn_lengths
        ]
        if any_right(whole_pairs) or not finds_shorter:
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
            for _, cold in whole_pairs[:LEAST_PAIRS]
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
        """Return some prompts alone and at the same time, with a crowd of others.

        If the haystack is crowded, its first prompt is sent with that crowd, and alone after it.
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
        """Return pairs of an answer alone and one among others, or alone after the others."""
        return [
            *self.wave_pairs(answers, size),
            *self.crowded_pairs(answers, size),
            *self.pairs_after_wave(answers, size),
        ]

    def wave_pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of questions: alone, and in a wave."""
        return answers.same_prompt(size, "ask", "loaded")

    def pairs_after_wave(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of the questions of a wave: alone before it, and alone after it."""
        wave_prompts = {reply.ask.prompt for reply in answers.of(size, "loaded")}
        pairs = answers.same_prompt(size, "ask", "after|again")
        return [pair for pair in pairs if pair[0].ask.prompt in wave_prompts]

    def crowded_pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return pairs of first prompts: alone from the cache, and computed with others."""
        return answers.same_prompt(size, "warm", "crowded")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of the pairs, each kind judged at a part of the level.

        The kinds are prompts that a cache holds, prompts that are computed, and all prompts after a
        wave. There are few of the last kind, so they keep a size from passing only if some are
        lost.
        """
        row = self.compared(answers, size, level / 2, self.wave_pairs(answers, size))
        crowded_pairs = self.crowded_pairs(answers, size)
        if crowded_pairs:
            crowded_row = self.compared(answers, size, level / 4, crowded_pairs)
            row = join_rows(row, crowded_row, " while computed")

        index = layout.sizes.index(size)
        crowd_pairs = [
            (in_crowd, alone)
            for in_crowd, alone in answers.same_prompt(layout.short, "crowd", "crowd-after")
            if crowd_index(in_crowd.ask) == index
        ]
        pairs_after = self.pairs_after_wave(answers, size) + crowd_pairs
        row_after = self.compared(answers, size, level / 4, pairs_after)
        return join_rows(row, row_after, " behind the wave") if row_after.lost else row

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Yield copies of the pairs that were lost, of each kind."""
        for pairs in (
            self.crowded_pairs(answers, size),
            self.wave_pairs(answers, size),
            self.pairs_after_wave(answers, size),
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
        heads, late_replies = dict[int, Reply](), dict[int, Reply]()
        for reply in answers.of(size, "warm", "ask"):
            ask = reply.ask
            if ask.facts == 1:
                # With one fact a haystack, neighbours are compared with each other.
                side = heads if ask.depth == 0 else late_replies
                side.setdefault(ask.repeat // 3, reply)
            elif ask.fact == 0 and ask.depth == 0:
                heads.setdefault(ask.repeat, reply)
            elif (ask.depth >= _LATE and ask.fact < ask.facts - 1) or ask.facts == 2:
                late_replies.setdefault(ask.repeat, reply)
        return [
            (late_replies[number], head) for number, head in heads.items() if number in late_replies
        ]

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of the pairs, which fails only if the server's counters show a cut too.

        A model that sees the last tokens only also loses all heads, so that counters are not needed
        only if the model is known to find all. If nothing is found, and less than half was counted,
        the row fails as well.
        """
        row = self.at(answers, size, level)
        pairs = self.pairs(answers, size)
        if not pairs:
            return row

        cut_replies = cut_first_prompts(answers, size)
        said = row.said
        if cut_replies:
            sent, counted = cut_replies[0].own_tokens or 1, cut_replies[0].prompt_tokens or 0
            said += f"; the server counts {counted:,} of {sent:,} tokens sent"
            if 2 * sum(head.right for _, head in pairs) > len(pairs):
                said += ", though what stands at the beginning is found"
            shortest_cut = min(reply.ask.length for reply in cut_replies)
            longer = [pair for pair in pairs if pair[1].ask.length >= shortest_cut]
            is_lost = len(longer) >= LEAST and not any_right(longer)
            if is_lost and 2 * counted < sent:
                row = replace(row, state=FAIL, worst=smallest(head for _, head in longer))
        if row.state == FAIL and not cut_replies and size > layout.options.holds:
            row = replace(row, state=SUSPECT)
            said += ": the model or the server"
        return replace(row, said=said)


def cut_first_prompts(answers: Answers, size: int) -> list[Reply]:
    """Return the replies to first prompts of which the server counted too few tokens.

    Their counts are compared with that of the shortest prompt. Prompts that a cache holds are left
    out, because some servers count only the tokens that they compute.
    """
    replies = [reply for reply in answers.every() if reply.prompt_tokens and reply.own_tokens]
    first_ways = FIRST.split("|")
    first_replies = [
        reply for reply in replies if reply.ask.size == size and reply.ask.way in first_ways
    ]
    if not first_replies:
        return []
    shortest = min(replies, key=lambda reply: reply.own_tokens or 0)
    return [reply for reply in first_replies if _is_cut(reply, shortest)]


def _is_cut(reply: Reply, shortest: Reply) -> bool:
    """Return True if a server counts clearly fewer tokens than were sent.

    shortest: the shortest prompt, which shows what the server adds to each.
    """
    sent, counted = reply.own_tokens or 1, reply.prompt_tokens or 0
    if counted >= sent:
        # A template that adds much to the shortest prompt looks like another vocabulary.
        return False
    sent_short = shortest.own_tokens or 0
    added = (shortest.prompt_tokens or 0) - sent_short
    if abs(added) <= TEMPLATE:
        # The vocabulary is the same.
        return sent + added - counted > max(TEMPLATE, UNCOUNTED_SHARE * sent)
    # Another vocabulary counts all prompts by the same factor, which the shortest shows.
    factor = 1 + added / (sent_short or 1)
    return 1 - counted / sent / factor > UNCOUNTED_SHARE_OTHER_VOCABULARY


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
        """Return pairs of the answers to the first question and to another one.

        The other answer is only lost if it is the first question's reply.
        """
        first_replies = {reply.ask.repeat: reply for reply in answers.of(size, "cold", "crowded")}
        pairs = []
        for reply in answers.of(size, "ask"):
            first = first_replies.get(reply.ask.repeat)
            if first is not None and first.ask.fact != reply.ask.fact:
                pairs.append(self.forgive_other_errors(first, reply))
        return pairs

    def repeated(self, answers: Answers, pair: Pair) -> list[Pair]:
        """Return the answers to the copies of two questions."""
        return [
            self.forgive_other_errors(first, second)
            for first, second in super().repeated(answers, pair)
        ]

    def forgive_other_errors(self, first: Reply, second: Reply) -> Pair:
        """Return two answers, both as right if they differ and only one of them is right.

        The probe looks for one reply to two questions, so other errors do not count.
        """
        if first.right == second.right or first.answer == second.answer:
            return first, second
        return replace(first, right=True), replace(second, right=True)
