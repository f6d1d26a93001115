"""Find groups of prompts in which too many answers of a check are wrong.

The module is pure: it takes the answers of a check and returns groups of prompts. A partition
divides the prompts into groups, for example by time, depth or haystack. Within a stratum of
prompts that a model finds alike (one size, one fact), the wrong ones of a group follow the
hypergeometric distribution if the group has no effect; several strata are tested together. Each
partition has a level of its own, divided among the groups that it tries. Another partition is
another entry of PARTITIONS.
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
from needlemap.servers.check.ask import (
    BESIDE,
    CONVERSATION,
    LONG,
    ROOMY,
    TOSS,
    Answers,
    Ask,
    Reply,
)
from needlemap.servers.check.finding import KnownIssue, issue
from needlemap.servers.check.haystack import BEHIND, COMB
from needlemap.stats.exact import count_tail, poisson_tail, strata_tail

# The longest run of wrong answers of 130 sound servers of an able model was 4.
RUN = 12
# Parts into which the time is divided. Each window is one part long and starts at half of one.
WINDOWS = (2, 4, 8, 16, 32)
# Parts of the time, of which all after one are compared with all before it. Of a model that was
# exchanged after a quarter of the time, and lost one answer in ten from then on, no window held
# more than three quarters.
CUTS = 16
# The windows of a size's haystacks, in the order of their lengths. With four fixed parts a band
# that lies across two of them, and loses six answers in ten, passed.
BANDS = (1, 2, 4)
# Facts that must be lost of a haystack. One would not do, because a fact that is missed is often
# missed in each question about it.
FACTS = 3
# A haystack is lost if so many percent of it are: with fewer shares, a band of a few lengths, in
# which one prompt of six is found by chance, passed.
LOST_SHARES = (("whole", 100), ("nearly whole", 80), ("mostly", 50))
# Moduli of a number of tokens: what kernels and blocks count in.
RESIDUES = (2, 3, 4, 8, 16, 32, 64)
# Moduli of a number of pages, blocks or chunks.
CHUNKS = (2, 3, 4, 5, 6, 7, 8, 10)
# Tokens of pages, blocks and chunks.
UNITS = (512, 4_096, 8_192)
# Replicas that a balancer may take in turn.
MOST_TURNS = 20
# Ways of prompts that are as short as they can be.
SHORT = ("short", "short-again", "crowd", "crowd-after")
# Copies of prompts that were lost: they are more often wrong than other prompts.
_COPY = re.compile(rf"-again\d|{ROOMY}$")
# Ways that no group is made of.
_APART = (*TOSS, LONG, CONVERSATION, "window", "beyond", "half")
# Names of places that are not eighths of a haystack.
_PLACES: Mapping[Hashable, str] = {"edges": "the end of a block", "end": "the haystack's end"}


@dataclass(frozen=True, eq=False)
class Asked:
    """One prompt and its answers.

    Attributes:
        ask: The first ask of the prompt.
        replies: Its answers, in the order of their requests.
        requests: The number of each answer's request.
        order: The prompt's place among all prompts of the check, in [0, 1).
    """

    ask: Ask
    replies: tuple[Reply, ...]
    requests: tuple[int, ...]
    order: float

    @cached_property
    def is_lost(self) -> bool:
        """Return True if at least half of its answers are wrong."""
        return 2 * sum(not reply.right for reply in self.replies) >= len(self.replies)

    @cached_property
    def is_intermittent(self) -> bool:
        """Return True if some of its answers are right and others are wrong."""
        return len({reply.right for reply in self.replies}) > 1

    @cached_property
    def place_bin(self) -> Hashable:
        """Return the eighth of the haystack in which its fact stands.

        The end of a block and the end of the haystack have names.
        """
        if self.ask.way == "edges":
            return "edges"
        is_last = 1 < self.ask.facts == self.ask.fact + 1
        return "end" if is_last else round(8 * self.ask.depth)

    @property
    def takes_a_turn(self) -> bool:
        """Return True if the prompt's length is one of many consecutive lengths.

        Prompts sent in the way 'ask' have such lengths: at each size, all of them are used before
        one is used again (`CheckHaystack.residue`). The lengths of other ways differ by design: if
        a model's range ends between them, only some prompts are lost.
        """
        return any(reply.ask.way == "ask" for reply in self.replies)

    @property
    def start(self) -> int:
        """Return the tokens before the fact."""
        return self.replies[0].start


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts that stand together, of which too many are lost.

    Attributes:
        name: What the prompts share, in words.
        prompts: Its prompts, lost or not.
        p: The chance that so many are lost, times the groups that were tried.
        sure_p: The same chance on any server that answers each prompt by itself, whatever facts its
            model finds; 1 if a model may explain the group.
        partition: The name of the partition that made the group. `groups_in` knows it.
    """

    name: str
    prompts: tuple[Asked, ...]
    p: float
    sure_p: float = 1.0
    partition: str = ""

    @property
    def lost_prompts(self) -> tuple[Asked, ...]:
        """Return the prompts that are lost."""
        return tuple(prompt for prompt in self.prompts if prompt.is_lost)

    @property
    def sentence(self) -> str:
        """Return the count of lost prompts, in words."""
        return f"{len(self.lost_prompts)} of {len(self.prompts)} lost {self.name}"


# What the prompts of a group share, in words and as a key.
Label = tuple[str, Hashable]
Stratum = Callable[[Asked], Hashable]
Test = Callable[[Sequence[Asked], float], Iterable[Group]]


@dataclass(slots=True)
class Count:
    """Prompts, and how many of them are lost."""

    n: int = 0
    lost: int = 0

    def add(self, prompt: Asked) -> None:
        """Count a prompt."""
        self.n += 1
        self.lost += prompt.is_lost


# The prompts of a group by stratum.
Tally = dict[Hashable, Count]


@dataclass(frozen=True, slots=True)
class Partition:
    """One way to divide the prompts of a check.

    Attributes:
        name: Its name.
        level: How often a sound server has such a group.
        test: Finds the groups in which too many are lost, given all prompts and the level.
        share: Its share of the probe's alpha, for groups that no model explains.
        known: Public faults that lose such groups.
    """

    name: str
    level: float
    test: Test
    share: float = 0.0
    known: tuple[KnownIssue, ...] = ()


def groups_in(answers: Answers) -> list[Group]:
    """Return the groups in which too many answers are lost, in the order of the partitions."""
    prompts = prompts_of(answers)
    if not any(prompt.is_lost for prompt in prompts):
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
        if reply.measured and is_grouped(reply.ask.way):
            rows[reply.ask.prompt].append((request, reply))

    prompts: list[Asked] = []
    for number, row in enumerate(rows.values()):
        requests, replies = zip(*row, strict=True)
        prompt = Asked(
            ask=replies[0].ask,
            replies=replies,
            requests=requests,
            order=number / len(rows),
        )
        prompts.append(prompt)
    return prompts


def is_grouped(way: str) -> bool:
    """Return True if prompts that were sent in a way count in groups.

    Left out are prompts to the reference, copies, and those whose answers differ by design.
    """
    return not (way.startswith(BESIDE) or way in _APART or _COPY.search(way))


def stratum_of(prompt: Asked) -> Hashable:
    """Return the stratum of a prompt: its size, its fact's place, and whether its length is drawn.

    A model finds the prompts of one stratum about as often.
    """
    return prompt.ask.size, prompt.place_bin, is_between_sizes(prompt.ask)


def is_between_sizes(ask: Ask) -> bool:
    """Return True if a prompt is shorter than those of its size, because its length is drawn.

    Its stratum is another one, because the range of a model may end between the two lengths.
    """
    return ask.length < ask.size - COMB - BEHIND


def size_of_prompt(prompt: Asked) -> Hashable:
    """Return the stratum by which facts are compared with each other: the size."""
    return prompt.ask.size


def by_prompt(prompt: Asked) -> Hashable:
    """Return the unit of labels in which prompts about one fact differ: the prompt itself."""
    return prompt


def by_fact(prompt: Asked) -> Hashable:
    """Return the unit of labels that all prompts about one fact share: the fact.

    If a model misses a fact, it misses it at each length.
    """
    return prompt.ask.haystack, prompt.ask.fact


def by_fact_and_way(prompt: Asked) -> Hashable:
    """Return the unit of labels of ways: the fact and the way."""
    return prompt.ask.haystack, prompt.ask.fact, prompt.ask.way, prompt.ask.state


def merge_units(prompts: Iterable[Asked], unit: Stratum) -> dict[Asked, list[Asked]]:
    """Return the prompts of each unit, by one prompt that has the answers of all of them."""
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


def label_test(
    labels: Callable[[Asked], Iterable[Label]],
    stratum: Stratum = stratum_of,
    *,
    group_count: int = 0,
    unit: Stratum = by_prompt,
) -> Test:
    """Return the test of groups of prompts that share a label.

    The test yields the group whose losses chance explains least, if its p is within the level.

    Args:
        labels: Returns the labels of a prompt.
        stratum: Returns the stratum of a prompt. The prompts of one are compared with each other.
        group_count: How many groups there may be, by which p is multiplied; 0 for as many as there
            are.
        unit: Returns the unit of a prompt. The prompts of one are lost together on any server, and
            count as one.
    """

    def test(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
        units = merge_units(prompts, unit)
        strata = Strata(units, stratum)
        tallies = defaultdict[Label, Tally](lambda: defaultdict(Count))
        for prompt in units:
            for label in labels(prompt):
                tallies[label][stratum(prompt)].add(prompt)

        times = group_count or len(tallies)
        chances = {
            label: strata.tail(tally) * times
            for label, tally in tallies.items()
            if strata.is_over(tally)
        }
        if not chances:
            return

        best_label = min(chances, key=chances.__getitem__)
        if chances[best_label] > level:
            return
        members = [
            prompt
            for unit_prompt, row in units.items()
            if best_label in labels(unit_prompt)
            for prompt in row
        ]
        name, _ = best_label
        yield Group(name=name, prompts=tuple(members), p=chances[best_label])

    return test


class Strata:
    """Counts the prompts of a check, and the lost ones, by stratum."""

    def __init__(self, prompts: Iterable[Asked], stratum: Stratum) -> None:
        self._stratum = stratum
        self._counts: Tally = defaultdict(Count)
        for prompt in prompts:
            self._counts[stratum(prompt)].add(prompt)

    def is_over(self, tally: Tally) -> bool:
        """Return True if more of some prompts are lost than their strata's rates predict."""
        lost = sum(count.lost for count in tally.values())
        expected = sum(
            count.n * self._counts[stratum].lost / self._counts[stratum].n
            for stratum, count in tally.items()
        )
        return lost > expected

    def tail(self, tally: Tally) -> float:
        """Return the chance that so many of some prompts are lost, by the stratified Fisher test.

        It is the chance if the prompts are like the others of their strata.
        """
        return strata_tail(
            [
                (self._counts[stratum].n, count.n, self._counts[stratum].lost, count.lost)
                for stratum, count in tally.items()
            ]
        )

    def rate(self, prompt: Asked) -> float:
        """Return the share of a prompt's stratum that is lost."""
        count = self._counts[self._stratum(prompt)]
        return count.lost / count.n


def in_time(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield a run of wrong answers, or else a part of the time in which more is lost.

    The server of such a group was spoilt, restarted or exchanged during the check.
    """
    group_count = sum(2 * parts - 1 for parts in WINDOWS) + 2 * (CUTS - 1)
    run = group_of_run(prompts)
    if run is not None and run.p <= level:
        groups = [run]
    else:
        test = label_test(windows_of, group_count=group_count, unit=by_fact)
        groups = list(test(prompts, level))
    for group in groups:
        chance = haystack_tail(prompts, group.prompts) * max(group_count, len(prompts))
        yield replace(group, sure_p=min(1.0, chance))


def group_of_run(prompts: Sequence[Asked]) -> Group | None:
    """Return the longest run of wrong answers as a group, or None if it is shorter than `RUN`."""
    run = longest_run(prompts)
    if len(run) < RUN:
        return None
    members = tuple(dict.fromkeys(prompt for _, prompt in run))
    strata = Strata(prompts, stratum_of)
    # A fact that is asked for again is no new loss.
    facts = {by_fact(prompt): prompt for prompt in members if prompt.is_lost}
    # As many runs may start as there are prompts.
    p = len(prompts) * exp(sum(log(strata.rate(prompt)) for prompt in facts.values()))
    first_request, _ = run[0]
    last_request, _ = run[-1]
    name = f"in a row, {len(run):,} answers from request {first_request:,} to {last_request:,}"
    return Group(name=name, prompts=members, p=p)


def longest_run(prompts: Sequence[Asked]) -> Sequence[tuple[int, Asked]]:
    """Return the longest run of wrong answers: the number of each request, and its prompt."""
    longest: list[tuple[int, Asked]] = []
    run: list[tuple[int, Asked]] = []
    for request, prompt, reply in answers_in_order(prompts):
        run = [] if reply.right else [*run, (request, prompt)]
        longest = max(longest, run, key=len)
    return longest


def answers_in_order(prompts: Iterable[Asked]) -> list[tuple[int, Asked, Reply]]:
    """Return the answers in the order of their requests.

    Each row has the number of the request, the prompt, and the answer.
    """
    answers = [
        (request, prompt, reply)
        for prompt in prompts
        for request, reply in zip(prompt.requests, prompt.replies, strict=True)
    ]
    return sorted(answers, key=lambda answer: answer[0])


def windows_of(prompt: Asked) -> Iterator[Label]:
    """Yield the windows of the time in which a prompt was sent first, and the sides of each cut."""
    for parts, first in windows_at(prompt.order, WINDOWS):
        start = first / (2 * parts)
        stop = (first + 2) / (2 * parts)
        yield f"between {start:.0%} and {stop:.0%} of the time", (parts, first)
    for cut in range(1, CUTS):
        if prompt.order < cut / CUTS:
            yield f"before {cut / CUTS:.0%} of the time", ("before", cut)
        else:
            yield f"after {cut / CUTS:.0%} of the time", ("after", cut)


def windows_at(place: float, divisions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the windows that hold a place in [0, 1).

    A window is a number of parts, and the number of the half part at which it starts.

    >>> list(windows_at(0.5, [2]))
    [(2, 1), (2, 2)]
    """
    for parts in divisions:
        half = int(place * 2 * parts)
        for first in (half - 1, half):
            if 0 <= first <= 2 * parts - 2:
                yield parts, first


def haystack_tail(prompts: Iterable[Asked], members: Iterable[Asked]) -> float:
    """Return the chance that a group loses as many haystacks as it did, if losses fall by chance.

    A haystack is lost if at least half of its prompts are. Haystacks are counted in place of
    prompts, because the prompts of one haystack may be lost together.

    members: the prompts of the group, which are some of `prompts`.
    """
    member_haystacks = {prompt.ask.haystack for prompt in members}
    all_counts = defaultdict[Hashable, Count](Count)
    member_counts = defaultdict[Hashable, Count](Count)
    for haystack, rows in by_haystack(prompts).items():
        is_lost = 2 * sum(prompt.is_lost for prompt in rows) >= len(rows)
        ask = rows[0].ask
        stratum = ask.size, is_between_sizes(ask)
        counts = [all_counts[stratum]]
        if haystack in member_haystacks:
            counts.append(member_counts[stratum])
        for count in counts:
            count.n += 1
            count.lost += is_lost

    return strata_tail(
        [
            (count.n, member_counts[stratum].n, count.lost, member_counts[stratum].lost)
            for stratum, count in all_counts.items()
        ]
    )


def by_haystack(prompts: Iterable[Asked]) -> Mapping[Hashable, list[Asked]]:
    """Return the prompts of each haystack."""
    rows = defaultdict[Hashable, list[Asked]](list)
    for prompt in prompts:
        rows[prompt.ask.haystack].append(prompt)
    return rows


def by_head(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the haystacks that are lost whole, or mostly, if chance would lose fewer of them.

    Chance loses facts one by one. Prompts with one haystack are answered by one replica, from one
    cache, so that a fault of these loses them together.
    """
    strata = Strata(prompts, stratum_of)
    haystacks = [
        rows
        for rows in by_haystack(prompts).values()
        if len({prompt.place_bin for prompt in rows}) >= FACTS
    ]
    for words, percent in LOST_SHARES:
        lost_haystacks: list[Sequence[Asked]] = []
        chances: list[float] = []
        for rows in haystacks:
            # The double negation rounds up.
            fewest = max(FACTS, -(-percent * len(rows) // 100))
            chances.append(count_tail([strata.rate(prompt) for prompt in rows], fewest))
            if sum(prompt.is_lost for prompt in rows) >= fewest:
                lost_haystacks.append(rows)

        count = len(lost_haystacks)
        p = len(LOST_SHARES) * count_tail(chances, count)
        if count >= 2 and p <= level:
            yield Group(
                name=f"where a haystack is lost {words}: {count} of {len(haystacks)} haystacks",
                prompts=tuple(prompt for rows in lost_haystacks for prompt in rows),
                p=p,
            )
            return


def in_bursts(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield prompts that are lost now and then, if such losses follow each other too often.

    The server of such a group is disturbed for a moment. Prompts that are always lost show nothing
    about a moment, so they do not count.
    """
    answers = answers_in_order(prompt for prompt in prompts if len(prompt.replies) > 1)
    losses = [not reply.right and prompt.is_intermittent for _, prompt, reply in answers]
    # Under load more may be lost than alone.
    states = [reply.ask.state for _, _, reply in answers]
    loss_counts = Counter(state for state, is_lost in zip(states, losses, strict=True) if is_lost)
    rates = {state: loss_counts[state] / n for state, n in Counter(states).items()}

    # Two answers to one prompt are not a pair.
    pairs = [
        number
        for number, ((_, prompt, _), (_, next_prompt, _)) in enumerate(pairwise(answers))
        if prompt is not next_prompt
    ]
    lost_pairs = sum(losses[number] and losses[number + 1] for number in pairs)
    expected = sum(rates[states[number]] * rates[states[number + 1]] for number in pairs)
    p = poisson_tail(lost_pairs, expected)
    if lost_pairs and p <= level:
        lost_prompts = dict.fromkeys(
            prompt for (_, prompt, _), is_lost in zip(answers, losses, strict=True) if is_lost
        )
        yield Group(
            name="one after another, and found at another time",
            prompts=tuple(lost_prompts),
            p=p,
        )


def by_residue(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the residue of a prompt's length, or of its fact's place, at which more is lost.

    No model counts tokens; a kernel does.
    """
    groups = [
        *residues_of("length", 1, RESIDUES, size_of_prompt)(prompts, level / 2),
        *residues_of("place", 1, RESIDUES, stratum_of)(prompts, level / 2),
    ]
    for group in sorted(groups, key=lambda group: group.p)[:1]:
        yield replace(group, sure_p=2 * group.p)


def by_chunk(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the page, block or chunk of every few at which more is lost."""
    tests = [residues_of(name, unit, CHUNKS, stratum_of) for name in NUMBERS for unit in UNITS]
    groups = [group for test in tests for group in test(prompts, level / len(tests))]
    yield from sorted(groups, key=lambda group: group.p)[:1]


def residues_of(name: str, unit: int, moduli: Sequence[int], stratum: Stratum) -> Test:
    """Return the test of the residues of a number of tokens.

    Args:
        name: The name of the number, one of `NUMBERS`.
        unit: The tokens of a unit in which it is counted.
        moduli: The moduli of the residues.
        stratum: Returns the stratum of a prompt.
    """
    expression = name if unit == 1 else f"{name} // {unit}"

    def number(prompt: Asked) -> int:
        return NUMBERS[name](prompt) // unit

    def labels(prompt: Asked) -> Iterator[Label]:
        for modulus in moduli:
            residue = number(prompt) % modulus
            yield f"where {expression} % {modulus} = {residue}", (modulus, residue)

    def fact_and_number(prompt: Asked) -> Hashable:
        return by_fact(prompt), number(prompt)

    def test(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
        if name == "length":
            prompts = [prompt for prompt in prompts if prompt.takes_a_turn]
        run_test = label_test(labels, stratum, group_count=sum(moduli), unit=fact_and_number)
        yield from run_test(prompts, level)

    return test


def turns_of(prompt: Asked) -> Iterator[Label]:
    """Yield the turn of a prompt's first request, for each number of replicas."""
    for replicas in range(2, MOST_TURNS + 1):
        turn = prompt.requests[0] % replicas
        yield f"at one request in {replicas}", (replicas, turn)


def by_turn(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the turn in which more is lost. No model knows which request a prompt is."""
    for group in label_test(turns_of)(prompts, level):
        yield replace(group, sure_p=group.p)


def depths_of(prompt: Asked) -> Iterator[Label]:
    """Yield the place of a prompt's fact, at its size and at all sizes.

    The shortest prompts have one place.
    """
    if prompt.ask.way in SHORT:
        return
    place = prompt.place_bin
    place_name = f"depth {place / 8:.0%}" if isinstance(place, int) else _PLACES[place]
    size = prompt.ask.size
    yield f"at {place_name} of {short_size(size)}", (size, place)
    yield f"at {place_name} of all lengths", place


def by_length(prompts: Sequence[Asked], level: float) -> Iterator[Group]:
    """Yield the lengths of a size, or the size itself, at which more is lost than at its others.

    The shortest prompts have one length.
    """
    long_prompts = [prompt for prompt in prompts if prompt.ask.way not in SHORT]
    bands = bands_of(long_prompts)

    def labels(prompt: Asked) -> Sequence[Label]:
        return bands[prompt.ask.haystack]

    test = label_test(labels, stratum=size_of_prompt, unit=by_fact)
    yield from test(long_prompts, level)


def bands_of(prompts: Iterable[Asked]) -> Mapping[Hashable, list[Label]]:
    """Return the bands of lengths in which a haystack's prompts lie, by haystack.

    A size is a band of its own. Haystacks whose length is drawn lie in windows over those of their
    size, in the order of their lengths.
    """
    labels = defaultdict[Hashable, list[Label]](list)
    drawn_lengths = defaultdict[int, list[tuple[int, Hashable]]](list)
    for haystack, rows in by_haystack(prompts).items():
        size = rows[0].ask.size
        longest = max(prompt.ask.length for prompt in rows)
        if longest < size - COMB - BEHIND:
            drawn_lengths[size].append((longest, haystack))
        else:
            labels[haystack].append((f"at {short_size(size)}", size))

    bands = defaultdict[Hashable, list[tuple[int, Hashable]]](list)
    for size, lengths in drawn_lengths.items():
        lengths.sort(key=lambda row: row[0])
        for number, row in enumerate(lengths):
            for window in windows_at(number / len(lengths), BANDS):
                bands[size, window].append(row)
    for band, lengths in bands.items():
        shortest = lengths[0][0]
        longest = lengths[-1][0]
        name = f"between {shortest:,} and {longest:,} tokens"
        for _, haystack in lengths:
            labels[haystack].append((name, band))
    return labels


def ways_of(prompt: Asked) -> Iterator[Label]:
    """Yield the way in which a prompt was sent first."""
    yield f"when sent first {prompt.ask.state}", (prompt.ask.way, prompt.ask.state)


# Tokens of a prompt whose residues are tried.
NUMBERS: Mapping[str, Callable[[Asked], int]] = {
    "length": lambda prompt: prompt.ask.length,
    "place": lambda prompt: prompt.start,
}

PARTITIONS: tuple[Partition, ...] = (
    Partition("time", 0.002, in_time, share=0.4),
    Partition("burst", 0.0005, in_bursts),
    Partition("size", 0.001, by_length),
    Partition(
        "depth",
        0.0015,
        label_test(depths_of, stratum=size_of_prompt, unit=by_fact),
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
    Partition("operation", 0.001, label_test(ways_of, unit=by_fact_and_way)),
)
