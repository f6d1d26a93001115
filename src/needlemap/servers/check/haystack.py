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
from needlemap.servers.check.ask import BESIDE, TOSS, Answers, Ask, State, prefill_of
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


@dataclass(frozen=True, slots=True)
class Options:
    """What a check is asked to do.

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
    """How much a check asks.

    Attributes:
        haystacks: Haystacks of each size in the first round.
        asked: Questions about each haystack of a size.
        again: Of them, those that are sent a second time.
        loaded: Of them, those that are sent among others.
        shorts: Prompts that are as short as can be.
        more: Further haystacks of each size, if a row is undecided.
    """

    haystacks: tuple[int, ...]
    asked: tuple[int, ...]
    again: tuple[int, ...]
    loaded: int
    shorts: int
    more: tuple[int, ...] = (24, 16, 18)


MANY = Amount(
    haystacks=(48, 48, 24),
    asked=(4, 4, 8),
    again=(2, 2, 4),
    loaded=4,
    shorts=48,
)
FEW = Amount(
    haystacks=(24, 24, 24),
    asked=(4, 4, 4),
    again=(1, 1, 1),
    loaded=2,
    shorts=24,
)
# 52 prompts, of 240,000 tokens even if nothing is cached.
QUICK = Amount(
    haystacks=(4, 4),
    asked=(4, 4),
    again=(1, 1),
    loaded=2,
    shorts=2,
    more=(0, 0),
)
# Tokens of the longest prompts of a quick check.
QUICK_LENGTH = 8_000


@dataclass(frozen=True, slots=True)
class AskBatch:
    """What is sent next, in this order.

    together: whether all of it is sent at a time. beside: whether it goes to the reference.
    """

    asks: tuple[Ask, ...]
    together: bool = False
    beside: bool = False


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
    """What a haystack knows of a probe.

    Attributes:
        uses_shortest: Whether the shortest prompts are its yardstick.
        crowds: Whether it wants every second first prompt computed next to others.
        tosses: Whether it asks for what has several right answers.
    """

    uses_shortest: ClassVar[bool]
    crowds: ClassVar[bool]
    tosses: ClassVar[bool]

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return what it asks about one haystack."""


class Geometry:
    """The lengths and depths of a check, and the haystacks of its first round.

    probes: those that ask.
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
    def computes_beside(self) -> bool:
        """Return True if this process computes the reference while a server computes the same
        prompt."""
        return bool(self.options.moves) and not self.options.serial

    @property
    def comb(self) -> int:
        """Return how many consecutive lengths there are."""
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
        """Return the haystack tokens that depths at a size are shares of.

        They are those of the shortest prompt of the size, so that facts stand at the same places
        in all.
        """
        if size == self.short:
            return max(1, size - self.options.around)
        return size - self.comb - self.options.around - 8

    def drawn(self, size: int) -> int:
        """Return the tokens by which a third of a size's haystacks are shorter, at most.

        They fill what lies between it and the size before.
        """
        if size == self.short or self.options.quick:
            return 0
        index = self.sizes.index(size)
        shortest = self.anchor(self.sizes[index - 1]) if index else 2 * self.comb
        return self.anchor(size) - shortest

    def spread(self, size: int, repeat: int) -> Spread:
        """Return where the facts of a haystack stand."""
        return spread_of(
            f"{self.seed}:{size}",
            repeat,
            anchor=self.anchor(size),
            depths=self.depths_at(size),
            drawn=self.drawn(size),
        )

    def count(self, size: int) -> int:
        """Return the number of haystacks of a size in the first round."""
        return self.amount.haystacks[self.sizes.index(size)]

    @cached_property
    def first(self) -> list[CheckHaystack]:
        """Return the haystacks of the first round, in their order."""
        shorts = self.amount.shorts
        haystacks = [CheckHaystack(self, self.short, number) for number in _part(shorts, 0)]
        for part in range(ROUNDS):
            haystacks += [
                CheckHaystack(self, self.short, number) for number in _part(shorts, part + 1)
            ]
            for size in self.sizes:
                numbers = self.turns[size]
                haystacks += [
                    CheckHaystack(self, size, numbers[index])
                    for index in _part(self.count(size), part)
                ]
        return haystacks

    def finds_little(self, answers: Answers) -> tuple[int, int] | None:
        """Return how many of how many facts a model found, if that is less than half of the
        shortest prompts'; None if it finds more, or is known to.

        Whatever such a model is asked, only equal ways of asking tell of its server. The first
        answers decide: a server that dies later is no weak model. Without log-probabilities equal
        ways are judged if that probe is asked for by name.
        """
        if self.options.holds or self.options.quick or WAYS not in self.probes:
            return None
        replies = answers.of(self.short, "short", "short-again")
        if len(replies) < LEAST_ASKED:
            replies = answers.every()
        first = replies[:LEAST_ASKED]
        right = sum(reply.right for reply in first)
        is_short = first and first[-1].ask.size == self.short
        if len(first) < LEAST_ASKED or 2 * right >= len(first) or (right and not is_short):
            return None
        if WAYS not in self.options.probes and not any(reply.steps for reply in first):
            return None
        return sum(reply.right for reply in replies), len(replies)

    @cached_property
    def drawn_lengths(self) -> Mapping[int, frozenset[int]]:
        """Return the lengths of each size's prompts that lie between it and the size before."""
        return {
            size: frozenset(self._drawn_lengths(size, self.count(size) + more))
            for size, more in zip(self.sizes, self.amount.more, strict=True)
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
    def asking(self) -> Collection[Asks]:
        """Return the probes that ask in the first round; of a quick check the first alone."""
        probes = tuple(self.probes.values())
        return probes[:1] if self.options.quick else probes

    @property
    def crowds(self) -> bool:
        """Return True if every second first prompt is computed next to others.

        A probe must ask for it, and the model must answer several prompts at a time.
        """
        return not self.options.serial and any(probe.crowds for probe in self.probes.values())

    @cached_property
    def turns(self) -> Mapping[int, Sequence[int]]:
        """Return, by size, the numbers of its haystacks in the order in which they are asked about.

        If a check of few is stopped, 15 of 24 are enough for each row.
        """
        counts = {size: self.count(size) for size in self.sizes}
        if not self.crowds:
            return {size: range(count) for size, count in counts.items()}
        return {size: turns_of(count) for size, count in counts.items()}

    def haystack(self, ask: Ask) -> CheckHaystack:
        """Return the documents that an ask is about."""
        return CheckHaystack(self, ask.size, ask.repeat, ask.round)


def turns_of(count: int) -> list[int]:
    """Return the numbers of a size's haystacks in turns.

    Three whose first prompt is computed next to others are followed by one whose first prompt is
    computed alone, as long as there are both.

    >>> turns_of(12)
    [1, 3, 5, 0, 7, 9, 11, 2, 4, 6, 8, 10]
    """
    crowded, alone = list(range(1, count, 2)), list(range(0, count, 2))
    numbers = []
    for index in range(count):
        kind = alone if index % 4 == 3 or not crowded else crowded
        numbers.append(kind.pop(0))
    return numbers


def _part(count: int, part: int) -> range:
    """Return the numbers of one of ROUNDS equal parts."""
    return range(count * part // ROUNDS, min(count, count * (part + 1) // ROUNDS))


@dataclass(frozen=True)
class CheckHaystack:
    """The documents of one number at one size, and what may be asked about them.

    Attributes:
        layout: The lengths and depths of the check.
        size: The size in tokens.
        repeat: The number of the documents.
        round: 1 in the first round, 2 if a row was undecided.
        wanted: The probes that ask; () for all of the check's.
        lost: Whether its size is lost, so that it is read in two steps.
    """

    layout: Geometry
    size: int
    repeat: int
    round: int = 1
    wanted: tuple[Asks, ...] = ()
    lost: bool = False

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
        less: int = 0,
        *,
        state: State = "warm",
        place: int | None = None,
        salt: str = "",
        depth: float | None = None,
    ) -> Ask:
        """Return a prompt of this haystack. less: tokens that it lacks to its longest prompt."""
        return Ask(
            way,
            self.size,
            length=self.longest - less,
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
        """Return where its facts stand."""
        return self.layout.spread(self.size, self.repeat)

    @property
    def longest(self) -> int:
        """Return the tokens of its longest prompt: its size, or less if its length is drawn."""
        return self.size - self.layout.anchor(self.size) + self.spread.anchor

    def depth_of(self, fact: int) -> float:
        """Return where a fact stands."""
        if self.is_short:
            return 0.5
        if self.facts == 1:
            return SINGLE[self.repeat % len(SINGLE)]
        return self.spread.depths[fact]

    def residue(self, number: int) -> int:
        """Return one of the consecutive lengths: all of them come before one comes again."""
        comb = self.layout.comb
        turn, index = divmod(number, comb)
        return shuffled(f"comb:{self.layout.seed}:{self.size}:{turn}", comb)[index]

    @property
    def is_crowded(self) -> bool:
        """Return True if its first prompt is computed next to others.

        Every second one's is, if a probe wants that.
        """
        return self.repeat % 2 == 1 and self.layout.crowds

    @cached_property
    def cold(self) -> Ask:
        """Return the first prompt of all, of which no cache holds anything.

        It asks for the last fact, or for another one, alone or among others.
        """
        if self.repeat % 2 == 0:
            return self.ask("cold", self.facts - 1, BEHIND, state="cold")
        fact = self.repeat // 2 % max(1, self.facts - 1)
        less = self.residue(self.repeat)
        if self.is_crowded:
            return self.ask("crowded", fact, less, state="loaded")
        return self.ask("cold", fact, less, state="cold")

    @property
    def is_beside(self) -> bool:
        """Return True if a reference is sent its first prompt.

        If little is asked, that is so for half of the longest, those that are asked first: three
        quarters of those that are computed next to others, and one third of the others.
        """
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
    def tail(self) -> Ask | None:
        """Return the same question after less haystack; None if the first prompt asks for another
        fact.

        What the cache holds of the prompt then ends just after the last fact. It is the shorter
        prompt, so that what a model no longer finds at its end is lost from neither.
        """
        if self.repeat % 2 or self.facts == 1:
            return None
        # Shorter by the comb, so that both lengths have the same residues.
        length = self.cold.length - self.layout.comb
        return replace(self.cold, way="tail", length=length, state="warm")

    @cached_property
    def within(self) -> Ask | None:
        """Return the same question with a number that ends otherwise, so that what a cache holds
        ends within the number.

        None if the first prompt asks for another fact, or for no number.
        """
        if self.tail is None or not self.layout.options.twins:
            return None
        return replace(self.cold, way="within", state="warm", twin=True)

    @cached_property
    def warm(self) -> Ask:
        """Return the first prompt once more."""
        return replace(self.cold, way="warm", state="warm")

    @cached_property
    def questions(self) -> list[Ask]:
        """Return other questions about it, each of another length.

        They ask for the first fact, for one far after it, and for others.
        """
        count = self._count(self.layout.amount.asked)
        others = [fact for fact in range(self.facts) if fact != self.cold.fact]
        pinned = [fact for fact in (0, self.late) if fact in others]
        rest = [fact for fact in others if fact not in pinned]
        Random(f"asked:{self.layout.seed}:{self.size}:{self.repeat}").shuffle(rest)
        facts = pinned + rest if others else [0]
        facts = (facts * count)[:count]
        first = self.repeat * count
        return [
            self.ask("ask", fact, self.residue(first + index)) for index, fact in enumerate(facts)
        ]

    def _count(self, amounts: Sequence[int]) -> int:
        """Return the amount for its size."""
        return amounts[self.layout.sizes.index(self.size)]

    @property
    def late(self) -> int:
        """Return the fact that stands well after the first one, though not at the end."""
        return max(self.facts - 2, min(1, self.facts - 1))

    @cached_property
    def again(self) -> list[Ask]:
        """Return some of the prompts, word for word."""
        count = self._count(self.layout.amount.again)
        return [replace(ask, way="again") for ask in [self.warm, *self.questions][:count]]

    @cached_property
    def loaded(self) -> list[Ask]:
        """Return some of the questions, sent at a time."""
        count = min(self.layout.amount.loaded, max(1, self.layout.options.load))
        return [replace(ask, way="loaded", state="loaded") for ask in self.questions[:count]]

    @cached_property
    def crowd(self) -> list[Ask]:
        """Return prompts of their own that are computed at the same time, as short as can be."""
        size = self.layout.short
        count = max(1, min(self.layout.options.load - MANY.loaded, MANY.loaded))
        index = self.layout.sizes.index(self.size)
        first = _FRESH * (1 + index) + self.repeat * count
        others = (
            CheckHaystack(self.layout, size, number, self.round)
            for number in range(first, first + count)
        )
        return [other.ask("crowd", 0, state="loaded") for other in others]

    @cached_property
    def after(self) -> list[Ask]:
        """Return the prompts that were sent at a time once more, alone.

        What a wave left in the cache is read then. Those that are sent twice anyway are not sent
        three times.
        """
        twice = {ask.prompt for ask in self.again}
        return [
            replace(ask, way="after", state="warm")
            for ask in self.loaded
            if ask.prompt not in twice
        ]

    @cached_property
    def crowd_after(self) -> list[Ask]:
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
    def stepped(self) -> list[Ask]:
        """Return the first prompt once more after a first line of its own, reached in two steps.

        Half of its haystack is computed before it.
        """
        salt = "stepped"
        # The facts of the other half stand in the first step, too: half of the length shares less.
        length = max(self.longest - self.spread.anchor // 2, self.layout.short)
        half = replace(self.cold, way="half", state="cold", length=length, salt=salt)
        return [half, replace(self.cold, way="stepped", state="warm", salt=salt)]

    @cached_property
    def later(self) -> Ask:
        """Return the first prompt once more, when others have passed through the cache."""
        return replace(self.cold, way=LATER, state="cold")

    @cached_property
    def later_ask(self) -> Ask:
        """Return one of the questions about it, in the same way."""
        return replace(self.questions[0], way=LATER_ASK, state="cold")

    @cached_property
    def short_ones(self) -> list[Ask]:
        """Return one of the shortest prompts, twice; a question with several right answers too."""
        first = self.ask("short", 0, state="cold")
        asks = [first, replace(first, way="short-again", state="warm")]
        if self.tosses and any(probe.tosses for probe in self._probes):
            asks += self.toss
        return asks

    @property
    def tosses(self) -> bool:
        """Return True if a question with several right answers is asked.

        Only a known model is asked it, whose answer is a toss.
        """
        return self.layout.options.holds > 0 and self.repeat < TOSSES

    @cached_property
    def toss(self) -> list[Ask]:
        """Return the question with several right answers, twice."""
        once, again = TOSS
        first = self.ask(once, 0, -FIVE_MORE, state="cold", salt="toss")
        return [first, replace(first, way=again, state="warm")]

    @cached_property
    def batches(self) -> list[AskBatch]:
        """Return all that is asked about it: the cold prompt first, then the others in a random
        order."""
        if self.is_short:
            if any(probe.uses_shortest for probe in self._probes):
                return [AskBatch(tuple(self.short_ones))]
            return []
        asks: dict[object, Ask] = {}
        for probe in self._probes:
            for ask in probe.asks(self):
                asks.setdefault(ask.key, ask)
        if not asks:
            return []
        return _in_batches(self, list(asks.values()))

    @property
    def _probes(self) -> Collection[Asks]:
        return self.wanted or self.layout.asking


def _in_batches(haystack: CheckHaystack, asks: Sequence[Ask]) -> list[AskBatch]:
    """Return what is asked about a haystack as batches.

    First comes the cold prompt, with the crowd and the reference if these are computed at the same
    time. Then come prompts one by one, a wave at a time, what is read after it and the rest; last
    prompts after first lines of their own, and the reference.
    """
    layout = haystack.layout
    has_first = any(ask.key == haystack.cold.key for ask in asks)
    first = [haystack.cold] if has_first else []
    is_crowded = haystack.is_crowded and bool(first)
    crowd = haystack.crowd if is_crowded else [ask for ask in asks if ask.way == "crowd"]
    crowd_after = [ask for ask in asks if ask.way == "crowd-after"]
    reference = [ask for ask in asks if ask.way.startswith(BESIDE)]
    salted = [ask for ask in asks if ask.salt]
    wave = [ask for ask in asks if ask.way == "loaded"]
    wave_prompts = {ask.prompt for ask in wave}
    after_wave = [
        ask
        for ask in asks
        if ask.way == "after" or (ask.way == "again" and ask.prompt in wave_prompts)
    ]
    placed = {ask.key for ask in (*after_wave, *crowd_after, *reference, *salted)}
    alone = [ask for ask in asks if ask.state == "warm" and ask.key not in placed]

    random = Random(f"order:{layout.seed}:{haystack.size}:{haystack.repeat}")
    cut = random.randint(0, len(alone)) if wave else len(alone)
    first += [ask for ask in alone if ask.way in BEHIND_FIRST]
    alone = [ask for ask in alone if ask.way not in BEHIND_FIRST]
    random.shuffle(alone)
    alone = parted(alone, first[-1] if first else None)
    if not is_crowded:
        wave += crowd
        after_wave += crowd_after
        crowd_after = []
    random.shuffle(after_wave)

    with_first = list(crowd) if is_crowded else []
    if first and layout.computes_beside:
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
        AskBatch(tuple(salted)),
        AskBatch(tuple(reference), beside=True),
    ]
    return [batch for batch in batches if batch.asks]


def later_batches(layout: Geometry) -> Iterator[AskBatch]:
    """Yield what is sent when all else was: first prompts, and then questions.

    Those that were first sent among others are alone now; of the others a few are sent for the
    noise. The longest size is left out, because each prompt is computed whole.
    """
    haystacks = list[CheckHaystack]()
    for size in layout.sizes[:-1]:
        of_size = [CheckHaystack(layout, size, number) for number in range(layout.count(size))]
        crowded = [haystack for haystack in of_size if haystack.is_crowded]
        others = [haystack for haystack in of_size if not haystack.is_crowded]
        if size == layout.sizes[0]:
            haystacks += crowded + others[: max(COLD_REPEATS, LATE - len(crowded))]
        else:
            haystacks += crowded[:FEWER_LATE] + others[:FEWER_LATE]
    for haystack in haystacks:
        yield AskBatch((haystack.later,))
    for haystack in haystacks:
        if haystack.size == layout.sizes[0]:
            yield AskBatch((haystack.later_ask,))


def late_haystacks(layout: Geometry) -> list[CheckHaystack]:
    """Return the haystacks of the smallest size whose answers are sent as prompts."""
    size = layout.sizes[0]
    count = min(LATE, layout.count(size))
    return [CheckHaystack(layout, size, number) for number in range(count)]


def prefill_batches(layout: Geometry, answers: Answers) -> Iterator[AskBatch]:
    """Yield answers to first prompts as prompts, up to some of their tokens.

    It ends once a server has shown that it cannot score them.
    """
    for haystack in late_haystacks(layout):
        first = haystack.later if haystack.is_crowded else haystack.cold
        for ask in prefills_of(answers, first):
            yield AskBatch((ask,))
        if answers.prefills and not any(reply.measured for reply in answers.prefills.values()):
            return


def prefills_of(answers: Answers, ask: Ask) -> list[Ask]:
    """Return the answer to a prompt as prompts.

    Tokens without a text at its end, such as the end of the answer, are left out.
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
    """Return the number of the size whose haystack a prompt of a crowd stood next to."""
    return ask.repeat // _FRESH - 1


def parted(asks: Sequence[Ask], before: Ask | None) -> list[Ask]:
    """Return asks in their order, except that no prompt follows itself as long as others are left.

    On a server that holds one prompt a hit then ends where the haystack does.
    """
    remaining = list(asks)
    ordered = list[Ask]()
    last = before
    while remaining:
        others = (
            index
            for index, ask in enumerate(remaining)
            if last is None or ask.prompt != last.prompt
        )
        last = remaining.pop(next(others, 0))
        ordered.append(last)
    return ordered


@lru_cache(maxsize=4096)
def shuffled(seed: str, count: int) -> tuple[int, ...]:
    """Return the numbers below count, in an order that the seed fixes."""
    order = list(range(count))
    Random(seed).shuffle(order)
    return tuple(order)


def places_of(anchor: int, head: int) -> range:
    """Return sixteen consecutive haystack tokens around the end of a block of the prompt.

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
