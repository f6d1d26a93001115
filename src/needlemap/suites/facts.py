"""Ask where somebody or something is: one to three facts, scattered among others, answer together.

After BABILong (Kuratov et al. 2024, arXiv 2406.10149), with a world and words of our own.

The world is small: who is where, who carries what, what is inside what. Each sentence tells how
something is from now on. What was said last of it holds, so no sentence contradicts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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

Kind = Literal["go", "have", "put"]
# Things, and as many boxes, if the question needs them.
_THINGS = 3
# Draws of one thing before its kind is given up as used up.
_TRIES = 500


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
        most_places = len(lexicon("world", self.language)["places"])
        if self.places > most_places:
            raise SettingsError(
                f"Option 'places' of facts must be 2 to {most_places}, got {self.places}."
            )
        self._sizes = {
            "people": self.people,
            "places": self.places,
            "things": _THINGS if self.support > 1 else 0,
            "boxes": _THINGS if self.support > 2 else 0,
        }

    def item(self, draw: Draw) -> Item:
        """Return an item whose first supporting fact is at the cell's depth.

        The other supporting facts and the walks stand after it, the other facts anywhere.
        """
        shared_random = draw.beside("facts", self.fresh)
        asked_random = draw.random("facts asked", self.fresh)
        cast = draw_cast(shared_random, self.language, sizes=self._sizes, holds=draw.holds)
        start = [Move("go", person, to=shared_random.choice(cast.places)) for person in cast.people]
        count = self.support + len(cast.places) - 1
        slots = behind(shared_random, draw.cell.depth, count=count, span=self.span / 100)

        depths = anywhere(shared_random, self.facts)
        fact_chances = []
        sentence_chances = []
        for _ in depths:
            fact_chances.append(shared_random.random())
            sentence_chances.append(shared_random.random())
        story = draw_story(
            asked_random,
            cast,
            start=start,
            support=self.support,
            slots=slots,
            moments=list(zip(depths, fact_chances, strict=True)),
        )

        texts = [
            sentence(asked_random.random(), fact, language=self.language)
            for fact in story.chain_and_walks
        ]
        needles = list(hidden(texts, slots))
        for depth, chance, fact in zip(depths, sentence_chances, story.others, strict=True):
            needles.append(
                Needle(sentence(chance, fact, language=self.language), depth, still=True)
            )
        evidence = [
            text
            for text, fact in zip(texts, story.chain_and_walks, strict=True)
            if fact in story.chain
        ]
        item = self._question_item(cast, story.chain, needles=tuple(needles), evidence=evidence)
        return replace(item, prologue=opening(start, self.language))

    def _question_item(
        self, cast: Cast, chain: list[Move], needles: tuple[Needle, ...], evidence: list[str]
    ) -> Item:
        """Return an item that asks for the end of a chain of facts, a place.

        evidence: the texts of the chain's facts.
        """
        vocabulary = lexicon("world", self.language)
        subject = chain[0].subject
        place = chain[-1].to
        role = "who" if chain[0].kind == "go" else "what"
        question = vocabulary[role].format_map({role: subject})
        reference = Reference(
            place,
            (place,),
            needle="\n".join(evidence),
            question=question,
            decoys=tuple(other for other in vocabulary["places"] if other != place),
        )
        return Item(
            needles,
            question,
            reference=reference,
            answer_prefix=vocabulary[f"{role}_begun"].format_map({role: subject}),
            unique=(*cast.people, *cast.things, *cast.boxes),
        )


@dataclass(frozen=True, slots=True)
class Move:
    """A fact: how something is from now on.

    Attributes:
        kind: 'go': somebody is in a place. 'have': a thing or box is with somebody. 'put': a thing
            is in a box.
        subject: Who or what changes.
        to: The place, person or box.
    """

    kind: Kind
    subject: str
    to: str


@dataclass(frozen=True, slots=True)
class Cast:
    """The names that the facts are about."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ()

    def possible(self) -> list[Move]:
        """Return every possible fact.

        Things are in boxes if there are boxes, otherwise with people.
        """
        moves = [Move("go", person, to=place) for person in self.people for place in self.places]
        moves += [
            Move("have", carried, to=person)
            for carried in self.boxes or self.things
            for person in self.people
        ]
        moves += [Move("put", thing, to=box) for thing in self.things for box in self.boxes]
        return moves


@dataclass(frozen=True, slots=True)
class Story:
    """The facts of a text, in the text's order.

    Attributes:
        chain: The facts that answer the question, from the question's subject to its place.
        chain_and_walks: What is said from the chain's first fact on: the chain and walks.
        others: The other facts, anywhere.
    """

    chain: list[Move]
    chain_and_walks: list[Move]
    others: list[Move]


def opening(start: Sequence[Move], language: Language) -> str:
    """Return a sentence about where people are before the text.

    It names a place for each of them, so that the first place named decides nothing.
    """
    first_template, next_template, end = lexicon("world", language)["start"]
    texts = []
    for number, move in enumerate(start):
        template = next_template if number else first_template
        texts.append(template.format(who=move.subject, where=move.to))
    return f"{''.join(texts)}{end}\n\n"


def draw_story(
    random: Random,
    cast: Cast,
    start: Sequence[Move],
    support: int,
    slots: Sequence[float],
    moments: Sequence[tuple[float, float]],
) -> Story:
    """Return a chain of facts, and what else is said.

    start: how things are before the text. support: the number of facts of the chain. slots: depths,
    ascending. The first slot belongs to the chain; those that it leaves free are walks, one to each
    place but the chain's, so that from the chain's first fact on, each place is named equally
    often. moments: the depths of the other facts, ascending, each with a chance that chooses the
    fact. Facts before the first slot do not depend on the chain.
    """
    possible = cast.possible()
    now = state(start)
    others: list[Move] = []
    early = sum(depth < slots[0] for depth, _ in moments)
    for _, chance in moments[:early]:
        _add_fact(another(chance, possible, now=now), others, now=now)

    chain = supporting(random, cast, before=[*start, *others], support=support)
    chain_by_slot = in_slots(random, chain, slots=len(slots))
    walkers = [person for person in cast.people if person != chain[-1].subject]
    other_places = [place for place in cast.places if place != chain[-1].to]
    free_places = random.sample(other_places, len(slots) - support)

    # Slots come first, so that one stands before a fact of the same depth.
    events: list[tuple[float, float | None]] = [(slot, None) for slot in slots]
    events += moments[early:]
    chain_and_walks: list[Move] = []
    for _, event_chance in sorted(events, key=itemgetter(0)):
        slot_number = len(chain_and_walks)
        if event_chance is not None:
            settled = [fact.subject for fact in chain_and_walks if fact in chain]
            fact = another(event_chance, possible, now=now, settled=settled, barred=state(chain))
            _add_fact(fact, others, now=now)
        elif slot_number in chain_by_slot:
            chain_and_walks.append(chain_by_slot[slot_number])
        else:
            fact = walk(random, walkers, place=free_places.pop(), now=now)
            _add_fact(fact, chain_and_walks, now=now)
    return Story(chain=chain, chain_and_walks=chain_and_walks, others=others)


def in_slots(random: Random, chain: Sequence[Move], slots: int) -> dict[int, Move]:
    """Return the facts of a chain by the number of their slot.

    The facts are in any order, and one of them is in the first slot.
    """
    numbers = [0, *random.sample(range(1, slots), len(chain) - 1)]
    return dict(zip(numbers, random.sample(chain, len(chain)), strict=True))


def walk(random: Random, people: Sequence[str], place: str, now: Mapping[str, str]) -> Move:
    """Return the fact that somebody goes to a place.

    If anybody is elsewhere now, it is one of those; if all people are there already, it is anybody.
    """
    absent_people = [person for person in people if now.get(person) != place]
    return Move("go", random.choice(absent_people or people), to=place)


def another(
    chance: float,
    possible: Sequence[Move],
    now: Mapping[str, str],
    settled: Sequence[str] = (),
    barred: Mapping[str, str] | None = None,
) -> Move:
    """Return a fact that changes how something is.

    chance: in [0, 1), chooses one of the facts that are left. now: how things are. settled:
    subjects that must not change. barred: by subject, how it must not be.
    """
    barred = barred or {}
    candidates = [
        fact
        for fact in possible
        if fact.to != now.get(fact.subject)
        and fact.to != barred.get(fact.subject)
        and fact.subject not in settled
    ]
    return candidates[int(chance * len(candidates))]


def _add_fact(fact: Move, facts: list[Move], now: dict[str, str]) -> None:
    """Append a fact to those that were said, and change how things are."""
    facts.append(fact)
    now[fact.subject] = fact.to


def supporting(random: Random, cast: Cast, before: Sequence[Move], support: int) -> list[Move]:
    """Return facts that lead from something to a place, none of them said before if possible.

    The question asks for the subject of the first fact; each other fact is about what the fact
    before it leads to. The place is drawn first, so that a place that was named before is as likely
    as any other.
    """
    possible = cast.possible()
    place = random.choice(cast.places)
    chains = [[fact] for fact in possible if fact.to == place]
    for _ in range(support - 1):
        chains = [
            [fact, *chain] for chain in chains for fact in possible if fact.to == chain[0].subject
        ]
    facts_before = set(before)
    new_chains = [chain for chain in chains if not facts_before & set(chain)]
    return random.choice(new_chains or chains)


def draw_cast(
    random: Random, language: Language, sizes: Mapping[str, int], holds: Callable[[str], bool]
) -> Cast:
    """Return people, things and boxes that no text names yet, and places.

    sizes: how many 'people', 'places', 'things' and 'boxes' there are.
    """
    vocabulary = lexicon("world", language)
    taken = set[str]()
    people = []
    for _ in range(sizes["people"]):
        people.append(fresh_person(random, language, taken=taken, holds=holds).name)
    places = random.sample(vocabulary["places"], sizes["places"])

    draw_thing = partial(_draw_thing, random, language, taken=taken, holds=holds)
    things = [draw_thing(kind="things") for _ in range(sizes["things"])]
    boxes = [draw_thing(kind="boxes") for _ in range(sizes["boxes"])]
    return Cast(
        people=tuple(people),
        places=tuple(places),
        things=tuple(things),
        boxes=tuple(boxes),
    )


def state(facts: Iterable[Move]) -> dict[str, str]:
    """Return how things are after some facts: for each subject, what was said last.

    >>> state([Move("go", "Ada", "hall"), Move("go", "Ada", "barn")])
    {'Ada': 'barn'}
    """
    return {fact.subject: fact.to for fact in facts}


def sentence(chance: float, fact: Move, language: Language) -> str:
    """Return a fact in words. chance: in [0, 1), chooses the words.

    >>> sentence(0.6, Move("go", "Ada", "barn"), "english")
    'Ada is in the barn now.'
    """
    templates: list[str] = lexicon("world", language)[fact.kind]
    template = templates[int(chance * len(templates))]
    if fact.kind == "go":
        return template.format(who=fact.subject, where=fact.to)
    if fact.kind == "have":
        return template.format(what=fact.subject, who=fact.to)
    return template.format(what=fact.subject, box=fact.to)


def _draw_thing(
    random: Random, language: Language, kind: str, taken: set[str], holds: Callable[[str], bool]
) -> str:
    """Return a coloured thing that is the only one of its noun."""
    vocabulary: Mapping[str, Sequence[str]] = lexicon("world", language)
    gap = " " if language == "english" else ""
    for _ in range(_TRIES):
        colour = random.choice(vocabulary["colours"])
        noun = random.choice(vocabulary[kind])
        name = f"{colour}{gap}{noun}"
        if noun not in taken and not holds(name):
            taken.add(noun)
            return name
    raise SettingsError(f"Names of {kind} are used up. Use shorter lengths, or fewer {kind}.")
