"""What may be asked about each haystack of a check, and where its facts stand. Pure: the same
options and seed give the same asks.

The first prompt of a haystack is cold; all others begin with the same tokens, so that a server that
caches prefixes computes little more. What one haystack is asked stands together, in a random order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import sqrt
from random import Random
from typing import ClassVar, Protocol

from needlemap.errors import SettingsError
from needlemap.grid import MOST_LENGTH
from needlemap.servers.apart import Spread, spread_of
from needlemap.servers.check.ask import BESIDE, TOSS, Ask, State

ROUNDS = 24
COMB, SMALL_COMB, SMALL = 64, 16, 1024  # residues of lengths; of sizes below so many tokens
PLACES = 16  # consecutive places of a needle
LAST = 8  # prompts that end with the last tokens of a context
TOSSES = 24  # of the shortest prompts, that ask what has several right answers
FIVE_MORE = 128  # tokens that five more facts take, at the most
BEHIND = 2  # tokens of haystack behind the last fact, in the shortest prompt of a size
BEHIND_FIRST = "tail", "within"  # ways that stand just behind a haystack's first prompt
SPREAD = 0.75  # up to which the others stand
SINGLE = (0.0, 0.5, 0.9)  # depths in turn, where a haystack hides one fact
SPARE = 64  # tokens that a prompt needs beside its haystack, at the least
_SIXTEENTH = 16
_BLOCKS = (8192, 2048, 64, 16)  # tokens of chunks, pages and blocks
_NEAR = 0.2  # share of a prompt that may follow the end of a block
_FRESH = 100_000  # first number of documents that stand beside others under load


@dataclass(frozen=True, slots=True)
class Options:
    """What a check is asked to do. max_length: the longest size in tokens. load: prompts at a time
    where there is load. answer_tokens: the answer's budget, which a length includes. around: tokens
    of a prompt that are not haystack, facts and answer included; head: of them, before it. facts:
    hidden in each haystack. reference: whether one is there. context: tokens of prompt and answer
    that the server says it takes. logprobs: whether answers come with them. serial: whether the
    model answers one prompt at a time. told: whether --max-length is somebody's promise. probes:
    those that are wanted, all without one. require, accept: as typed. holds: tokens to which the
    model is known to find every fact, 0 where that is not known. moves: by data type, from the
    finest on, the nats a token by which honest engines' margins differ from the reference's at
    most; () where that is not known. exact: whether a cache coarser than the weights is a fault.
    few: whether a check asks `FEW`; None where nobody said. twins: whether a right answer holds a
    number, whose twin differs in its last digits. quick: whether only a total loss is looked for,
    with a few prompts."""

    max_length: int = 128_000
    load: int = 8
    answer_tokens: int = 300
    around: int = 480
    head: int = 20
    facts: int = 8
    reference: bool = False
    context: int | None = None
    logprobs: bool = False
    serial: bool = False
    promised: bool = False
    distinct: bool = True
    probes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    holds: int = 0
    moves: tuple[tuple[str, float], ...] = ()
    exact: bool = False
    few: bool | None = None
    twins: bool = False
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a check asks. haystacks: of each size, in the first round of looks; asked: questions
    about each haystack of a size; again: of them asked a second time; loaded: of them asked among
    others; shorts: prompts that are as short as can be; more: further haystacks of each size,
    where a row is undecided."""

    haystacks: tuple[int, ...]
    asked: tuple[int, ...]
    again: tuple[int, ...]
    loaded: int
    shorts: int
    more: tuple[int, ...] = (24, 16, 18)


MANY = Amount((48, 48, 24), (4, 4, 8), (2, 2, 4), 4, 48)
FEW = Amount((24, 24, 24), (4, 4, 4), (1, 1, 1), 2, 24)
# 52 prompts, of 240,000 tokens even if nothing is cached.
QUICK = Amount((4, 4), (4, 4), (1, 1), 2, 2, (0, 0))
QUICK_LENGTH = 8_000  # tokens of its longest prompts


@dataclass(frozen=True, slots=True)
class AskBatch:
    """What is asked next, in this order; together: all of it at a time. beside: of the
    reference."""

    asks: tuple[Ask, ...]
    together: bool = False
    beside: bool = False


def sizes_of(most: int, answer_tokens: int, around: int) -> tuple[int, int, int]:
    """The three sizes of a check, in tokens. Raises SettingsError where the longest is too short,
    or longer than any prompt.

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
    """What a haystack knows of a probe: what it asks about it, whether the shortest prompts are its
    yardstick, whether it wants every second first prompt computed beside others, and whether it
    asks for what has several right answers."""

    uses_shortest: ClassVar[bool]
    crowds: ClassVar[bool]
    tosses: ClassVar[bool]

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """What it asks about one haystack."""


class Geometry:
    """The lengths and depths of a check, and the haystacks of its first round. probes: those that
    ask."""

    probes: Mapping[str, Asks]

    def __init__(self, options: Options, seed: int = 0) -> None:
        self.options, self.seed = options, seed
        self.amount = QUICK if options.quick else FEW if options.few else MANY
        sizes = sizes_of(options.max_length, options.answer_tokens, options.around)
        quick = max(sizes[0], sizes[2] // 4), sizes[2]
        self.sizes: tuple[int, ...] = quick if options.quick else sizes

    @property
    def short(self) -> int:
        """Tokens of the shortest prompts."""
        spare = SPARE + 2 * self.options.answer_tokens
        return max(spare, self.options.around - 10 * (self.options.facts - 1) + SMALL_COMB)

    @property
    def computes_beside(self) -> bool:
        """Whether this process computes the reference while a server computes the same prompt."""
        return bool(self.options.moves) and not self.options.serial

    @property
    def comb(self) -> int:
        """How many consecutive lengths there are."""
        return COMB if self.sizes[0] >= SMALL else SMALL_COMB

    @cached_property
    def depths(self) -> tuple[float, ...]:
        """Where all facts but the last stand, as shares of the haystack."""
        count = self.options.facts
        steps = max(1, count - 2)
        return tuple(round(SPREAD * at / steps, 4) for at in range(count - 1))

    def depths_at(self, size: int) -> tuple[float, ...]:
        """Where the facts of a haystack of that size stand: the last at the end of what all its
        prompts share, so that a cache's last block holds it."""
        if self.options.facts == 1:
            return (0.5,)
        anchor = self.anchor(size)
        return (*self.depths, round((anchor - BEHIND + 0.5) / anchor, 8))

    def anchor(self, size: int) -> int:
        """Haystack tokens that depths at a size are shares of: as many as the shortest of its
        prompts has, so that facts stand at the same places in all."""
        if size == self.short:
            return max(1, size - self.options.around)
        return size - self.comb - self.options.around - 8

    def drawn(self, size: int) -> int:
        """Tokens by which a third of a size's haystacks are shorter at most: they fill what lies
        between it and the size before."""
        if size == self.short or self.options.quick:
            return 0
        at = self.sizes.index(size)
        return self.anchor(size) - (self.anchor(self.sizes[at - 1]) if at else 2 * self.comb)

    def spread(self, size: int, repeat: int) -> Spread:
        """Where the facts of a haystack stand."""
        depths = self.depths_at(size)
        return spread_of(f"{self.seed}:{size}", repeat, self.anchor(size), depths, self.drawn(size))

    def count(self, size: int) -> int:
        """Haystacks of a size in the first round."""
        return self.amount.haystacks[self.sizes.index(size)]

    @cached_property
    def first(self) -> list[CheckHaystack]:
        """The haystacks of the first round, in their order."""
        found, shorts = list[CheckHaystack](), self.amount.shorts
        found += [CheckHaystack(self, self.short, at) for at in _part(shorts, 0)]
        for part in range(ROUNDS):
            found += [CheckHaystack(self, self.short, at) for at in _part(shorts, part + 1)]
            for size in self.sizes:
                numbers = (self.turns[size][at] for at in _part(self.count(size), part))
                found += [CheckHaystack(self, size, number) for number in numbers]
        return found

    @cached_property
    def drawn_lengths(self) -> Mapping[int, frozenset[int]]:
        """The lengths of each size's prompts that lie between it and the size before."""
        most = zip(self.sizes, self.amount.more, strict=True)
        return {
            size: frozenset(
                ask.length
                for at in range(self.count(size) + more)
                if (haystack := CheckHaystack(self, size, at)).longest < size
                for batch in haystack.batches
                for ask in batch.asks
                if ask.size == size and not ask.way.startswith("half")
            )
            for size, more in most
        }

    @property
    def asking(self) -> Collection[Asks]:
        """The probes that ask in the first round: of a quick check the first alone."""
        probes = tuple(self.probes.values())
        return probes[:1] if self.options.quick else probes

    @property
    def crowds(self) -> bool:
        """Whether every second first prompt is computed beside others, as a probe wants."""
        return any(probe.crowds for probe in self.probes.values())

    @cached_property
    def turns(self) -> Mapping[int, Sequence[int]]:
        """By size, the numbers of its haystacks in the order in which they are asked: where a
        check of few is stopped, 15 of 24 are enough for each row."""
        counts = {size: self.count(size) for size in self.sizes}
        return {
            size: turns_of(each) if self.crowds else range(each) for size, each in counts.items()
        }

    def haystack(self, ask: Ask) -> CheckHaystack:
        """The documents that an ask is about."""
        return CheckHaystack(self, ask.size, ask.repeat, ask.round)


def turns_of(count: int) -> list[int]:
    """The numbers of a size's haystacks in turns: three whose first prompt is computed beside
    others, then one whose is computed alone, as long as there are both.

    >>> turns_of(12)
    [1, 3, 5, 0, 7, 9, 11, 2, 4, 6, 8, 10]
    """
    crowded, alone = list(range(1, count, 2)), list(range(0, count, 2))
    turns = (alone if at % 4 == 3 or not crowded else crowded for at in range(count))
    return [numbers.pop(0) for numbers in turns]


def _part(count: int, part: int) -> range:
    """The numbers of one of ROUNDS equal parts."""
    return range(count * part // ROUNDS, min(count, count * (part + 1) // ROUNDS))


@dataclass(frozen=True)
class CheckHaystack:
    """The documents of one number at one size, and what may be asked about them. wanted: the
    probes that ask, all of the check's where none is named."""

    layout: Geometry
    size: int
    repeat: int
    round: int = 1
    wanted: tuple[Asks, ...] = ()
    lost: bool = False

    @property
    def is_short(self) -> bool:
        """Whether it is one of the shortest prompts, which are a yardstick for others."""
        return self.size == self.layout.short

    @property
    def facts(self) -> int:
        """How many facts it hides."""
        return 1 if self.is_short else self.layout.options.facts

    @cached_property
    def random(self) -> Random:
        """Its own random numbers."""
        return Random(f"check:{self.layout.seed}:{self.size}:{self.repeat}")

    def ask(
        self,
        way: str,
        fact: int,
        less: int = 0,
        state: State = "warm",
        place: int | None = None,
        salt: str = "",
        depth: float | None = None,
    ) -> Ask:
        """A prompt of this haystack, so many tokens shorter than its longest."""
        if depth is None:
            depth = self.depth_of(fact)
        row = self.longest - less, depth, self.repeat, fact, state, salt, place
        return Ask(way, self.size, *row, self.facts, self.layout.seed, self.round)

    @cached_property
    def spread(self) -> Spread:
        """Where its facts stand."""
        return self.layout.spread(self.size, self.repeat)

    @property
    def longest(self) -> int:
        """Tokens of its longest prompt: its size, or less where its length is drawn."""
        return self.size - self.layout.anchor(self.size) + self.spread.anchor

    def depth_of(self, fact: int) -> float:
        """Where a fact stands."""
        if self.is_short:
            return 0.5
        if self.facts == 1:
            return SINGLE[self.repeat % len(SINGLE)]
        return self.spread.depths[fact]

    def residue(self, number: int) -> int:
        """One of the consecutive lengths: all of them come before one comes again."""
        comb = self.layout.comb
        return shuffled(f"comb:{self.layout.seed}:{self.size}:{number // comb}", comb)[
            number % comb
        ]

    @property
    def is_crowded(self) -> bool:
        """Whether its first prompt is computed beside others: every second one's is, where a
        probe wants that."""
        return self.repeat % 2 == 1 and self.layout.crowds

    @cached_property
    def cold(self) -> Ask:
        """The first of all, of which no cache holds anything: about the last fact, or about
        another, alone or among others."""
        if self.repeat % 2:
            fact, less = self.repeat // 2 % max(1, self.facts - 1), self.residue(self.repeat)
            if self.is_crowded:
                return self.ask("crowded", fact, less, "loaded")
            return self.ask("cold", fact, less, "cold")
        return self.ask("cold", self.facts - 1, BEHIND, "cold")

    @property
    def is_beside(self) -> bool:
        """Whether a reference is asked about it: where little is asked, about half of the
        longest, which are asked first. Of those that are computed beside others these are three
        quarters, and one third of the others."""
        if not (self.layout.options.few and self.is_longest) or self.round > 1:
            return True
        share = 1 / 2 if not self.layout.crowds else 3 / 4 if self.is_crowded else 1 / 3
        return self.repeat < share * self.layout.count(self.size)

    @property
    def is_longest(self) -> bool:
        """Whether it is of the longest size."""
        return self.size == self.layout.sizes[-1]

    @cached_property
    def tail(self) -> Ask | None:
        """The same question behind less haystack, so that what the cache holds of the prompt ends
        just behind the last fact; None where the first prompt asks for another. It is the shorter
        one: what a model no longer finds at its end is then lost from neither."""
        if self.repeat % 2 or self.facts == 1:
            return None
        length = self.cold.length - self.layout.comb  # of the same residues: `comb` tells these
        return replace(self.cold, way="tail", length=length, state="warm")

    @cached_property
    def within(self) -> Ask | None:
        """The same question, with a number that ends otherwise: what a cache holds ends within the
        number. None where the first prompt asks for another fact, or for no number."""
        if self.tail is None or not self.layout.options.twins:
            return None
        return replace(self.cold, way="within", state="warm", twin=True)

    @cached_property
    def warm(self) -> Ask:
        """The same once more."""
        return replace(self.cold, way="warm", state="warm")

    @cached_property
    def questions(self) -> list[Ask]:
        """Other questions about it, each of another length: the first fact, one far behind it, and
        others."""
        count = self.layout.amount.asked[self.layout.sizes.index(self.size)]
        own = self.cold.fact
        others = [fact for fact in range(self.facts) if fact != own]
        pinned = [fact for fact in (0, self.late) if fact in others]
        rest = [fact for fact in others if fact not in pinned]
        Random(f"asked:{self.layout.seed}:{self.size}:{self.repeat}").shuffle(rest)
        wanted = (pinned + rest) if others else [0]
        wanted = (wanted * count)[:count]
        start = self.repeat * count
        found = []
        for at, fact in enumerate(wanted):
            found.append(self.ask("ask", fact, self.residue(start + at)))
        return found

    @property
    def late(self) -> int:
        """The fact that stands well behind the first one, though not at the end."""
        return max(self.facts - 2, min(1, self.facts - 1))

    @cached_property
    def again(self) -> list[Ask]:
        """Some of them, word for word."""
        count = self.layout.amount.again[self.layout.sizes.index(self.size)]
        return [replace(ask, way="again") for ask in [self.warm, *self.questions][:count]]

    @cached_property
    def loaded(self) -> list[Ask]:
        """Some of them at a time."""
        count = min(self.layout.amount.loaded, max(1, self.layout.options.load))
        return [replace(ask, way="loaded", state="loaded") for ask in self.questions[:count]]

    @cached_property
    def crowd(self) -> list[Ask]:
        """Prompts of their own that are computed at the same time, as short as can be."""
        size = self.layout.short
        count = max(1, min(self.layout.options.load - MANY.loaded, MANY.loaded))
        index = self.layout.sizes.index(self.size)
        first = _FRESH * (1 + index) + self.repeat * count
        others = (CheckHaystack(self.layout, size, first + at, self.round) for at in range(count))
        return [other.ask("crowd", 0, 0, "loaded") for other in others]

    @cached_property
    def after(self) -> list[Ask]:
        """The prompts that were sent at a time once more, alone: what a wave left in the cache is
        read then. Those that are sent twice anyway are not sent thrice."""
        twice = {ask.prompt for ask in self.again}
        left = [ask for ask in self.loaded if ask.prompt not in twice]
        return [replace(ask, way="after", state="warm") for ask in left]

    @cached_property
    def crowd_after(self) -> list[Ask]:
        """The crowd's prompts once more, alone."""
        return [replace(ask, way="crowd-after", state="warm") for ask in self.crowd]

    @cached_property
    def edges(self) -> list[Ask]:
        """The last fact at consecutive places around the end of a block."""
        count = 2 if self.is_longest and not self.layout.options.few else 1
        places = places_of(self.spread.anchor, self.layout.options.head)
        order = list(places)
        found = []
        for number in range(self.repeat * count, (self.repeat + 1) * count):
            block = number // len(order)
            Random(f"edges:{self.layout.seed}:{self.size}:{block}").shuffle(order)
            place = order[number % len(order)]
            depth = round((place + 0.5) / self.spread.anchor, 8)
            less = self.layout.comb // 2
            found.append(self.ask("edges", self.facts - 1, less, place=place, depth=depth))
            order = list(places)
        return found

    @cached_property
    def stepped(self) -> list[Ask]:
        """The first prompt once more behind a first line of its own, reached in two steps: half of
        its haystack is computed before it."""
        salt = "stepped"
        # The facts of the other half stand in the first step, too: half of the length shares less.
        length = max(self.longest - self.spread.anchor // 2, self.layout.short)
        half = replace(self.cold, way="half", state="cold", length=length, salt=salt)
        return [half, replace(self.cold, way="stepped", state="warm", salt=salt)]

    @cached_property
    def short_ones(self) -> list[Ask]:
        """One of the shortest prompts, twice; a question with several right answers too."""
        first = self.ask("short", 0, 0, "cold")
        found = [first, replace(first, way="short-again", state="warm")]
        if any(probe.tosses for probe in self._probes) and self.tosses:
            found += self.toss
        return found

    @property
    def tosses(self) -> bool:
        """Whether a question with several right answers is asked: of a known model, whose answer to
        it is a toss."""
        return self.layout.options.holds > 0 and self.repeat < TOSSES

    @cached_property
    def toss(self) -> list[Ask]:
        """That question, twice."""
        once, again = TOSS
        first = self.ask(once, 0, -FIVE_MORE, "cold", salt="toss")
        return [first, replace(first, way=again, state="warm")]

    @cached_property
    def batches(self) -> list[AskBatch]:
        """All that is asked about it: the cold prompt first, then the others in a random order."""
        if self.is_short:
            wanted = any(probe.uses_shortest for probe in self._probes)
            return [AskBatch(tuple(self.short_ones))] if wanted else []
        found: dict[object, Ask] = {}
        for probe in self._probes:
            for ask in probe.asks(self):
                found.setdefault(ask.key, ask)
        if not found:
            return []
        first = [self.cold] if self.cold.key in found else []
        beside_first = self.is_crowded and bool(first)
        crowd = self.crowd if beside_first else [a for a in found.values() if a.way == "crowd"]
        together = [ask for ask in found.values() if ask.way == "loaded"]
        beside = [ask for ask in found.values() if ask.way.startswith(BESIDE)]
        behind_crowd = [ask for ask in found.values() if ask.way == "crowd-after"]
        waved = {ask.prompt for ask in together}
        behind = [
            ask
            for ask in found.values()
            if ask.way == "after" or (ask.way == "again" and ask.prompt in waved)
        ]
        alone = [
            ask
            for ask in found.values()
            if ask.state == "warm" and not ask.way.startswith(BESIDE) and not ask.salt
            if ask not in behind and ask not in behind_crowd
        ]
        random = Random(f"order:{self.layout.seed}:{self.size}:{self.repeat}")
        cut = random.randint(0, len(alone)) if together else len(alone)
        salted = [ask for ask in found.values() if ask.salt]
        first += [ask for ask in alone if ask.way in BEHIND_FIRST]
        alone = [ask for ask in alone if ask.way not in BEHIND_FIRST]
        random.shuffle(alone)
        alone = parted(alone, first[-1] if first else None)
        if not beside_first:
            together += crowd
            behind += behind_crowd
            behind_crowd = []
        random.shuffle(behind)
        with_first = crowd if beside_first else []
        if first and self.layout.computes_beside:
            with_first, beside = [*with_first, *beside], []
        if with_first:
            made = [AskBatch((first[0], *with_first), together=True)]
            second = (*first[1:], *behind_crowd, *alone[:cut])
            made += [AskBatch(second)] if second else []
        else:
            made = [AskBatch((*first, *alone[:cut]))] if first or cut else []
        made += [AskBatch(tuple(together), together=True)] if together else []
        made += [AskBatch((*behind, *alone[cut:]))] if behind or alone[cut:] else []
        made += [AskBatch(tuple(salted))] if salted else []
        made += [AskBatch(tuple(beside), beside=True)] if beside else []
        return made

    @property
    def _probes(self) -> Collection[Asks]:
        return self.wanted or self.layout.asking


def crowd_index(ask: Ask) -> int:
    """Return the number of the size whose haystack a prompt of a crowd stood beside."""
    return ask.repeat // _FRESH - 1


def parted(asks: Sequence[Ask], before: Ask | None) -> list[Ask]:
    """Asks in their order, except that no prompt follows itself, as far as others are left: on a
    server that holds one prompt a hit then ends where the haystack does."""
    left, found = list(asks), list[Ask]()
    while left:
        last = found[-1] if found else before
        other = (at for at, ask in enumerate(left) if last is None or ask.prompt != last.prompt)
        found.append(left.pop(next(other, 0)))
    return found


@lru_cache(maxsize=4096)
def shuffled(seed: str, count: int) -> tuple[int, ...]:
    """The numbers below count, in an order that the seed fixes."""
    order = list(range(count))
    Random(seed).shuffle(order)
    return tuple(order)


def places_of(anchor: int, head: int) -> range:
    """Sixteen consecutive haystack tokens around the end of a block of the prompt: the largest
    block that has one near enough to the haystack's end, so that little is computed behind it.

    >>> places_of(7_456, 20)[7:9], places_of(127_456, 20)[8] + 20
    (range(6123, 6125), 122880)
    >>> max(places_of(57, 20))
    48
    """
    last = anchor + head - PLACES
    ends = [
        last // block * block for block in _BLOCKS if last - last // block * block <= last * _NEAR
    ]
    first = max(0, (ends[0] if ends else last) - head - PLACES // 2)  # of a short prompt, none is
    first = max(0, min(first, anchor - PLACES))
    return range(first, first + PLACES)
