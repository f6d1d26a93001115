"""Where is it now? One to three facts about a small world, scattered among others, answer that
together.

After BABILong (Kuratov et al. 2024, arXiv 2406.10149), with a world and words of our own. What was
said last of somebody or something holds.

The world is small: who is where, who carries what, what is inside what. Each sentence says how one
is now; the state is what was said last, so no sentence contradicts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge

from needlemap.errors import SettingsError
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import (
    Draw,
    Item,
    Language,
    Needle,
    Percent,
    Reference,
    Scope,
    Task,
    ZeroOrMore,
    anywhere,
    behind,
    hidden,
)
from needlemap.tasks.values import fresh_person

_SLOT = -1.0  # no chance: what stands there is known
_THINGS = 3  # and as many boxes, where the question needs them


@dataclass(kw_only=True, eq=False)
class Facts(Task):
    """Sentences about where people are, what they carry and what is inside what; one place is asked
    for.

    support: how many facts the answer takes: 1 (where somebody is), 2 (something that somebody
    carries) or 3
    (something in a box that somebody carries). facts: how many others there are, but for the walks
    of others behind the first supporting fact, one to each other place. people, places: how many.
    span: over how much of the haystack, in percent, supporting facts and walks go on behind the
    first. fresh:
    how often the asked ones are drawn, as for `magic`; the others are drawn for each length at
    most.
    """

    name = "facts"
    scorer = "label"

    support: Literal[1, 2, 3] = 2
    facts: ZeroOrMore = 12
    people: Annotated[int, Ge(2)] = 5
    places: Annotated[int, Ge(2)] = 6
    span: Percent = 100.0
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        known = len(lexicon("world", self.language)["places"])
        if self.places > known:
            raise SettingsError(
                f"Option 'places' of facts must be 2 to {known}, got {self.places}."
            )
        self._size = {
            "people": self.people,
            "places": self.places,
            "things": _THINGS if self.support > 1 else 0,
            "boxes": _THINGS if self.support > 2 else 0,
        }

    def item(self, draw: Draw) -> Item:
        """The supporting facts, the first of them at the cell's depth, walks behind it, then
        the others."""
        beside, own = draw.beside("facts", self.fresh), draw.random("facts asked", self.fresh)
        told = cast(beside, self.language, self._size, draw.holds)
        start = [Move("go", who, beside.choice(told.places)) for who in told.people]
        prologue = opening(start, self.language)
        count = self.support + len(told.places) - 1
        slots = behind(beside, draw.cell.depth, count, self.span / 100)
        moments = [
            (moment, beside.random(), beside.random()) for moment in anywhere(beside, self.facts)
        ]
        chances = [(moment, which) for moment, which, _ in moments]
        tale = story(own, told, start, self.support, slots, chances)
        words = [sentence(own.random(), fact, self.language) for fact in tale.behind]
        needles = list(hidden(words, slots))
        for (moment, _, how), fact in zip(moments, tale.others, strict=True):
            needles.append(Needle(sentence(how, fact, self.language), moment, still=True))
        evidence = [
            text for text, fact in zip(words, tale.behind, strict=True) if fact in tale.chain
        ]
        return replace(
            self._question_item(told, tale.chain, tuple(needles), evidence), prologue=prologue
        )

    def _question_item(
        self, told: Cast, chain: list[Move], needles: tuple[Needle, ...], words: list[str]
    ) -> Item:
        """The question about the first of a chain of facts, whose last says the place."""
        known, what, place = lexicon("world", self.language), chain[0].subject, chain[-1].to
        role = "who" if chain[0].kind == "go" else "what"
        question, begun = (
            known[role].format_map({role: what}),
            known[f"{role}_begun"].format_map({role: what}),
        )
        decoys = tuple(other for other in known["places"] if other != place)
        reference = Reference(place, (place,), "\n".join(words), question, decoys)
        unique = (*told.people, *told.things, *told.boxes)
        return Item(needles, question, reference, answer_prefix=begun, unique=unique)


@dataclass(frozen=True, slots=True)
class Story:
    """A chain of facts that answers a question; what is said from its first fact on, the chain and
    walks; and the other facts. Both as the text has them."""

    chain: list[Move]
    behind: list[Move]
    others: list[Move]


def opening(start: Sequence[Move], language: Language) -> str:
    """Where people are when the text begins: before it, so that the first place named decides
    nothing."""
    first, other, end = lexicon("world", language)["start"]
    texts = [
        (other if n else first).format(who=one.subject, where=one.to) for n, one in enumerate(start)
    ]
    return f"{''.join(texts)}{end}\n\n"


def story(
    random: Random,
    told: Cast,
    start: Sequence[Move],
    support: int,
    slots: Sequence[float],
    moments: Sequence[tuple[float, float]],
) -> Story:
    """A chain of so many facts, in slots of which the first is its own, and what else is said.

    start: how things are before. slots: depths, ascending; the others are walks, one to each
    place but the chain's, so that from its first fact on, each place is named as often.
    moments: where the other facts stand, ascending, with a chance each that says which it is.
    Those before the chain do not depend on it.
    """
    possible, now, others, behind = told.possible(), state(start), list[Move](), list[Move]()
    early = sum(moment < slots[0] for moment, _ in moments)
    for _, chance in moments[:early]:
        tell(another(chance, possible, now), others, now)
    chain = supporting(random, told, [*start, *others], support)
    shown = in_slots(random, chain, len(slots))
    walkers = [who for who in told.people if who != chain[-1].subject]
    free = random.sample(
        [place for place in told.places if place != chain[-1].to], len(slots) - support
    )
    for _, chance in sorted(
        [*((slot, _SLOT) for slot in slots), *moments[early:]], key=itemgetter(0)
    ):
        if chance != _SLOT:
            settled = [fact.subject for fact in behind if fact in chain]
            tell(another(chance, possible, now, settled, state(chain)), others, now)
        elif len(behind) in shown:
            behind.append(shown[len(behind)])
        else:
            tell(walk(random, walkers, free.pop(), now), behind, now)
    return Story(chain, behind, others)


def in_slots(random: Random, chain: Sequence[Move], slots: int) -> dict[int, Move]:
    """In which of so many slots the facts of a chain stand: in any order, the first slot among
    them."""
    places = [0, *random.sample(range(1, slots), len(chain) - 1)]
    return dict(zip(places, random.sample(chain, len(chain)), strict=True))


def walk(random: Random, people: Sequence[str], place: str, now: Mapping[str, str]) -> Move:
    """One of some people goes to a place, who is not there already unless all of them are."""
    return Move(
        "go", random.choice([who for who in people if now.get(who) != place] or people), place
    )


def another(
    chance: float,
    possible: Sequence[Move],
    now: Mapping[str, str],
    settled: Sequence[str] = (),
    barred: Mapping[str, str] | None = None,
) -> Move:
    """A fact that changes something of how things are, but nothing settled, and nothing into
    what is barred.

    chance: in [0, 1), which of those that are left.
    """
    never = barred or {}
    left = [
        fact
        for fact in possible
        if now.get(fact.subject) != fact.to != never.get(fact.subject)
        and fact.subject not in settled
    ]
    return left[int(chance * len(left))]


def tell(fact: Move, told: list[Move], now: dict[str, str]) -> None:
    """One more fact is said, and holds from now on."""
    told.append(fact)
    now[fact.subject] = fact.to


def supporting(random: Random, told: Cast, said: Sequence[Move], support: int) -> list[Move]:
    """Facts that lead from something to a place, none of them said before where that can be.

    The first's subject is asked for; each other one is about what the one before leads to. The
    place is drawn before the others, so that one named before is as likely as any.
    """
    possible, place, before = told.possible(), random.choice(told.places), set(said)
    chains = [[fact] for fact in possible if fact.to == place]
    for _ in range(support - 1):
        chains = [
            [fact, *chain] for chain in chains for fact in possible if fact.to == chain[0].subject
        ]
    return random.choice([chain for chain in chains if not before & set(chain)] or chains)


Kind = Literal["go", "have", "put"]
_TRIES = 500  # draws of one thing


@dataclass(frozen=True, slots=True)
class Move:
    """Somebody is now in a place (go), a thing or box with somebody (have), a thing in a box
    (put)."""

    kind: Kind
    subject: str
    to: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Who and what the sentences are about."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ()

    def possible(self) -> list[Move]:
        """Every fact that could be said: things are in boxes where there are boxes, else with
        people."""
        found = [Move("go", who, where) for who in self.people for where in self.places]
        found += [
            Move("have", what, who) for what in self.boxes or self.things for who in self.people
        ]
        return found + [Move("put", what, box) for what in self.things for box in self.boxes]


def cast(
    random: Random, language: Language, size: Mapping[str, int], holds: Callable[[str], bool]
) -> Cast:
    """People, things and boxes that nothing speaks of yet. size: how many 'people', 'places',
    ..."""
    words, taken = lexicon("world", language), set[str]()
    people = [fresh_person(random, language, taken, holds).name for _ in range(size["people"])]
    places = random.sample(words["places"], size["places"])
    things = [_thing(random, language, "things", taken, holds) for _ in range(size["things"])]
    boxes = [_thing(random, language, "boxes", taken, holds) for _ in range(size["boxes"])]
    return Cast(tuple(people), tuple(places), tuple(things), tuple(boxes))


def state(facts: Iterable[Move]) -> dict[str, str]:
    """How things are after some facts: what was said last of each.

    >>> state([Move("go", "Ada", "hall"), Move("go", "Ada", "barn")])
    {'Ada': 'barn'}
    """
    return {fact.subject: fact.to for fact in facts}


def sentence(chance: float, fact: Move, language: Language) -> str:
    """A fact in words. chance: in [0, 1), in which.

    >>> sentence(0.6, Move("go", "Ada", "barn"), "english")
    'Ada is in the barn now.'
    """
    roles = {"go": ("who", "where"), "have": ("what", "who"), "put": ("what", "box")}[fact.kind]
    templates: list[str] = lexicon("world", language)[fact.kind]
    return templates[int(chance * len(templates))].format_map(
        dict(zip(roles, (fact.subject, fact.to), strict=True))
    )


def _thing(
    random: Random, language: Language, kind: str, taken: set[str], holds: Callable[[str], bool]
) -> str:
    """A coloured thing, the only one of its kind."""
    words: Mapping[str, Sequence[str]] = lexicon("world", language)
    for _ in range(_TRIES):
        colour, noun = random.choice(words["colours"]), random.choice(words[kind])
        name = f"{colour} {noun}" if language == "english" else f"{colour}{noun}"
        if noun not in taken and not holds(name):
            taken.add(noun)
            return name
    raise SettingsError(f"Names of {kind} are used up. Use shorter lengths, or fewer {kind}.")
