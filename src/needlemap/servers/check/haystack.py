"""List what may be asked about each haystack of a check, and where its facts stand.

Pure: the same options and seed give the same asks. The first prompt of a haystack is cold. All
others start with the same tokens, so that a server that caches prefixes computes little more. What
is asked about one haystack stands together, in a random order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import sqrt
from random import Random
from typing import ClassVar, Protocol

from needlemap.errors import SettingsError
from needlemap.grid import MOST_LENGTH
from needlemap.servers.apart import Spread, spread_of
from needlemap.servers.check.ask import (
    BESIDE,
    CONVERSATION,
    TOSS,
    Answers,
    Ask,
    State,
    prefill_of,
)
from needlemap.servers.ways import COARSEST, DataType, positions_of

# Parts of the first round, each a few whole haystacks of every size.
ROUNDS = 24
# Consecutive lengths in tokens that prompts of a size take in turn; of sizes below SMALL tokens.
COMB = 64
SMALL_COMB = 16
SMALL = 1024
# Consecutive places of a needle.
PLACES = 16
# Prompts that end with the last tokens of a context.
LAST = 8
# Of the shortest prompts, those that ask for what has several right answers.
TOSSES = 24
# Prompts of the shortest size that are sent when all else was, at least.
LATE = 24
# The same of a longer size, of each kind: alone or among others at first.
FEWER_LATE = 8
# Prompts that were cold at first and are sent once more, for the noise.
COLD_REPEATS = 12
# Tokens that five more facts take, at most.
FIVE_MORE = 128
# Tokens of haystack after the last fact, in the shortest prompt of a size.
BEHIND = 2
# The probe that needs no right answer.
WAYS = "ways"
# Answers after which a model is known to find little.
LEAST_ASKED = 12
# Ways of prompts that are sent when all else was.
LATER = "later"
LATER_ASK = "later-ask"
# First prompts that are continued and sent again: more than the 20 that a way needs, because some
# have nothing to be compared with, if a cache held a part of them by chance.
CONVERSATIONS = 32
# How many of them were first sent among others. If a cache drops nothing, these are never cold and
# alone, so that the others have to be enough.
CROWDED_CONVERSATIONS = 8
# Tokens by which a conversation grows. llama.cpp computes 512 at a time, and its checkpoints of
# windowed layers were wrong only after more.
TURN = 1_024
# The way of a first prompt that is sent once more after it was continued.
REWIND = "rewind"
# Ways that stand just after a haystack's first prompt.
BEHIND_FIRST = "tail", "within"
# The depth up to which all facts but the last stand.
SPREAD = 0.75
# Depths in turn, if a haystack hides one fact.
SINGLE = (0.0, 0.5, 0.9)
# Tokens that a prompt needs in addition to its haystack, at least.
SPARE = 64
_SIXTEENTH = 16
# Tokens of chunks, pages and blocks.
_BLOCKS = (8192, 2048, 64, 16)
# Share of a prompt that may follow the end of a block.
_NEAR = 0.2
# First number of documents that stand next to others under load.
_FRESH = 100_000
# First number of the documents that continue a conversation.
_FURTHER = 900_000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a check.

    Attributes:
        max_length: Tokens of the longest size.
        load: Prompts at a time under load.
        answer_tokens: The answer's budget, which a length includes.
        around: Tokens of a prompt that are not haystack, facts and answer included.
        head: Of them, those before the haystack.
        facts: Facts hidden in each haystack.
        reference: Whether there is a reference.
        context: Tokens of prompt and answer that the server says it takes; None if it does not.
        logprobs: Whether answers come with log-probabilities.
        prefills: Whether the back end can send an answer as a prompt.
        serial: Whether the model answers one prompt at a time.
        promised: Whether --max-length is somebody's promise.
        distinct: Whether questions or secrets differ by haystack.
        probes: The probes that were typed; () for all.
        require, accept: As typed.
        holds: Tokens to which the model is known to find every fact; 0 if that is not known.
        copies: Tokens of the longest answer that the model is known to copy; 0 if it is not known.
        moves: By data type, from the finest on, the nats a token by which honest engines' margins
            differ from the reference's at most; () if that is not known.
        exact: Whether a cache coarser than the weights is a fault.
        dtype: What the server computes in.
        few: Whether a check asks FEW; None if that was not typed.
        twins: Whether a right answer holds a number, whose twin differs in its last digits.
        quick: Whether only a total loss is looked for, with a few prompts.
    """

    max_length: int = 128_000
    load: int = 8
    answer_tokens: int = 300
    around: int = 480
    head: int = 20
    facts: int = 8
    reference: bool = False
    context: int | None = None
    logprobs: bool = False
    prefills: bool = False
    serial: bool = False
    promised: bool = False
    distinct: bool = True
    probes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    holds: int = 0
    copies: int = 0
    moves: tuple[tuple[str, float], ...] = ()
    exact: bool = False
    dtype: DataType = COARSEST
    few: bool | None = None
    twins: bool = False
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Amount:
    """How many prompts a check sends.

    Attributes:
        haystacks: The haystacks of each size in the first round.
        questions: The questions about each haystack of a size.
        repeats: How many of a haystack's prompts are sent a second time, by size.
        wave: How many of a haystack's questions are sent among others.
        shortest_prompts: The prompts that are as short as can be.
        more_haystacks: The further haystacks of each size, if a row is undecided.
    """

    haystacks: tuple[int, ...]
    questions: tuple[int, ...]
    repeats: tuple[int, ...]
    wave: int
    shortest_prompts: int
    more_haystacks: tuple[int, ...] = (24, 16, 18)


MANY = Amount(
    haystacks=(48, 48, 24),
    questions=(4, 4, 8),
    repeats=(2, 2, 4),
    wave=4,
    shortest_prompts=48,
)
FEW = Amount(
    haystacks=(24, 24, 24),
    questions=(4, 4, 4),
    repeats=(1, 1, 1),
    wave=2,
    shortest_prompts=24,
)
# 52 prompts, of 240,000 tokens even if nothing is cached.
QUICK = Amount(
    haystacks=(4, 4),
    questions=(4, 4),
    repeats=(1, 1),
    wave=2,
    shortest_prompts=2,
    more_haystacks=(0, 0),
)
# Tokens of the longest prompts of a quick check.
QUICK_LENGTH = 8_000


@dataclass(frozen=True, slots=True)
class AskBatch:
    """The asks that are sent next, in this order.

    together: whether all of them are sent at the same time.
    """

    asks: tuple[Ask, ...]
    together: bool = False


def sizes_of(most: int, answer_tokens: int, around: int) -> tuple[int, int, int]:
    """Return the three sizes of a check, in tokens.

    Raises SettingsError if the longest is too short, or longer than any prompt.

    >>> sizes_of(128_000, 300, 480), sizes_of(256, 24, 90)
    ((8000, 32000, 128000), (160, 202, 256))
    """
    if most > MOST_LENGTH:
        raise SettingsError(f"--max-length is {MOST_LENGTH:,} at most, got {most:.6g}.")
    short = max(most // _SIXTEENTH, SPARE + 4 * answer_tokens, SPARE + around)
    if short + 2 * SMALL_COMB > most:
        raise SettingsError(
            f"--max-length {most:,} leaves no room for a check: use {short + 2 * SMALL_COMB:,} or "
            f"more, or a smaller --max-answer-tokens than {answer_tokens}."
        )
    return short, round(sqrt(short * most)), most


class Asks(Protocol):
    """The part of a probe that haystacks use.

    Attributes:
        uses_shortest: Whether the shortest prompts are its yardstick.
        crowds: Whether it wants every second first prompt computed next to others.
        tosses: Whether it asks for what has several right answers.
    """

    uses_shortest: ClassVar[bool]
    crowds: ClassVar[bool]
    tosses: ClassVar[bool]

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return its prompts about one haystack."""


class Geometry:
    """The lengths and depths of a check, and the haystacks of its first round.

    probes: the probes of the check, by name.
    """

    probes: Mapping[str, Asks]

    def __init__(self, options: Options, seed: int = 0) -> None:
        self.options = options
        self.seed = seed
        sizes = sizes_of(options.max_length, options.answer_tokens, options.around)
        self.sizes: tuple[int, ...] = sizes
        self.amount = FEW if options.few else MANY
        if options.quick:
            self.sizes = max(sizes[0], sizes[2] // 4), sizes[2]
            self.amount = QUICK

    @property
    def short(self) -> int:
        """Return the tokens of the shortest prompts."""
        spare = SPARE + 2 * self.options.answer_tokens
        return max(spare, self.options.around - 10 * (self.options.facts - 1) + SMALL_COMB)

    @property
    def computes_reference(self) -> bool:
        """Return True if this process computes the reference of a prompt, next to the server."""
        return bool(self.options.moves) and not self.options.serial

    @property
    def comb(self) -> int:
        """Return how many consecutive lengths the prompts of a size take in turn."""
        return COMB if self.sizes[0] >= SMALL else SMALL_COMB

    @cached_property
    def depths(self) -> tuple[float, ...]:
        """Return the depths of all facts but the last."""
        count = self.options.facts
        steps = max(1, count - 2)
        return tuple(round(SPREAD * index / steps, 4) for index in range(count - 1))

    def depths_at(self, size: int) -> tuple[float, ...]:
        """Return the depths of the facts in a haystack of that size.

        The last fact stands at the end of what all prompts of the haystack share, so that a cache's
        last block holds it.
        """
        if self.options.facts == 1:
            return (0.5,)
        anchor = self.anchor(size)
        return (*self.depths, round((anchor - BEHIND + 0.5) / anchor, 8))

    def anchor(self, size: int) -> int:
        """Return the number of haystack tokens that depths at a size are shares of.

        It is the number in the size's shortest prompt, so that facts stand at the same places in
        all prompts.
        """
        if size == self.short:
            return max(1, size - self.options.around)
        return size - self.comb - self.options.around - 8

    def drawn_tokens(self, size: int) -> int:
        """Return by how many tokens some haystacks of a size may be shorter than the others.

        The lengths of a third of them are drawn, between the size and the next smaller one. If a
        size has no such haystacks, the result is 0.
        """
        if size == self.short or self.options.quick:
            return 0
        index = self.sizes.index(size)
        shortest = self.anchor(self.sizes[index - 1]) if index else 2 * self.comb
        return self.anchor(size) - shortest

    def spread(self, size: int, repeat: int) -> Spread:
        """Return the places of the facts in a haystack."""
        return spread_of(
            f"{self.seed}:{size}",
            repeat,
            anchor=self.anchor(size),
            depths=self.depths_at(size),
            drawn=self.drawn_tokens(size),
        )

    def count(self, size: int) -> int:
        """Return the number of haystacks of a size in the first round."""
        return self.amount.haystacks[self.sizes.index(size)]

    @cached_property
    def first_round(self) -> list[CheckHaystack]:
        """Return the haystacks of the first round, in their order."""
        short_count = self.amount.shortest_prompts
        haystacks = [CheckHaystack(self, self.short, number) for number in _part(short_count, 0)]
        for part in range(ROUNDS):
            haystacks += [
                CheckHaystack(self, self.short, number) for number in _part(short_count, part + 1)
            ]
            for size in self.sizes:
                numbers = self.haystack_order[size]
                haystacks += [
                    CheckHaystack(self, size, numbers[index])
                    for index in _part(self.count(size), part)
                ]
        return haystacks

    def finds_little(self, answers: Answers) -> tuple[int, int] | None:
        """Return how many facts of how many a model found, if it finds too few to judge by.

        If it finds half of the facts in the shortest prompts, or is known to find them, the result
        is None. A server of a model that finds little can only be judged by equal ways of asking.
        If there are no log-probabilities, these are judged only if their probe is named.

        The first answers decide, because a server that dies later is not a weak model.
        """
        if self.options.holds or self.options.quick or WAYS not in self.probes:
            return None
        replies = answers.of(self.short, "short", "short-again")
        if len(replies) < LEAST_ASKED:
            replies = answers.every()

        first_replies = replies[:LEAST_ASKED]
        right = sum(reply.right for reply in first_replies)
        if len(first_replies) < LEAST_ASKED or 2 * right >= len(first_replies):
            return None
        are_shortest = first_replies[-1].ask.size == self.short
        if right and not are_shortest:
            return None
        gives_logprobs = any(reply.steps for reply in first_replies)
        if WAYS not in self.options.probes and not gives_logprobs:
            return None
        return sum(reply.right for reply in replies), len(replies)

    @cached_property
    def drawn_lengths(self) -> Mapping[int, frozenset[int]]:
        """Return the lengths of each size's prompts that lie between it and the size before."""
        return {
            size: frozenset(self._drawn_lengths(size, self.count(size) + more))
            for size, more in zip(self.sizes, self.amount.more_haystacks, strict=True)
        }

    def _drawn_lengths(self, size: int, count: int) -> Iterator[int]:
        for number in range(count):
            haystack = CheckHaystack(self, size, number)
            if haystack.longest >= size:
                continue
            for batch in haystack.batches:
                for ask in batch.asks:
                    if ask.size == size and not ask.way.startswith("half"):
                        yield ask.length

    @property
    def asking_probes(self) -> Collection[Asks]:
        """Return the probes that ask in the first round: all, or the first one in a quick check."""
        probes = tuple(self.probes.values())
        return probes[:1] if self.options.quick else probes

    @property
    def crowds(self) -> bool:
        """Return True if every second first prompt is computed next to others.

        A probe must ask for it, and the model must answer several prompts at a time.
        """
        return not self.options.serial and any(probe.crowds for probe in self.probes.values())

    @property
    def crowd_count(self) -> int:
        """Return how many of the shortest prompts are sent next to a first prompt."""
        return max(1, min(self.options.load - MANY.wave, MANY.wave))

    @cached_property
    def haystack_order(self) -> Mapping[int, Sequence[int]]:
        """Return, by size, the numbers of its haystacks in the order in which they are asked about.

        Haystacks whose first prompt is sent among others alternate with those whose first prompt is
        sent alone, so that a check that is stopped early has enough of both kinds.
        """
        # A paired probe passes from 12 pairs on, if none is lost: of fewer, the interval reaches
        # 25 points. Of FEW's 24 haystacks, the first 15 hold all 12 that are sent among others,
        # and 12 of the longest ones that the reference is sent too.
        counts = {size: self.count(size) for size in self.sizes}
        if not self.crowds:
            return {size: range(count) for size, count in counts.items()}
        return {size: alternating_order(count) for size, count in counts.items()}

    def haystack(self, ask: Ask) -> CheckHaystack:
        """Return the documents that an ask is about."""
        return CheckHaystack(self, ask.size, ask.repeat, ask.round)

    def crowded_haystack(self, ask: Ask) -> CheckHaystack:
        """Return the documents whose first prompt one of the shortest prompts was sent next to."""
        index = crowd_index(ask)
        number = (ask.repeat - _FRESH * (1 + index)) // self.crowd_count
        return CheckHaystack(self, self.sizes[index], number, ask.round)


def alternating_order(count: int) -> list[int]:
    """Return the numbers of a size's haystacks, three crowded ones before each lone one.

    The first prompt of a crowded haystack is sent among others, that of a lone one by itself. Odd
    numbers are crowded. If one kind is used up, the others follow.

    >>> alternating_order(12)
    [1, 3, 5, 0, 7, 9, 11, 2, 4, 6, 8, 10]
    """
    crowded, lone = list(range(1, count, 2)), list(range(0, count, 2))
    numbers = []
    for index in range(count):
        kind = lone if index % 4 == 3 or not crowded else crowded
        numbers.append(kind.pop(0))
    return numbers


def _part(count: int, part: int) -> range:
    """Return the numbers of one of ROUNDS equal parts."""
    return range(count * part // ROUNDS, min(count, count * (part + 1) // ROUNDS))


@dataclass(frozen=True)
class CheckHaystack:
    """The documents of one number at one size, and the prompts about them.

    Attributes:
        layout: The lengths and depths of the check.
        size: The size in tokens.
        repeat: The number of the documents.
        round: 1 in the first round, 2 if a row was undecided.
        probes: The probes that ask; () for all of the check's.
        is_lost: Whether its size is lost, so that it is read in two steps.
    """

    layout: Geometry
    size: int
    repeat: int
    round: int = 1
    probes: tuple[Asks, ...] = ()
    is_lost: bool = False

    @property
    def is_short(self) -> bool:
        """Return True for one of the shortest prompts, which are a yardstick for others."""
        return self.size == self.layout.short

    @property
    def facts(self) -> int:
        """Return how many facts it hides."""
        return 1 if self.is_short else self.layout.options.facts

    @cached_property
    def random(self) -> Random:
        """Return its own random numbers."""
        return Random(f"check:{self.layout.seed}:{self.size}:{self.repeat}")

    def ask(
        self,
        way: str,
        fact: int,
        shortfall: int = 0,
        *,
        state: State = "warm",
        place: int | None = None,
        salt: str = "",
        depth: float | None = None,
    ) -> Ask:
        """Return a prompt about this haystack.

        shortfall: by how many tokens it is shorter than the haystack's longest prompt.
        """
        return Ask(
            way,
            self.size,
            length=self.longest - shortfall,
            depth=self.depth_of(fact) if depth is None else depth,
            repeat=self.repeat,
            fact=fact,
            state=state,
            salt=salt,
            place=place,
            facts=self.facts,
            seed=self.layout.seed,
            round=self.round,
        )

    @cached_property
    def spread(self) -> Spread:
        """Return the places of its facts."""
        return self.layout.spread(self.size, self.repeat)

    @property
    def longest(self) -> int:
        """Return the tokens of its longest prompt: its size, or less if its length is drawn."""
        return self.size - self.layout.anchor(self.size) + self.spread.anchor

    def depth_of(self, fact: int) -> float:
        """Return the depth of a fact, as a share of the haystack."""
        if self.is_short:
            return 0.5
        if self.facts == 1:
            return SINGLE[self.repeat % len(SINGLE)]
        return self.spread.depths[fact]

    def residue(self, number: int) -> int:
        """Return the shortfall of one of the consecutive lengths.

        All lengths are used, in an order that the seed fixes, before one is used again.
        """
        comb = self.layout.comb
        turn, index = divmod(number, comb)
        return shuffled(f"comb:{self.layout.seed}:{self.size}:{turn}", comb)[index]

    @property
    def is_crowded(self) -> bool:
        """Return True if its first prompt is computed next to others.

        If a probe wants that, every second haystack is crowded.
        """
        return self.repeat % 2 == 1 and self.layout.crowds

    @cached_property
    def cold(self) -> Ask:
        """Return the first prompt, of which no cache holds anything.

        In an even haystack it asks for the last fact, alone. In an odd one it asks for one of the
        others, in turn, and is sent among others if the haystack is crowded.
        """
        if self.repeat % 2 == 0:
            return self.ask("cold", self.facts - 1, BEHIND, state="cold")
        fact = self.repeat // 2 % max(1, self.facts - 1)
        shortfall = self.residue(self.repeat)
        if self.is_crowded:
            return self.ask("crowded", fact, shortfall, state="loaded")
        return self.ask("cold", fact, shortfall, state="cold")

    @property
    def is_for_reference(self) -> bool:
        """Return True if the reference is sent its first prompt as well.

        If a check asks FEW, that is half of the longest haystacks: those that are asked about
        first. They are three quarters of the crowded ones and one third of the others.
        """
        # `haystack_order` says why so many.
        if not (self.layout.options.few and self.is_longest) or self.round > 1:
            return True
        if not self.layout.crowds:
            share = 1 / 2
        elif self.is_crowded:
            share = 3 / 4
        else:
            share = 1 / 3
        return self.repeat < share * self.layout.count(self.size)

    @property
    def is_longest(self) -> bool:
        """Return True if it is of the longest size."""
        return self.size == self.layout.sizes[-1]

    @cached_property
    def tail_ask(self) -> Ask | None:
        """Return the first question after less haystack, or None if it is not about the last fact.

        The part of the prompt that a cache holds then ends just after the last fact. The prompt is
        the shorter one of the two, so that the end of a model's range loses neither.
        """
        if self.repeat % 2 or self.facts == 1:
            return None
        # Shorter by the comb, so that both lengths have the same residues.
        length = self.cold.length - self.layout.comb
        return replace(self.cold, way="tail", length=length, state="warm")

    @cached_property
    def within_ask(self) -> Ask | None:
        """Return the first question about a number that ends differently.

        The part of the prompt that a cache holds then ends within the number. If the first prompt
        does not ask for the last fact, or if no answer is a number, the result is None.
        """
        if self.tail_ask is None or not self.layout.options.twins:
            return None
        return replace(self.cold, way="within", state="warm", twin=True)

    @cached_property
    def warm(self) -> Ask:
        """Return the first prompt once more."""
        return replace(self.cold, way="warm", state="warm")

    @cached_property
    def questions(self) -> list[Ask]:
        """Return further questions about it, each of another length.

        They ask for the first fact, for one far after it, and for others.
        """
        count = self._count(self.layout.amount.questions)
        other_facts = [fact for fact in range(self.facts) if fact != self.cold.fact]
        pinned_facts = [fact for fact in (0, self.late_fact) if fact in other_facts]
        drawn_facts = [fact for fact in other_facts if fact not in pinned_facts]
        Random(f"asked:{self.layout.seed}:{self.size}:{self.repeat}").shuffle(drawn_facts)

        facts = pinned_facts + drawn_facts if other_facts else [0]
        facts = (facts * count)[:count]
        first_number = self.repeat * count
        return [
            self.ask("ask", fact, self.residue(first_number + index))
            for index, fact in enumerate(facts)
        ]

    def _count(self, amounts: Sequence[int]) -> int:
        """Return the amount for its size."""
        return amounts[self.layout.sizes.index(self.size)]

    @property
    def late_fact(self) -> int:
        """Return the number of a fact that stands well after the first one, but not at the end."""
        return max(self.facts - 2, min(1, self.facts - 1))

    @cached_property
    def repeated_asks(self) -> list[Ask]:
        """Return some of the prompts once more, word for word."""
        count = self._count(self.layout.amount.repeats)
        return [replace(ask, way="again") for ask in [self.warm, *self.questions][:count]]

    @cached_property
    def conversation(self) -> list[Ask]:
        """Return the first prompt with more behind it, and then the first prompt once more.

        What follows it is an answer and the first prompt about other documents. Only the first
        haystacks of the smallest size have one, and only if both prompts have room, and if equal
        ways of asking can be judged.
        """
        further, options = self.further, self.layout.options
        is_judged = options.logprobs or WAYS in options.probes
        # If any haystack is crowded, every second one is.
        most = CONVERSATIONS
        if self.layout.crowds:
            lone = CONVERSATIONS - CROWDED_CONVERSATIONS
            most = 2 * (CROWDED_CONVERSATIONS if self.is_crowded else lone)
        is_among_first = self.size == self.layout.sizes[0] and self.repeat < most
        if further is None or not is_judged or not is_among_first:
            return []
        longer = replace(
            self.cold,
            way=CONVERSATION,
            state="warm",
            length=self.cold.length + further.cold.length,
            source=self.cold.way,
        )
        return [longer, replace(self.cold, way=REWIND, state="warm")]

    @property
    def further(self) -> CheckHaystack | None:
        """Return the documents that continue a conversation about it, or None if there is no room.

        They are of the smallest size from TURN tokens on, or of the largest that has room.
        """
        layout = self.layout
        most = layout.options.context or layout.sizes[-1]
        sizes = [size for size in layout.sizes if self.cold.length + size <= most]
        if not sizes:
            return None
        size = next((size for size in sizes if size >= TURN), sizes[-1])
        return CheckHaystack(layout, size, _FURTHER + self.repeat, self.round)

    @cached_property
    def wave(self) -> list[Ask]:
        """Return some of the questions once more, sent at the same time."""
        count = min(self.layout.amount.wave, max(1, self.layout.options.load))
        return [replace(ask, way="loaded", state="loaded") for ask in self.questions[:count]]

    @cached_property
    def crowd(self) -> list[Ask]:
        """Return the shortest prompts about other haystacks, sent at the same time as its own."""
        size = self.layout.short
        count = self.layout.crowd_count
        index = self.layout.sizes.index(self.size)
        first_number = _FRESH * (1 + index) + self.repeat * count
        haystacks = (
            CheckHaystack(self.layout, size, number, self.round)
            for number in range(first_number, first_number + count)
        )
        return [haystack.ask("crowd", 0, state="loaded") for haystack in haystacks]

    @cached_property
    def asks_after_wave(self) -> list[Ask]:
        """Return the prompts of the wave once more, alone.

        They read what the wave left in the cache. Prompts that are repeated anyway are left out.
        """
        repeated_prompts = {ask.prompt for ask in self.repeated_asks}
        return [
            replace(ask, way="after", state="warm")
            for ask in self.wave
            if ask.prompt not in repeated_prompts
        ]

    @cached_property
    def crowd_repeats(self) -> list[Ask]:
        """Return the crowd's prompts once more, alone."""
        return [replace(ask, way="crowd-after", state="warm") for ask in self.crowd]

    @cached_property
    def edges(self) -> list[Ask]:
        """Return prompts with the last fact at consecutive places around the end of a block."""
        count = 2 if self.is_longest and not self.layout.options.few else 1
        places = places_of(self.spread.anchor, self.layout.options.head)
        order = list(places)
        asks = []
        for number in range(self.repeat * count, (self.repeat + 1) * count):
            turn, index = divmod(number, len(order))
            Random(f"edges:{self.layout.seed}:{self.size}:{turn}").shuffle(order)
            place = order[index]
            ask = self.ask(
                "edges",
                self.facts - 1,
                self.layout.comb // 2,
                place=place,
                depth=round((place + 0.5) / self.spread.anchor, 8),
            )
            asks.append(ask)
            order = list(places)
        return asks

    @cached_property
    def stepped_asks(self) -> list[Ask]:
        """Return a copy of the first prompt, behind a prompt with half of its haystack.

        Both have a first line of their own, so that a server computes the copy in two steps.
        """
        salt = "stepped"
        # The first step holds the facts of the other half too, so half of the length shares less.
        length = max(self.longest - self.spread.anchor // 2, self.layout.short)
        half = replace(self.cold, way="half", state="cold", length=length, salt=salt)
        return [half, replace(self.cold, way="stepped", state="warm", salt=salt)]

    @cached_property
    def later_ask(self) -> Ask:
        """Return the first prompt once more, to be sent after others passed through the cache."""
        return replace(self.cold, way=LATER, state="cold")

    @cached_property
    def later_crowd(self) -> Ask:
        """Return one of the prompts that stood next to it once more, to be sent after others too.

        It is shorter than the first prompt, so that a batch of both pads it.
        """
        return replace(self.crowd[0], way=LATER, state="cold")

    @cached_property
    def later_question(self) -> Ask:
        """Return one of the questions once more, to be sent after others too."""
        return replace(self.questions[0], way=LATER_ASK, state="cold")

    @cached_property
    def shortest_asks(self) -> list[Ask]:
        """Return one of the shortest prompts and its repeat.

        If a probe needs it, a question with several right answers follows, with its repeat.
        """
        cold = self.ask("short", 0, state="cold")
        asks = [cold, replace(cold, way="short-again", state="warm")]
        if self.has_toss and any(probe.tosses for probe in self._asking_probes):
            asks += self.toss_asks
        return asks

    @property
    def has_toss(self) -> bool:
        """Return True if a question with several right answers may be asked.

        Only a known model is asked it, because its answer is known to be a toss.
        """
        return self.layout.options.holds > 0 and self.repeat < TOSSES

    @cached_property
    def toss_asks(self) -> list[Ask]:
        """Return the question with several right answers, twice."""
        cold_way, warm_way = TOSS
        cold = self.ask(cold_way, 0, -FIVE_MORE, state="cold", salt="toss")
        return [cold, replace(cold, way=warm_way, state="warm")]

    @cached_property
    def batches(self) -> list[AskBatch]:
        """Return all prompts about it as batches.

        The cold prompt comes first, then come the others in a random order.
        """
        if self.is_short:
            if any(probe.uses_shortest for probe in self._asking_probes):
                return [AskBatch(tuple(self.shortest_asks))]
            return []

        asks: dict[object, Ask] = {}
        for probe in self._asking_probes:
            for ask in probe.asks(self):
                asks.setdefault(ask.key, ask)
        if not asks:
            return []
        return _in_batches(self, list(asks.values()))

    @property
    def _asking_probes(self) -> Collection[Asks]:
        return self.probes or self.layout.asking_probes


def _in_batches(haystack: CheckHaystack, asks: Sequence[Ask]) -> list[AskBatch]:
    """Return the prompts about a haystack as batches.

    The order is: the cold prompt, with the crowd and the reference if they are computed at the same
    time; prompts one by one; the wave, whose prompts are sent at the same time; the prompts that
    read what it left in the cache, among the rest; the first prompt with more behind it, and then
    alone; prompts with first lines of their own; the reference, if it was not sent yet.
    """
    layout = haystack.layout
    is_cold_asked = any(ask.key == haystack.cold.key for ask in asks)
    first = [haystack.cold] if is_cold_asked else []
    is_crowded = haystack.is_crowded and is_cold_asked

    crowd = haystack.crowd if is_crowded else [ask for ask in asks if ask.way == "crowd"]
    crowd_after = [ask for ask in asks if ask.way == "crowd-after"]
    reference = [ask for ask in asks if ask.way.startswith(BESIDE)]
    salted = [ask for ask in asks if ask.salt]
    conversation = [ask for ask in asks if ask.way in (CONVERSATION, REWIND)]
    wave = [ask for ask in asks if ask.way == "loaded"]
    wave_prompts = {ask.prompt for ask in wave}
    after_wave = [
        ask
        for ask in asks
        if ask.way == "after" or (ask.way == "again" and ask.prompt in wave_prompts)
    ]
    placed = {ask.key for ask in (*after_wave, *crowd_after, *reference, *salted, *conversation)}
    alone = [ask for ask in asks if ask.state == "warm" and ask.key not in placed]

    random = Random(f"order:{layout.seed}:{haystack.size}:{haystack.repeat}")
    cut = random.randint(0, len(alone)) if wave else len(alone)
    first += [ask for ask in alone if ask.way in BEHIND_FIRST]
    alone = [ask for ask in alone if ask.way not in BEHIND_FIRST]
    random.shuffle(alone)
    alone = separate_repeats(alone, first[-1] if first else None)
    if not is_crowded:
        wave += crowd
        after_wave += crowd_after
        crowd_after = []
    random.shuffle(after_wave)

    with_first = list(crowd) if is_crowded else []
    if first and layout.computes_reference:
        with_first += reference
        reference = []
    if with_first:
        batches = [
            AskBatch((first[0], *with_first), together=True),
            AskBatch((*first[1:], *crowd_after, *alone[:cut])),
        ]
    else:
        batches = [AskBatch((*first, *alone[:cut]))]
    batches += [
        AskBatch(tuple(wave), together=True),
        AskBatch((*after_wave, *alone[cut:])),
        AskBatch(tuple(conversation)),
        AskBatch(tuple(salted)),
        AskBatch(tuple(reference)),
    ]
    return [batch for batch in batches if batch.asks]


def later_batches(layout: Geometry) -> Iterator[AskBatch]:
    """Yield the prompts that are sent after all others.

    They are first prompts, questions, and some of the shortest that stood next to first prompts.
    First prompts that were sent among others are sent alone now. A few of the others follow too, to
    measure the noise. The longest size is left out, because each of its prompts is computed whole.
    """
    haystacks = list[CheckHaystack]()
    for size in layout.sizes[:-1]:
        of_size = [CheckHaystack(layout, size, number) for number in range(layout.count(size))]
        crowded = [haystack for haystack in of_size if haystack.is_crowded]
        lone = [haystack for haystack in of_size if not haystack.is_crowded]
        if size == layout.sizes[0]:
            haystacks += crowded + lone[: max(COLD_REPEATS, LATE - len(crowded))]
        else:
            haystacks += crowded[:FEWER_LATE] + lone[:FEWER_LATE]
    for haystack in haystacks:
        yield AskBatch((haystack.later_ask,))
    for haystack in haystacks:
        if haystack.size == layout.sizes[0]:
            yield AskBatch((haystack.later_question,))
    for haystack in haystacks:
        if haystack.size == layout.sizes[0] and haystack.is_crowded:
            yield AskBatch((haystack.later_crowd,))


def late_haystacks(layout: Geometry) -> list[CheckHaystack]:
    """Return the haystacks of the smallest size whose answers are sent as prompts."""
    size = layout.sizes[0]
    count = min(LATE, layout.count(size))
    return [CheckHaystack(layout, size, number) for number in range(count)]


def prefill_batches(layout: Geometry, answers: Answers) -> Iterator[AskBatch]:
    """Yield the answers to first prompts, sent as prompts up to some of their tokens.

    If the server could not score any of them after a haystack, nothing further is yielded.
    """
    for haystack in late_haystacks(layout):
        lone_ask = haystack.later_ask if haystack.is_crowded else haystack.cold
        for ask in prefills_of(answers, lone_ask):
            yield AskBatch((ask,))
        if answers.prefills and not any(reply.measured for reply in answers.prefills.values()):
            return


def prefills_of(answers: Answers, ask: Ask) -> list[Ask]:
    """Return the asks that send the answer to a prompt as prompts, up to some of its tokens.

    Last tokens without a text, such as the end of the answer, are left out. If there is no answer,
    the result is [].
    """
    reply = answers.by_key.get(ask.key)
    if reply is None:
        return []
    count = len(reply.steps)
    while count and not reply.steps[count - 1][0]:
        count -= 1
    return [
        prefill_of(ask, position, is_last=position == count) for position in positions_of(count)
    ]


def crowd_index(ask: Ask) -> int:
    """Return the index of the size whose haystack a prompt of a crowd was sent next to."""
    return ask.repeat // _FRESH - 1


def separate_repeats(asks: Sequence[Ask], previous: Ask | None) -> list[Ask]:
    """Return asks in their order, except that no prompt follows itself if others remain.

    If a server's cache holds one prompt only, a hit then ends where the haystack does.

    previous: the ask that is sent before them.
    """
    remaining_asks = list(asks)
    ordered_asks = list[Ask]()
    last = previous
    while remaining_asks:
        indices = (
            index
            for index, ask in enumerate(remaining_asks)
            if last is None or ask.prompt != last.prompt
        )
        last = remaining_asks.pop(next(indices, 0))
        ordered_asks.append(last)
    return ordered_asks


@lru_cache(maxsize=4096)
def shuffled(seed: str, count: int) -> tuple[int, ...]:
    """Return the numbers below count, in an order that the seed fixes."""
    order = list(range(count))
    Random(seed).shuffle(order)
    return tuple(order)


def places_of(anchor: int, head: int) -> range:
    """Return PLACES consecutive haystack tokens around the end of a block of the prompt.

    The block is the largest that ends near enough to the haystack's end, so that little is
    computed after it.

    >>> places_of(7_456, 20)[7:9], places_of(127_456, 20)[8] + 20
    (range(6123, 6125), 122880)
    >>> max(places_of(57, 20))
    48
    """
    last = anchor + head - PLACES
    # A short prompt has no end of a block that is near enough.
    end = last
    for block in _BLOCKS:
        block_end = last // block * block
        if last - block_end <= last * _NEAR:
            end = block_end
            break
    first = max(0, end - head - PLACES // 2)
    first = max(0, min(first, anchor - PLACES))
    return range(first, first + PLACES)
