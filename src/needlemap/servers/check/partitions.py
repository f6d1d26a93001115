"""Do wrong answers stand together? Pure: the answers of a check in, groups of prompts out.

A partition says in which groups prompts stand: of time, depth, haystack. Within a stratum of
prompts that a model finds alike (one size, one fact), the wrong ones of a group follow the
hypergeometric distribution if the group says nothing; what is lost in several strata is tested
together. Each partition has a level of its own, divided among the groups that it tries. Another
partition is another entry of PARTITIONS.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import exp, log

from needlemap.grid import short_size
from needlemap.servers.check.ask import BESIDE, ROOMY, TOSS, Answers, Ask, Reply
from needlemap.servers.check.finding import KnownIssue, issue
from needlemap.servers.check.haystack import BEHIND, COMB
from needlemap.stats.exact import count_tail, poisson_tail, strata_tail

# The longest run of wrong answers of 130 sound servers of an able model was 4.
RUN = 12
WINDOWS = (2, 4, 8, 16, 32)  # parts of the time; each window begins at half of one
# Facts that must be lost of a haystack: one that is missed is often missed in each question on it.
FACTS = 3
# A haystack is lost if so much of it is: with fewer shares, a band of a few lengths, in which one
# prompt of six is found by chance, passed.
LOST_SHARES = (("whole", 1.0), ("nearly whole", 0.8), ("mostly", 0.5))
RESIDUES = (2, 3, 4, 8, 16, 32, 64)  # of tokens: what kernels and blocks count in
CHUNKS = (2, 3, 4, 5, 6, 7, 8, 10)  # of pages, blocks and chunks
UNITS = (512, 4_096, 8_192)  # tokens of pages, blocks and chunks
MOST_TURNS = 20  # replicas that a balancer may take in turn
BANDS = 4  # parts of the lengths between two sizes
_COPY = re.compile(rf"-again\d|{ROOMY}$")  # of what was lost: more often wrong than other prompts
SHORT = (
    "short",
    "short-again",
    "crowd",
    "crowd-after",
)  # ways of prompts that are as short as can be
_APART = (*TOSS, "window", "beyond", "half")


@dataclass(frozen=True, eq=False)
class Asked:
    """One prompt and its answers.

    requests: the number of each answer's request. order: the prompt's place among all, in [0, 1).
    """

    ask: Ask
    replies: tuple[Reply, ...]
    requests: tuple[int, ...]
    order: float

    @cached_property
    def wrong(self) -> bool:
        """Whether half of its answers or more are wrong."""
        return 2 * sum(not reply.right for reply in self.replies) >= len(self.replies)

    @cached_property
    def passes(self) -> bool:
        """Whether some of its answers are right and some are wrong."""
        return len({reply.right for reply in self.replies}) > 1

    @cached_property
    def place_bin(self) -> Hashable:
        """The eighth of the haystack in which its fact stands; by name the end of a block, and
        the end of the haystack."""
        if self.ask.way == "edges":
            return "edges"
        is_last = 1 < self.ask.facts == self.ask.fact + 1
        return "end" if is_last else round(8 * self.ask.depth)

    @property
    def takes_a_turn(self) -> bool:
        """Whether its length is one of consecutive ones, which are taken in turn.

        The others differ by design: of a model that ends between them, only some are lost.
        """
        return any(reply.ask.way == "ask" for reply in self.replies)

    @property
    def start(self) -> int:
        """Tokens before the fact."""
        return self.replies[0].start


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts that stand together, of which too many are lost.

    name: what they share, in words. p: the chance of so many lost, times the groups that were
    tried. sure_p: the chance of them on any server that answers each prompt for itself, whatever
    its model finds; 1 if a model may explain them.
    """

    partition: str
    name: str
    prompts: tuple[Asked, ...]
    p: float
    sure_p: float = 1.0

    @property
    def lost(self) -> tuple[Asked, ...]:
        """Those that are lost."""
        return tuple(each for each in self.prompts if each.wrong)

    @property
    def sentence(self) -> str:
        """What is lost, in words."""
        return f"{len(self.lost)} of {len(self.prompts)} lost {self.name}"


Label = tuple[str, Hashable]  # what the prompts of a group share, in words and as a key
Tally = dict[Hashable, list[int]]  # prompts and lost prompts, by stratum
Stratum = Callable[[Asked], Hashable]
Test = Callable[[Sequence[Asked], float], Iterable[Group]]


@dataclass(frozen=True, slots=True)
class Partition:
    """One way to divide the prompts of a check.

    level: how often a sound server has such a group. test: the groups in which too many are lost,
    given all prompts and the level. share: of the probe's alpha, of groups that no model explains.
    known: public faults that lose such groups.
    """

    name: str
    level: float
    test: Test
    share: float = 0.0
    known: tuple[KnownIssue, ...] = ()


def groups_in(answers: Answers) -> list[Group]:
    """Return the groups in which too many answers are lost, the surest of each partition first."""
    prompts = prompts_of(answers)
    if not any(each.wrong for each in prompts):
        return []
    return [
        replace(group, partition=partition.name)
        for partition in PARTITIONS
        for group in partition.test(prompts, partition.level)
    ]


def prompts_of(answers: Answers) -> list[Asked]:
    """Return each prompt with its answers, in the order of their first requests."""
    rows = defaultdict[Hashable, list[tuple[int, Reply]]](list)
    for request, reply in enumerate(answers.by_key.values(), 1):
        way = reply.ask.way
        if reply.measured and not (way.startswith(BESIDE) or way in _APART or _COPY.search(way)):
            rows[reply.ask.prompt].append((request, reply))
    found = list[Asked]()
    for at, row in enumerate(rows.values()):
        requests, replies = zip(*row, strict=True)
        found.append(Asked(replies[0].ask, replies, requests, at / len(rows)))
    return found


def alike(prompt: Asked) -> Hashable:
    """The stratum of a prompt: its size, its fact, and whether its length is drawn."""
    return prompt.ask.size, prompt.place_bin, is_shorter(prompt.ask)


def is_shorter(ask: Ask) -> bool:
    """Whether a prompt is shorter than those of its size: a model may end between them."""
    return ask.length < ask.size - COMB - BEHIND


def of_one_size(prompt: Asked) -> Hashable:
    """The stratum where facts are set beside each other."""
    return prompt.ask.size


def by_prompt(prompt: Asked) -> Hashable:
    """The unit where prompts about one fact differ in what is tried."""
    return prompt


def by_fact(prompt: Asked) -> Hashable:
    """The unit where they do not: a fact that a model misses is missed at each length."""
    return prompt.ask.haystack, prompt.ask.fact


def by_fact_and_way(prompt: Asked) -> Hashable:
    """The same, for facts that are asked for in several ways."""
    return prompt.ask.haystack, prompt.ask.fact, prompt.ask.way, prompt.ask.state


def merged(prompts: Iterable[Asked], unit: Stratum) -> dict[Asked, list[Asked]]:
    """Return the prompts of each unit, by one that has the answers of them all."""
    rows = defaultdict[Hashable, list[Asked]](list)
    for prompt in prompts:
        rows[unit(prompt)].append(prompt)
    return {
        replace(
            row[0],
            replies=tuple(reply for prompt in row for reply in prompt.replies),
            requests=tuple(request for prompt in row for request in prompt.requests),
        ): row
        for row in rows.values()
    }


def labelled(
    labels: Callable[[Asked], Iterable[Label]],
    stratum: Stratum = alike,
    tried: int = 0,
    unit: Stratum = by_prompt,
) -> Test:
    """Return the test of groups that are given by labels. tried: how many groups there may be;
    0: as many as there are. unit: of prompts that are lost together on any server, which count
    as one."""

    def test(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
        units = merged(prompts, unit)
        strata = Strata(units, stratum)
        tallies = defaultdict[Label, Tally](lambda: defaultdict(lambda: [0, 0]))
        for one in units:
            at = stratum(one)
            for label in labels(one):
                row = tallies[label][at]
                row[0] += 1
                row[1] += one.wrong
        chances = {
            label: strata.tail(tally) * (tried or len(tallies))
            for label, tally in tallies.items()
            if strata.is_over(tally)
        }
        best = min(chances, key=chances.__getitem__, default=None)
        if best is not None and chances[best] <= level:
            members = tuple(
                prompt for one, row in units.items() if best in labels(one) for prompt in row
            )
            yield Group("", best[0], members, chances[best])

    return test


class Strata:
    """The prompts of a check by stratum, with the number of them and of the lost ones."""

    def __init__(self, prompts: Iterable[Asked], stratum: Stratum) -> None:
        self.of = stratum
        self.counts: Tally = defaultdict(lambda: [0, 0])
        for prompt in prompts:
            row = self.counts[stratum(prompt)]
            row[0] += 1
            row[1] += prompt.wrong

    def is_over(self, tally: Tally) -> bool:
        """Return whether more is lost of some prompts than the others let expect."""
        lost = sum(row[1] for row in tally.values())
        return lost > sum(
            n * self.counts[at][1] / self.counts[at][0] for at, (n, _) in tally.items()
        )

    def tail(self, tally: Tally) -> float:
        """Return the chance that so many of some prompts are lost, if they are like the others
        of their strata (stratified Fisher test)."""
        return strata_tail(
            [(self.counts[at][0], n, self.counts[at][1], lost) for at, (n, lost) in tally.items()]
        )

    def rate(self, prompt: Asked) -> float:
        """Return the share of a prompt's stratum that is lost."""
        n, lost = self.counts[self.of(prompt)]
        return lost / n


def in_time(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield a run of wrong answers, or a window of the time in which more is lost than at other
    times: a server that was spoilt, restarted or exchanged meanwhile."""
    tried = sum(2 * parts - 1 for parts in WINDOWS)
    windows = list(labelled(windows_of, tried=tried, unit=by_fact)(prompts, level))
    run = longest_run(prompts)
    members = tuple(dict.fromkeys(prompt for _, prompt in run))
    if len(run) >= RUN:
        strata = Strata(prompts, alike)
        # As many runs may begin as there are prompts; what is sent again is no new loss.
        facts = {by_fact(prompt): prompt for prompt in members if prompt.wrong}
        p = len(prompts) * exp(sum(log(strata.rate(prompt)) for prompt in facts.values()))
        if p <= level:
            first, last = run[0][0], run[-1][0]
            name = f"in a row, {len(run):,} answers from request {first:,} to {last:,}"
            windows = [Group("", name, members, p)]
    for group in windows:
        chance = haystack_tail(prompts, group.prompts) * max(tried, len(prompts))
        yield replace(group, sure_p=min(1.0, chance))


def longest_run(prompts: Sequence[Asked]) -> Sequence[tuple[int, Asked]]:
    """Return the longest row of wrong answers: the number of each request, and its prompt."""
    longest, row = list[tuple[int, Asked]](), list[tuple[int, Asked]]()
    for request, prompt, reply in in_order(prompts):
        row = [] if reply.right else [*row, (request, prompt)]
        longest = max(longest, row, key=len)
    return longest


def in_order(prompts: Iterable[Asked]) -> list[tuple[int, Asked, Reply]]:
    """Return the answers in the order of their requests: its number, the prompt, the answer."""
    answers = [
        (request, prompt, reply)
        for prompt in prompts
        for request, reply in zip(prompt.requests, prompt.replies, strict=True)
    ]
    return sorted(answers, key=lambda answer: answer[0])


def windows_of(prompt: Asked) -> Iterator[Label]:
    """Yield the windows of the time in which a prompt was sent first."""
    for parts in WINDOWS:
        at = int(prompt.order * 2 * parts)  # half windows
        for first in (at - 1, at):
            if 0 <= first <= 2 * parts - 2:
                start, stop = first / (2 * parts), (first + 2) / (2 * parts)
                yield f"between {start:.0%} and {stop:.0%} of the time", (parts, first)


def haystack_tail(prompts: Iterable[Asked], members: Iterable[Asked]) -> float:
    """Return the chance that so many haystacks of some prompts are lost, half of their prompts or
    more: what is lost of one haystack may be lost together."""
    inside = {prompt.ask.haystack for prompt in members}
    counts = defaultdict[Hashable, list[int]](lambda: [0, 0, 0, 0])
    for haystack, rows in by_haystack(prompts).items():
        lost = 2 * sum(prompt.wrong for prompt in rows) >= len(rows)
        row = counts[rows[0].ask.size, is_shorter(rows[0].ask)]
        row[0] += 1
        row[1] += haystack in inside
        row[2] += lost
        row[3] += lost and haystack in inside
    return strata_tail([(n, mine, lost, both) for n, mine, lost, both in counts.values()])


def by_haystack(prompts: Iterable[Asked]) -> Mapping[Hashable, list[Asked]]:
    """Return the prompts of each haystack."""
    found = defaultdict[Hashable, list[Asked]](list)
    for prompt in prompts:
        found[prompt.ask.haystack].append(prompt)
    return found


def by_head(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield haystacks that are lost whole, or mostly, more of them than facts lost one by one
    make: prompts that begin alike are answered by one replica, from one cache."""
    strata = Strata(prompts, alike)
    rows = [
        found
        for found in by_haystack(prompts).values()
        if len({prompt.place_bin for prompt in found}) >= FACTS
    ]
    for words, share in LOST_SHARES:
        least = [max(FACTS, round(share * len(found) + 0.49)) for found in rows]
        lost = [
            found
            for found, most in zip(rows, least, strict=True)
            if sum(prompt.wrong for prompt in found) >= most
        ]
        chances = [
            count_tail([strata.rate(prompt) for prompt in found], most)
            for found, most in zip(rows, least, strict=True)
        ]
        p = len(LOST_SHARES) * count_tail(chances, len(lost))
        if len(lost) >= 2 and p <= level:
            name = f"where a haystack is lost {words}: {len(lost)} of {len(rows)} haystacks"
            yield Group("", name, tuple(prompt for found in lost for prompt in found), p)
            return


def in_bursts(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield prompts that are lost now and then, one after another more often than by chance: a
    server that is disturbed for a moment. What is always lost says nothing about a moment."""
    answers = in_order(prompt for prompt in prompts if len(prompt.replies) > 1)
    passing = [not reply.right and prompt.passes for _, prompt, reply in answers]
    states = [reply.ask.state for _, _, reply in answers]
    counts = Counter(states)  # under load more may be lost than alone
    rates = {
        state: sum(lost for lost, at in zip(passing, states, strict=True) if at == state) / n
        for state, n in counts.items()
    }
    pairs = [at for at, (one, other) in enumerate(pairwise(answers)) if one[1] is not other[1]]
    seen = sum(passing[at] and passing[at + 1] for at in pairs)
    p = poisson_tail(seen, sum(rates[states[at]] * rates[states[at + 1]] for at in pairs))
    if seen and p <= level:
        lost = dict.fromkeys(
            row[1] for row, is_lost in zip(answers, passing, strict=True) if is_lost
        )
        yield Group("", "one after another, and found at another time", tuple(lost), p)


def by_residue(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the residue of a prompt's length, or of its fact's place, at which more is lost: no
    model counts tokens, a kernel does."""
    groups = [
        *residues_of("length", 1, RESIDUES, of_one_size)(prompts, level / 2),
        *residues_of("place", 1, RESIDUES, alike)(prompts, level / 2),
    ]
    for group in sorted(groups, key=lambda group: group.p)[:1]:
        yield replace(group, sure_p=2 * group.p)


def by_chunk(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the page, block or chunk of every few at which more is lost."""
    tests = [residues_of(name, unit, CHUNKS, alike) for name in NUMBERS for unit in UNITS]
    groups = [group for test in tests for group in test(prompts, level / len(tests))]
    yield from sorted(groups, key=lambda group: group.p)[:1]


def residues_of(name: str, unit: int, moduli: Sequence[int], stratum: Stratum) -> Test:
    """Return the test of the residues of a number of tokens, in such units."""
    shown = name if unit == 1 else f"{name} // {unit}"

    def number(prompt: Asked) -> int:
        return NUMBERS[name](prompt) // unit

    def labels(prompt: Asked) -> Iterator[Label]:
        for by in moduli:
            rest = number(prompt) % by
            yield f"where {shown} % {by} = {rest}", (by, rest)

    def of_fact(prompt: Asked) -> Hashable:
        return by_fact(prompt), number(prompt)

    def test(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
        in_turn = [prompt for prompt in prompts if name != "length" or prompt.takes_a_turn]
        tried = sum(moduli)
        yield from labelled(labels, stratum, tried=tried, unit=of_fact)(in_turn, level)

    return test


def turns_of(prompt: Asked) -> Iterator[Label]:
    """Yield the turns of a prompt's first request among so many replicas."""
    for replicas in range(2, MOST_TURNS + 1):
        turn = prompt.requests[0] % replicas
        yield f"at one request in {replicas}", (replicas, turn)


def by_turn(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the turn in which more is lost: no model knows which request a prompt is."""
    for group in labelled(turns_of)(prompts, level):
        yield replace(group, sure_p=group.p)


def depths_of(prompt: Asked) -> Iterator[Label]:
    """Yield the place of a prompt's fact: at its size, and at all of them. The shortest prompts
    have one place."""
    place = prompt.place_bin
    if prompt.ask.way in SHORT:
        return
    named = {"edges": "the end of a block", "end": "the haystack's end"}
    shown = f"depth {place / 8:.0%}" if isinstance(place, int) else named[str(place)]
    yield f"at {shown} of {short_size(prompt.ask.size)}", (prompt.ask.size, prompt.place_bin)
    yield f"at {shown} of all lengths", prompt.place_bin


def bands_of(prompt: Asked) -> Iterator[Label]:
    """Yield the part of a size's lengths in which a prompt's length lies."""
    ask = prompt.ask
    part = int(BANDS * log(ask.size / ask.length) / log(4))
    yield f"near {short_size(round(ask.size / 4 ** (part / BANDS)))}", (ask.size, part)


def ways_of(prompt: Asked) -> Iterator[Label]:
    """Yield the way in which a prompt was sent first."""
    yield f"when sent first {prompt.ask.state}", (prompt.ask.way, prompt.ask.state)


# Tokens of a prompt whose residues are tried.
NUMBERS: Mapping[str, Callable[[Asked], int]] = {
    "length": lambda prompt: prompt.ask.length,
    "place": lambda prompt: prompt.start,
}

# A way in which answers may be lost together, how often they are by chance, and its test.
PARTITIONS: tuple[Partition, ...] = (
    Partition("time", 0.002, in_time, share=0.4),
    Partition("burst", 0.0005, in_bursts),
    Partition("size", 0.001, labelled(bands_of, stratum=of_one_size, unit=by_fact)),
    Partition(
        "depth",
        0.0015,
        labelled(depths_of, stratum=of_one_size, unit=by_fact),
        known=(
            issue(
                "ml-explore/mlx-lm#1454",
                "attention that sees the last tokens only",
                "the model's sliding-window settings, layer by layer",
            ),
            issue(
                "sgl-project/sglang#4823",
                "a sliding window on the wrong layers",
                "another attention back end",
            ),
        ),
    ),
    Partition("replica", 0.002, by_head),
    Partition("turn", 0.001, by_turn, share=0.2),
    Partition(
        "residue",
        # A model that misses nothing has no wrong answers that could stand at one.
        0.1,
        by_residue,
        share=0.4,
        known=(
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
            issue(
                "tinygrad/tinygrad#15182",
                "chunked prefill that feeds wrong tokens at a chunk's edge",
                "another chunk size, or chunked prefill off",
            ),
        ),
    ),
    Partition("chunk", 0.001, by_chunk),
    Partition("operation", 0.001, labelled(ways_of, unit=by_fact_and_way)),
)
