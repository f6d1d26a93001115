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

from needlemap.servers.check.ask import Answers, Ask, Reply, answered_ask
from needlemap.servers.check.finding import AtSize, Band, Finding, WayRow, issue
from needlemap.servers.check.haystack import (
    LATER,
    LATER_ASK,
    WAYS,
    CheckHaystack,
    Geometry,
    prefills_of,
)
from needlemap.servers.check.probe import LEAST, NOTHING, Groups, Probe, copy_of, crowd_of, smallest
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
MOST_COPIED = 4
# Copies of each of them, behind first lines of their own.
COPIES = 2
TITLES = {
    COMPANY: "among others",
    CACHED: "from the cache",
    EXTENDED: "behind a cached beginning",
    REWOUND: "after other questions",
    FLOODED: "behind a flood",
    PREFILLED: "generated against prefilled",
    AGAIN: "cold again",
}
_COPY = re.compile(r"-again(\d+)$")


class Ways(Probe):
    """Does the same prompt get the same log-probabilities, however it is asked?"""

    name = WAYS
    order = 35
    asked = (
        "the same prompts cold, among others, from the cache, behind a cached beginning, after "
        "other questions, and when all else was asked: the log-probabilities of their answers; and "
        "the answers themselves as prompts"
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
        """Return the first prompt, the same from the cache, and again behind other questions."""
        return haystack.cold, haystack.warm, haystack.repeated_asks[0], *haystack.questions

    def ways(self, layout: Geometry) -> set[str]:
        """Return the ways of each haystack, and those that are sent when all others were."""
        return super().ways(layout) | {"cold", "crowded", LATER, LATER_ASK}

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
        prompts = Prompts(answers)
        ways = judge_ways(prompts.replies(), tolerance_of(layout), ASKED)
        rows = [size_row(size, ways, prompts) for size in layout.sizes]
        untested = [TITLES[way.way] for way in ways if way.state == "not tested"]
        words = self.in_words(rows)
        if untested:
            words += f"; not tested: {', '.join(untested)}"
        return replace(self.whole(rows), said=words, ways=tuple(map(row_of, ways)))

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterator[Groups]:
        """Yield copies of the prompts that moved most, in their ways, and then those alone."""
        prompts = Prompts(answers)
        copies = [
            (way.way, prompts.asks[number], copy)
            for way in judge_ways(prompts.replies(), tolerance_of(layout))
            if way.way in ASKED
            for number in moved_most(way, prompts, size)
            for copy in range(1, COPIES + 1)
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
            if way == COMPANY:
                yield [[cold_copy(ask, LATER, copy)]]
            elif way == EXTENDED:
                yield [[cold_copy(ask, LATER_ASK, copy)]]


# Ways that a check always sends; others come by chance.
ASKED = (COMPANY, CACHED, EXTENDED, REWOUND, PREFILLED)


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

    def __init__(self, answers: Answers) -> None:
        self.asks: list[Ask] = []
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
        way = NAMES.get(_COPY.sub("", ask.way))
        is_other_copy = ask.salt and not _COPY.search(ask.way)
        if way is None or is_other_copy:
            return
        number, copy = self._numbers_of(ask)
        self._rows.append((number, copy, way, reply))
        if not copy:
            self._originals[number, way] = reply

    def _numbers_of(self, ask: Ask) -> tuple[int, int]:
        """Return the number of an ask's prompt, and that of its copy; 0 if it is not a copy."""
        identity = ask.size, ask.repeat, ask.fact, ask.length, ask.place, ask.twin
        number = self._numbers.setdefault(identity, len(self.asks))
        if number == len(self.asks):
            self.asks.append(replace(ask, way=_COPY.sub("", ask.way), salt=""))
        copy = _COPY.search(ask.way)
        return number, int(copy[1]) if copy else 0

    def reply(self, number: int, way: str) -> Reply | None:
        """Return the reply to a prompt in a way, or None if there is none."""
        if way == PREFILLED:
            prefills = self._prefills.get((number, 0), ())
            return next((generated for generated, _ in prefills), None)
        return self._originals.get((number, LATER if way == FLOODED else way))

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
    "warm": CACHED,
    "ask": EXTENDED,
    "again": REWOUND,
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
        number
        for number, nats in way.moves.items()
        if nats > way.limit and prompts.asks[number].size == size
    ]
    return sorted(beyond, key=lambda number: -way.moves[number])[:MOST_COPIED]


def cold_copy(ask: Ask, way: str, copy: int) -> Ask:
    """Return a copy of a prompt that is sent cold, behind a first line of its own."""
    return copy_of(replace(ask, way=way, state="cold"), copy)


def way_steps(layout: Geometry, way: str, *, ask: Ask, copy: int) -> Iterator[Sequence[Ask]]:
    """Yield the asks that bring a copy of a prompt into a way."""
    haystack = layout.haystack(ask)
    cold = cold_copy(haystack.cold, "cold", copy)
    if way == COMPANY:
        crowded = copy_of(replace(ask, way="crowded", state="loaded"), copy)
        yield [crowded, *crowd_of(layout, ask, copy)]
    elif way == EXTENDED:
        yield [cold, copy_of(replace(ask, way="ask", state="warm"), copy)]
    elif way == CACHED:
        warm = replace(haystack.cold, way="warm", state="warm")
        yield [cold, copy_of(warm, copy)]
    elif way == REWOUND:
        asks = [replace(question, way="ask") for question in haystack.questions[:2]]
        asks.append(replace(haystack.cold, way="again", state="warm"))
        yield [cold, *(copy_of(between, copy) for between in asks)]


def size_row(size: int, ways: Sequence[Way], prompts: Prompts) -> AtSize:
    """Return the row of one size: the prompts that moved in any way, and their word."""
    counts: list[str] = []
    states: set[str] = set()
    n = 0
    beyond = 0
    for way in ways:
        numbers = [number for number in way.moves if prompts.asks[number].size == size]
        if not numbers or way.way == AGAIN:
            continue
        way_beyond = sum(way.moves[number] > way.limit for number in numbers)
        counts.append(f"{way_beyond} of {len(numbers)} {TITLES[way.way]}")
        n += len(numbers)
        beyond += way_beyond
        # Chance decides how many stand behind a flood, so that too few keep nothing from passing.
        lacks_prompts = way.state == NOT_ENOUGH_DATA and way.way in ASKED
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
