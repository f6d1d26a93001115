"""Probes of pairs: the same prompt cold and warm, alone and among others, its first fact beside a
later one, and one question's reply to another."""

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

LEAST_PAIRS = 24  # all of them lost is a fail at each of the first 20 looks
CLEAR = 0.02  # share of a prompt that a server must leave uncounted before it is said
PARTED = 0.1  # share of its level that `cache` leaves to facts within which a hit ends
CLEAR_ELSE = 0.1  # the same where its vocabulary is another one
SHARED = 128  # tokens that the prompts of all users may begin with
TEMPLATE = 32  # tokens that a server's template may add


def joined(found: AtSize, other: AtSize, where: str) -> AtSize:
    """Two rows of one size as one, both of which must pass. where: the pairs of the second stand,
    in words."""
    word = combined_word([found.state, other.state])
    rows = [row for row in (found, other) if row.state == word]
    first = max(rows, key=lambda row: row.upper or 0.0) if word == PASS else rows[0]
    return replace(
        first,
        n=found.n + other.n,
        lost=found.lost + other.lost,
        gained=found.gained + other.gained,
        said=f"{found.said}; {other.said}{where}",
        suspects=found.suspects + other.suspects,
        noise=found.noise + other.noise,
        left=found.left + other.left,
    )


def any_right(pairs: Iterable[Pair]) -> bool:
    """Whether any answer of some pairs is right."""
    return any(one.right or other.right for one, other in pairs)


def was_cold(reply: Reply) -> bool:
    """Whether a first prompt was computed: by the server's own count, if it gives one, no more of
    it was cached than a template that all prompts share."""
    return (reply.cached_tokens or 0) <= SHARED


class ColdAndWarm(Paired):
    """The same prompt, from an empty cache and from one that holds it."""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first prompt, and the same once more."""
        return haystack.cold, haystack.warm


class Cache(ColdAndWarm):
    """A prefix-cache hit that answers worse than a miss."""

    name = "cache"
    order = 30
    asked = (
        "each first prompt cold, then the same from the cache; a fact just before the place where "
        "a hit ends, and one within which it ends"
    )
    sees = "a prefix-cache hit that answers worse than a miss"
    cannot = "caches that are off, or are not asked, such as a second tier"
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
        """Also the first question where a hit ends just behind its fact, and within it."""
        behind = [ask for ask in (haystack.tail, haystack.within) if ask]
        return haystack.cold, *behind, haystack.warm

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Whether the server says that it held nothing of any prompt."""
        told = [reply.cached_tokens for reply in answers.every("warm", "tail", "within", "again")]
        if told and all(each == 0 for each in told):
            return "needs a prefix cache: the server reports that it held nothing of any prompt"
        return ""

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Cold, then the same warm; cold, then behind a hit that ends just behind the fact; cold,
        then behind one that ends within it."""
        held, parted = self.sides(answers, size)
        return held + parted

    def sides(self, answers: Answers, size: int) -> tuple[list[Pair], list[Pair]]:
        """Pairs whose fact a hit holds, and pairs within whose fact it ends."""
        cold = {reply.ask.repeat: reply for reply in answers.of(size, "cold") if was_cold(reply)}

        def beside(way: str) -> list[Pair]:
            rows = answers.of(size, way)
            return [(cold[row.ask.repeat], row) for row in rows if row.ask.repeat in cold]

        same = answers.same_prompt(size, FIRST, "warm")
        held = [(one, other) for one, other in same if was_cold(one)]
        return [*held, *beside("tail")], beside("within")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Facts that a hit holds; and, with a small part of the level, facts within which it ends:
        there are fewer, which alone keep no size from passing unless some are lost."""
        held, parted = self.sides(answers, size)
        if not parted:
            return self.compared(answers, size, level, held)
        found = self.compared(answers, size, (1 - PARTED) * level, held)
        usual = HELD if size <= layout.options.holds else None
        other = self.compared(answers, size, PARTED * level, parted, usual)
        return joined(found, other, " where a hit ends within the fact") if other.lost else found


class Onset(ColdAndWarm):
    """One long cold prompt, against the same length reached over a cached prefix."""

    name = "onset"
    order = 40
    asked = (
        "cold prompts by length against the same length over a cached prefix; where a size is "
        "lost, also reached in two steps"
    )
    sees = "one long prefill that computes something else than several shorter ones"
    cannot = "a prefill that is wrong at every length"
    share = 0.06
    uses_shortest = True  # where these are found, a lost first size is asked in two steps
    lost_in = "lost in one long cold prompt"
    known = (
        issue(
            "sgl-project/sglang#34947",
            "one extend above a number of tokens computes no attention",
            "a smaller chunk of prefill (--chunked-prefill-size, --max-num-batched-tokens)",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first prompt and the same once more; of a size that is lost, in two steps."""
        return haystack.stepped if haystack.lost else [haystack.cold, haystack.warm]

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Warm, then cold; where it was asked in two steps, these come first."""
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
        """Of a known model, what two steps find and one loses is lost: nothing can be gained."""
        pairs = self.pairs(answers, size)
        known = size <= layout.options.holds and any(one.ask.way == "stepped" for one, _ in pairs)
        return self.compared(answers, size, level, pairs, HELD if known else None)

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """What was reached in two steps is so again."""
        if pair[0].ask.way != "stepped":
            return super().copies(layout, answers, pair, lost, number)
        stepped, cold = self.pair_again(pair, number)
        crowd = crowd_of(layout, pair[1].ask, number) if cold.state == "loaded" else []
        half = copy_of(layout.haystack(pair[1].ask).stepped[0], number)
        return [[cold, *crowd], [half, stepped]]

    def further(self, layout: Geometry, answers: Answers, row: AtSize) -> Sequence[CheckHaystack]:
        """The same documents in two steps, where neither way finds anything in the whole haystacks
        of a size, and a shorter size is found."""
        at = layout.sizes.index(row.size)
        shorter = layout.sizes[at - 1] if at else layout.short
        found = answers.of(shorter, "ask", "short", "warm")
        # Haystacks whose lengths are drawn from between the sizes may be found.
        between = layout.drawn_lengths[row.size]
        whole = [
            pair for pair in self.pairs(answers, row.size) if pair[1].ask.length not in between
        ]
        if any_right(whole) or 2 * sum(reply.right for reply in found) <= len(found):
            return ()
        numbers = [cold.ask.repeat for _, cold in whole][:LEAST_PAIRS]
        return [CheckHaystack(layout, row.size, number, 2, (self,), True) for number in numbers]


class Load(Paired):
    """The same prompts alone and among others."""

    name = "load"
    order = 50
    crowds = True
    asked = (
        "the same prompts alone, then at a time, beside fresh ones (`--load`), then each of them "
        "alone once more"
    )
    sees = "answers that are lost among other prompts, or once these are in the cache"
    cannot = "other kinds of load; models that answer one by one"
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
        """A model that answers several prompts at a time."""
        return "a model that answers several prompts at a time" if layout.options.serial else ""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Some prompts alone and at a time, with a crowd of others; the first prompt of every
        second haystack beside that crowd, and alone behind it."""
        first = [haystack.cold, haystack.warm] if haystack.is_crowded else []
        wave = *haystack.loaded, *haystack.crowd
        return *first, *haystack.questions, *wave, *haystack.after, *haystack.crowd_after

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Alone, then among others; alone, then alone behind those."""
        among = answers.same_prompt(size, "ask", "loaded")
        return [*among, *self.crowded(answers, size), *self.behind(answers, size)]

    def behind(self, answers: Answers, size: int) -> list[Pair]:
        """Prompts of a wave: alone before it, and alone behind it."""
        waved = {reply.ask.prompt for reply in answers.of(size, "loaded")}
        pairs = answers.same_prompt(size, "ask", "after|again")
        return [pair for pair in pairs if pair[0].ask.prompt in waved]

    def crowded(self, answers: Answers, size: int) -> list[Pair]:
        """First prompts: alone from the cache, then computed beside others."""
        return answers.same_prompt(size, "warm", "crowded")

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Prompts that a cache holds, prompts that are computed, and all of them behind the wave: a
        part of the level each. What is behind the wave keeps no size from passing unless some is
        lost: there are fewer."""
        held = answers.same_prompt(size, "ask", "loaded")
        row = self.compared(answers, size, level / 2, held)
        if computed := self.crowded(answers, size):
            other = self.compared(answers, size, level / 4, computed)
            row = joined(row, other, " while computed")
        index = layout.sizes.index(size)
        crowd = [
            pair
            for pair in answers.same_prompt(layout.short, "crowd", "crowd-after")
            if crowd_index(pair[0].ask) == index
        ]
        behind = self.compared(answers, size, level / 4, self.behind(answers, size) + crowd)
        return joined(row, behind, " behind the wave") if behind.lost else row

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Prompts that are computed, and prompts that a cache holds."""
        for pairs in (
            self.crowded(answers, size),
            answers.same_prompt(size, "ask", "loaded"),
            self.behind(answers, size),
        ):
            yield from self.asked_again(layout, answers, pairs)


class Cut(Paired):
    """Is the head of a long prompt still there? Answers are believed before counters."""

    name = "cut"
    order = 80
    asked = "a fact at the very beginning beside one behind the middle; the tokens that are counted"
    sees = "a prompt whose head was cut off without a word"
    cannot = "a cut of a few tokens; a head that is lost only now and then"
    share = 0.05
    uses_shortest = True  # what is counted of them is what the server adds to every prompt
    lost_in = "lost at the very beginning"
    known = (
        issue(
            "marin-community/marin#7626",
            "a prompt whose head is cut off without a word",
            "a larger context size on the server (Ollama: num_ctx; llama.cpp: --ctx-size)",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Facts at the beginning and behind the middle."""
        return haystack.cold, haystack.warm, *haystack.questions

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Behind the middle first, then at the beginning of the same haystack."""
        heads, later = dict[object, Reply](), dict[object, Reply]()
        for reply in answers.of(size, "warm", "ask"):
            ask = reply.ask
            if ask.facts == 1:  # one fact a haystack: neighbours stand beside each other
                side = heads if ask.depth == 0 else later
                side.setdefault(ask.repeat // 3, reply)
            elif ask.fact == 0 and ask.depth == 0:
                heads.setdefault(ask.repeat, reply)
            elif (ask.depth >= 0.7 and ask.fact < ask.facts - 1) or ask.facts == 2:
                later.setdefault(ask.repeat, reply)
        return [(later[at], heads[at]) for at in heads if at in later]

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """A fail only where the counters say so too, or the model is known to find all: one
        that sees the last tokens only also loses all heads. Where nothing is found, and most
        was not counted, that is a cut as well."""
        row = self.at(answers, size, level)
        pairs = self.pairs(answers, size)
        if not pairs:
            return row
        heads = sum(other.right for _, other in pairs) / len(pairs)
        cut = left_out(answers, size)
        said = row.said
        if cut:
            sent, counted = cut[0].own_tokens or 1, cut[0].prompt_tokens or 0
            least = min(reply.ask.length for reply in cut)
            longer = [pair for pair in pairs if pair[1].ask.length >= least]
            lost = not any(one.right or other.right for one, other in longer)
            said += f"; the server counts {counted:,} of {sent:,} tokens sent"
            said += ", though what stands at the beginning is found" if heads > 0.5 else ""
            if lost and len(longer) >= LEAST and 2 * counted < sent:
                worst = smallest(head for _, head in longer)
                row = replace(row, state=FAIL, worst=worst)
        if row.state == FAIL and not cut and size > layout.options.holds:
            row = replace(row, state=SUSPECT)
            said += ": the model or the server"
        return replace(row, said=said)


def left_out(answers: Answers, size: int) -> list[Reply]:
    """Return the first prompts of which too many tokens were not counted, compared with what is
    counted of the shortest. Prompts that a cache holds do not tell: some servers count what they
    compute only."""
    rows = [reply for reply in answers.every() if reply.prompt_tokens and reply.own_tokens]
    here = [each for each in rows if each.ask.size == size and each.ask.way in FIRST.split("|")]
    if not here:
        return []
    least = min(rows, key=lambda reply: reply.own_tokens or 0)
    short, more = least.own_tokens or 1, (least.prompt_tokens or 0) - (least.own_tokens or 0)
    found = []
    for reply in here:
        sent, counted = reply.own_tokens or 1, reply.prompt_tokens or 0
        if abs(more) <= TEMPLATE:  # the same vocabulary
            left = sent + more - counted > max(TEMPLATE, CLEAR * sent)
        else:
            left = 1 - counted / sent / (1 + more / short) > CLEAR_ELSE
        if left:
            found.append(reply)
    return found


class Replies(Paired):
    """One haystack, other questions: is another question's reply given?"""

    name = "replies"
    order = 60
    asked = "prompts that share their haystack, not their question"
    sees = "a reply cache that is keyed on a prompt's beginning"
    cannot = "a reply cache that is keyed on the whole prompt, which is right"
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
        """Haystacks with several facts."""
        if layout.options.facts > 1:
            return ""
        return "several facts a haystack: a {placeholder} in --needle and --question, with --draw"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first question, then others."""
        return haystack.cold, *haystack.questions

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """The first question's answer, then another's, which is only lost where it is the
        first's."""
        first = {reply.ask.repeat: reply for reply in answers.of(size, "cold", "crowded")}
        found = []
        for reply in answers.of(size, "ask"):
            one = first.get(reply.ask.repeat)
            if one is None or one.ask.fact == reply.ask.fact:
                continue
            found.append(self.taken(one, reply))
        return found

    def repeated(self, answers: Answers, pair: Pair) -> list[Pair]:
        """The same two questions, asked again."""
        return [self.taken(*each) for each in super().repeated(answers, pair)]

    def taken(self, one: Reply, other: Reply) -> Pair:
        """Two answers, of which one is only wrong where it is the other one's reply."""
        if one.right == other.right or one.answer == other.answer:
            return one, other
        return replace(one, right=True), replace(other, right=True)
