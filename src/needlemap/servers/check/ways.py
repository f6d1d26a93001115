"""Probe whether a model is as sure of the same tokens in whatever way a prompt is sent.

It needs no right answer. A prompt that was first sent among others, or behind its beginning, is
sent once more when others have passed through the cache; the server's count says whether it was
cold then. `needlemap.servers.ways` judges the ways.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from needlemap.servers.check.ask import CONVERSATION, Answers, Ask, Reply, answered_ask
from needlemap.servers.check.finding import AtSize, Band, Finding, WayRow, issue
from needlemap.servers.check.haystack import (
    LATER,
    LATER_ASK,
    REWIND,
    WAYS,
    CheckHaystack,
    Geometry,
    prefills_of,
)
from needlemap.servers.check.probe import (
    LEAST,
    NOTHING,
    Groups,
    Probe,
    copy_of,
    crowd_of,
    roomy_copy_of,
    smallest,
)
from needlemap.servers.ways import (
    AGAIN,
    ALONE,
    CACHED,
    COMPANY,
    EXTENDED,
    FLOODED,
    PREFILLED,
    REWOUND,
    TOLERANCE,
    Way,
    WayReply,
    common_start,
    is_cold,
    judge_ways,
    pair_steps,
)
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, row_word

# Prompts of a way that are sent again, those that moved most.
MOST_COPIED = 6
# Numbers of copies, each behind a first line of its own: those that are first sent among others,
# and those that are first sent alone.
AMONG_OTHERS = (1, 2, 3, 4)
BY_THEMSELVES = (5, 6, 7, 8)
TITLES = {
    COMPANY: "among others",
    CACHED: "from the cache",
    EXTENDED: "behind a cached beginning",
    REWOUND: "after the conversation went on",
    FLOODED: "behind a flood",
    PREFILLED: "generated against prefilled",
    AGAIN: "cold again",
}
_COPY = re.compile(r"-again(\d+)$")
# What the name of a way ends with if a prompt is sent once more as it is.
REPLAY = "-replay1"


class Ways(Probe):
    """Does the same prompt get the same log-probabilities, however it is asked?"""

    name = WAYS
    order = 35
    asked = (
        "the same prompts cold, among others, from the cache, behind a cached beginning, after the "
        "conversation went on, and when all else was asked: the log-probabilities of their "
        "answers; and the answers themselves as prompts"
    )
    sees = "a way of asking that computes something else, of any model, whatever it answers"
    cannot = (
        "what is computed wrong in every way, and moves that data types explain (0.5 nats; with "
        "`--dtype float16` 0.05, `float32` 0.005)"
    )
    share = 0.03
    crowds = True
    asks_later = True
    known = (
        issue(
            "vllm-project/vllm#43559",
            "positions off behind a prefix-cache hit",
            "prefix caching off, or speculative decoding off",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt, the same from the cache, and again when more stood behind it."""
        return haystack.cold, haystack.warm, *haystack.questions, *haystack.conversation

    def ways(self, layout: Geometry) -> set[str]:
        """Return the ways of each haystack, and those that are sent when all others were."""
        return super().ways(layout) | {"cold", "crowded", CONVERSATION, REWIND, LATER, LATER_ASK}

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return the reason if there are no log-probabilities, else ''.

        If the model does not find its facts, the texts of its answers are enough.
        """
        replies = answers.every("warm")
        if not replies or any(reply.steps for reply in replies):
            return ""
        if layout.finds_little(answers):
            return ""
        if layout.options.logprobs:
            return "needs log-probabilities, which the server does not give"
        return "log-probabilities, which this back end lacks"

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return the finding, with the row of each way over all sizes, and one row per size."""
        absent = self.absent(layout, answers)
        if absent:
            return Finding.not_applicable(self.name, absent, decides=self.decides)
        prompts = Prompts(layout, answers)
        ways = judge_ways(prompts.replies(), tolerance_of(layout), ASKED)
        rows = [size_row(size, ways, prompts) for size in layout.sizes]
        untested = [TITLES[way.way] for way in ways if way.state == "not tested"]
        words = self.in_words(rows)
        if untested:
            words += f"; not tested: {', '.join(untested)}"
        return replace(self.whole(rows), said=words, ways=tuple(map(row_of, ways)))

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterator[Groups]:
        """Yield copies of the prompts that moved most, in their ways, and then those alone.

        If a cold repeat moved, that prompt is sent once more as it is.
        """
        prompts = Prompts(layout, answers)
        noise, *ways = judge_ways(prompts.replies(), tolerance_of(layout))
        for number in moved_most(noise, prompts, size):
            yield [[replace(layout.haystack(prompts.asks[number]).later_ask, way=LATER + REPLAY)]]
        copies = [
            (way.way, prompts.asks[number], copy)
            for way in ways
            if way.way in ASKED
            for number in moved_most(way, prompts, size)
            for copy in copies_for(layout.haystack(prompts.asks[number]), way.way)
        ]
        for way, ask, copy in copies:
            if way == PREFILLED:
                cold = cold_copy(ask, "cold", copy)
                yield [[cold]]
                # The answer is there once the caller takes the next group.
                yield [[prefill] for prefill in prefills_of(answers, cold)]
        for way, ask, copy in copies:
            yield list(way_steps(layout, way, ask=ask, copy=copy))
        for way, ask, copy in copies:
            if way == EXTENDED:
                yield [[cold_copy(ask, LATER_ASK, copy)]]
            elif copy in AMONG_OTHERS:
                yield [[cold_copy(ask, LATER, copy, is_short=ask.size == layout.short)]]


# Ways that a check always sends; others come by chance.
ASKED = (COMPANY, CACHED, EXTENDED, REWOUND, PREFILLED)
# Ways of which too few prompts keep the probe from passing. Chance decides how many stand behind a
# flood, and only haystacks of the smallest size have conversations.
NEEDED = (COMPANY, CACHED, EXTENDED, PREFILLED)


def tolerance_of(layout: Geometry) -> float:
    """Return by how many nats the server's data type may move a log-probability.

    For a known model it is a measured figure.
    """
    moves = layout.options.moves
    return moves[-1][1] if moves else TOLERANCE[layout.options.dtype]


class Prompts:
    """The replies of a check by prompt, each in its way.

    Attributes:
        asks: The ask of each prompt, at its number.
    """

    def __init__(self, layout: Geometry, answers: Answers) -> None:
        self.asks: list[Ask] = []
        self._layout = layout
        self._numbers: dict[object, int] = {}
        # The number of the prompt, that of its copy, the way, and the reply.
        self._rows: list[tuple[int, int, str, Reply]] = []
        # Replies to prompts that are not copies, by number and way.
        self._originals: dict[tuple[int, str], Reply] = {}
        # Replies that gave an answer, each with the reply to that answer sent as a prompt.
        self._prefills = defaultdict[tuple[int, int], list[tuple[Reply, Reply]]](list)
        for reply in answers.by_key.values():
            if reply.measured and reply.ask.way != "short":
                self._take(reply)
        for prefill in answers.prefills.values():
            generated = answers.by_key.get(answered_ask(prefill.ask).key)
            if generated is not None:
                self._prefills[self._numbers_of(generated.ask)].append((generated, prefill))

    def _take(self, reply: Reply) -> None:
        """Keep a reply under its prompt, if it was sent in one of the ways."""
        ask = reply.ask
        way = NAMES.get(_COPY.sub("", ask.way).removesuffix(REPLAY))
        is_other_copy = ask.salt and not _COPY.search(ask.way)
        if way is None or is_other_copy:
            return
        number, copy = self._numbers_of(ask)
        self._rows.append((number, copy, way, reply))
        if not copy and not ask.way.endswith(REPLAY):
            self._originals[number, way] = reply

    def _numbers_of(self, ask: Ask) -> tuple[int, int]:
        """Return the number of an ask's prompt, and that of its copy, or 0 if it is not a copy."""
        # A copy of one of the shortest prompts is longer by its first line.
        length = 0 if ask.size == self._layout.short else ask.length
        identity = ask.size, ask.repeat, ask.fact, length, ask.place, ask.twin
        number = self._numbers.setdefault(identity, len(self.asks))
        if number == len(self.asks):
            way = _COPY.sub("", ask.way).removesuffix(REPLAY)
            self.asks.append(replace(ask, way=way, salt=""))
        copy = _COPY.search(ask.way)
        return number, int(copy[1]) if copy else 0

    def of_size(self, numbers: Iterable[int], size: int) -> list[int]:
        """Return the numbers of prompts that count at a size. The shortest count at the first."""
        sizes = {size, self._layout.short} if size == self._layout.sizes[0] else {size}
        return [number for number in numbers if self.asks[number].size in sizes]

    def reply(self, number: int, way: str) -> Reply | None:
        """Return the reply to a prompt in a way, or None if there is none."""
        if way == PREFILLED:
            prefills = self._prefills.get((number, 0), ())
            return next((generated for generated, _ in prefills), None)
        return self._originals.get((number, LATER if way in (FLOODED, AGAIN) else way))

    def replies(self) -> list[WayReply]:
        """Return the replies in the form that `judge_ways` takes.

        If a prompt was not cold when it was sent after all others, its way is FLOODED.
        """
        shared_tokens = self._shared_tokens()
        seen_alone: set[tuple[int, int]] = set()
        replies: list[WayReply] = []
        for number, copy, way, reply in self._rows:
            prompt_tokens = reply.prompt_tokens or reply.ask.length
            was_cold = is_cold(reply.cached_tokens, prompt_tokens, shared_tokens)
            if way == LATER:
                way = ALONE if was_cold else FLOODED
            if way == ALONE:
                if (number, copy) in seen_alone:
                    way = AGAIN
                seen_alone.add((number, copy))
            way_reply = way_reply_of(reply, way, number=number, copy=copy, was_cold=was_cold)
            replies.append(way_reply)
        for (number, copy), pairs in self._prefills.items():
            replies.append(prefill_reply(pairs, number=number, copy=copy))
        return replies

    def _shared_tokens(self) -> int:
        """Return how many tokens all prompts start with, as the server counts them.

        It is the number that a cache held of most prompts that were sent alone for the first time.
        """
        # A server may compute prompts that come together without its cache.
        return common_start(
            [
                reply.cached_tokens or 0
                for _, copy, _, reply in self._rows
                if reply.ask.way == "cold" and not copy
            ]
        )


# The judge's name of each of a check's ways. What is sent later is cold, or behind a flood.
NAMES: Mapping[str, str] = {
    "cold": ALONE,
    "crowded": COMPANY,
    "crowd": COMPANY,
    "warm": CACHED,
    "ask": EXTENDED,
    REWIND: REWOUND,
    LATER: LATER,
    LATER_ASK: LATER,
}


def way_reply_of(reply: Reply, way: str, *, number: int, copy: int, was_cold: bool) -> WayReply:
    """Return a reply in the form that `judge_ways` takes.

    number, copy: the numbers of the prompt and of its copy.
    """
    cached_tokens = reply.cached_tokens
    # A hit on what all prompts start with does not count.
    if cached_tokens is not None and was_cold:
        cached_tokens = 0
    return WayReply(
        prompt=number,
        way=way,
        text=reply.answer,
        steps=reply.steps,
        prompt_tokens=reply.prompt_tokens or reply.ask.length,
        cached_tokens=cached_tokens,
        replay=int(reply.ask.way.endswith(REPLAY)),
        copy=copy,
    )


def prefill_reply(pairs: Sequence[tuple[Reply, Reply]], *, number: int, copy: int) -> WayReply:
    """Return an answer that was sent as a prompt, in the form that `judge_ways` takes.

    Args:
        pairs: The reply that gave the answer, each time with the reply to a part of it sent as a
            prompt.
        number: The number of the prompt.
        copy: The number of its copy.
    """
    generated = pairs[0][0]
    measured = [prefill for _, prefill in pairs if prefill.measured]
    # Ids differ if the server counts other tokens before the same position.
    first_token = generated.tokens_before or 0
    generated_steps = list(enumerate(generated.steps, first_token))
    prefilled_steps = {
        prefill.ask.position: (prefill.tokens_before or 0, prefill.steps[0])
        for prefill in measured
        if prefill.steps
    }
    steps, left_out = pair_steps(generated_steps, prefilled_steps)
    return WayReply(
        prompt=number,
        way=PREFILLED,
        text=generated.answer,
        steps=tuple(prefilled for _, prefilled in steps.values()),
        prompt_tokens=generated.prompt_tokens or generated.ask.length,
        cached_tokens=max((prefill.cached_tokens or 0 for prefill in measured), default=None),
        copy=copy,
        generated=tuple(step for step, _ in steps.values()),
        positions=tuple(steps),
        left_out=left_out + len(pairs) - len(measured),
    )


def moved_most(way: Way, prompts: Prompts, size: int) -> Sequence[int]:
    """Return the numbers of a way's prompts of one size that moved most beyond its limit."""
    beyond = [
        number for number in prompts.of_size(way.moves, size) if way.moves[number] > way.limit
    ]
    return sorted(beyond, key=lambda number: -way.moves[number])[:MOST_COPIED]


def cold_copy(ask: Ask, way: str, copy: int, *, is_short: bool = False) -> Ask:
    """Return a copy of a prompt that is sent cold, behind a first line of its own.

    is_short: whether it is one of the shortest prompts.
    """
    cold = replace(ask, way=way, state="cold")
    return roomy_copy_of(cold, copy) if is_short else copy_of(cold, copy)


def way_steps(layout: Geometry, way: str, *, ask: Ask, copy: int) -> Iterator[Sequence[Ask]]:
    """Yield the asks that bring a copy of a prompt into a way, in groups that are sent together."""
    is_of_crowd = ask.size == layout.short
    haystack = layout.crowded_haystack(ask) if is_of_crowd else layout.haystack(ask)
    if copy in AMONG_OTHERS:
        yield [copy_of(haystack.cold, copy), *crowd_of(layout, haystack.cold, copy)]
    else:
        yield [cold_copy(haystack.cold, "cold", copy)]

    if way == EXTENDED:
        yield [copy_of(replace(ask, way="ask", state="warm"), copy)]
    elif way == CACHED:
        # A cache may hold more of a prompt that comes twice in a row.
        yield [copy_of(question, copy) for question in haystack.questions[:1]]
        yield [copy_of(haystack.warm, copy)]
    elif way == REWOUND:
        yield [copy_of(between, copy) for between in haystack.conversation]


def copies_for(haystack: CheckHaystack, way: str) -> Sequence[int]:
    """Return the numbers of the copies that confirm a move of a prompt about a haystack.

    If its first prompt was sent among others, so are half of the copies: what that left in a cache
    may be what is wrong. The others are not, because such a prompt is cold later only if the cache
    dropped it. An answer that is sent as a prompt has nothing to do with others.
    """
    if way == COMPANY:
        return AMONG_OTHERS
    if haystack.is_crowded and way != PREFILLED:
        return *AMONG_OTHERS[:2], *BY_THEMSELVES[:2]
    return BY_THEMSELVES


def size_row(size: int, ways: Sequence[Way], prompts: Prompts) -> AtSize:
    """Return the row of one size: the prompts that moved in any way, and their word."""
    counts: list[str] = []
    states: set[str] = set()
    n = 0
    beyond = 0
    for way in ways:
        numbers = prompts.of_size(way.moves, size)
        # Noise is no fault by itself.
        if not numbers or (way.way == AGAIN and way.state != FAIL):
            continue
        way_beyond = sum(way.moves[number] > way.limit for number in numbers)
        counts.append(f"{way_beyond} of {len(numbers)} {TITLES[way.way]}")
        n += len(numbers)
        beyond += way_beyond
        lacks_prompts = way.state == NOT_ENOUGH_DATA and way.way in NEEDED
        states.add(way.state if way_beyond or lacks_prompts else PASS)
    if not n:
        return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

    limit = ways[0].limit
    return AtSize(
        size=size,
        state=row_word(
            fails=FAIL in states,
            passes=n >= LEAST and not states & {FAIL, SUSPECT, NOT_ENOUGH_DATA},
            points=SUSPECT in states,
        ),
        n=n,
        lost=beyond,
        gained=0,
        said=f"moved by more than {limit:.2g} nats: {', '.join(counts)}",
        worst=smallest(moved_replies(prompts, ways, size)) if beyond else None,
    )


def moved_replies(prompts: Prompts, ways: Sequence[Way], size: int) -> Iterator[Reply]:
    """Yield the replies of one size that moved beyond their way's limit."""
    for way in ways:
        for number in moved_most(way, prompts, size):
            reply = prompts.reply(number, way.way)
            if reply is not None:
                yield reply


def row_of(way: Way) -> WayRow:
    """Return a way as a row of check.json."""
    percentiles = way.percentiles or {}
    return WayRow(
        way=way.way,
        state=way.state,
        n=way.n,
        beyond=way.beyond,
        confirmed=way.confirmed,
        limit_nats=way.limit,
        percentiles={percent: finite(nats) for percent, nats in percentiles.items()},
        alike=way.alike,
        bands=tuple(
            Band(
                tokens=band.start,
                n=band.n,
                beyond=band.beyond,
                most_nats=finite(band.most_nats),
            )
            for band in way.bands
        ),
        left_out=way.left_out,
        said=way.said,
    )


def finite(nats: float) -> float | None:
    """Return a number of nats, or None if it stands for texts that differ."""
    return nats if isfinite(nats) else None
