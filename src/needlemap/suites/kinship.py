"""Ancestors to be traced from parent to parent, and descendants from child to child.

Facts are scattered in prose, lie among other families, or are all there is: `haystack=none` is
dense. After NeedleBench (Li et al. 2024, arXiv 2407.11963); people and wording are our own.
Everybody has one parent and one child in the text, so that answers are unique. All lines are as
long and stand anywhere: neither how often nor where a name is said tells whose ancestor it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.haystacks import Document, Source, Stream
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import (
    Background,
    Draw,
    Item,
    Language,
    Needle,
    Order,
    Reference,
    Scope,
    Task,
    ZeroOrMore,
    following,
    holds_nothing,
    ordered,
    scattered,
)
from needlemap.tasks.values import Person, fresh_person

_MOST = 512  # facts of a line
_OTHERS = 32  # facts of another family's line where the asked one's fit the length
_FILLED = 0.9  # of a length, by the line's facts where as many as fit are asked for
_FRAME = 150  # tokens that are question and template, about


@dataclass(kw_only=True, eq=False)
class Kinship(Task):
    """Lines of descent; somebody's ancestor, descendant or distance to another is asked for.

    ask: the 'eldest' ancestor, an 'ancestor' or 'descendant' so many steps away, or the 'distance'.
    facts: of a line, 2 to 512; 'fit': as many as the length holds, with haystack=families. steps:
    how many the answer takes; by default drawn for each trial, from one to all. haystack: 'prose'
    (what the settings name),
    'families' (lines about other families) or 'none' (facts alone, whatever the length). families:
    other ones, as long, in prose or with none. order: in which a line's facts stand, but for the
    first person's own. fresh: how often a line, and its first person, are drawn to be asked about,
    as for `magic`; other people are drawn for each length at most.
    """

    name = "kinship"
    scorer = "boxed"

    ask: Literal["eldest", "ancestor", "descendant", "distance"] = "eldest"
    facts: int | Literal["fit"] = 4
    steps: int | None = None
    haystack: Literal["prose", "families", "none"] = "prose"
    families: ZeroOrMore = 3
    order: Order = "random"
    fresh: Scope = "trial"
    language: Language = "english"

    def __post_init__(self) -> None:
        _check(self.ask, _MOST if self.facts == "fit" else self.facts, self.steps)
        if self.facts == "fit" and self.haystack != "families":
            raise SettingsError(
                "facts=fit fills a length with facts. Add --task-options haystack=families"
            )
        if self.ask == "eldest" and self.haystack != "families" and not self.families:
            raise SettingsError(
                "With families=0 the eldest is the only other name that is said once, so no step "
                "need be "
                "traced. Give families=3, or ask=ancestor."
            )
        self._facts = None if self.facts == "fit" else self.facts
        self._up, self._end = self.ask != "descendant", "" if self.haystack == "prose" else "\n"
        self._lines = 1 + (self.families if self.haystack != "families" else 0)

    def background(self, repeat: int, seed: int) -> Background | None:
        """Lines of other families, or all facts but the first of each line; None for prose."""
        source = f"{seed}:{repeat}"
        if self.haystack == "families":
            return Background(FamilyLines(self._facts or _OTHERS, self.language, source))
        if self.haystack == "none":
            facts = [fact for each in self._dense(source) for fact in each.facts]
            facts.sort(key=lambda fact: fact.depth)
            return Background(Lines(tuple(fact.text for fact in facts)))
        return None

    def item(self, draw: Draw) -> Item:
        """The fact about whom the question starts from at the cell's depth, those of others
        behind it.

        What the lines go on with stands anywhere, the same at all depths of a length.
        """
        lines, own = self._shared(draw), draw.random("kinship", self.fresh)
        own.shuffle(lines)
        taken = {one.name for each in lines for one in each.people}
        first = [fresh_person(own, self.language, taken, draw.holds) for _ in lines]
        begun = [self._begun(own, *both) for both in zip(first, lines, strict=True)]
        needles = following(own, begun, draw.cell.depth, 1.0)
        people = first
        if self.haystack != "none":
            needles += [fact for each in lines for fact in each.facts]
            people = first + [one for each in lines for one in each.people]
        question, answer = self._question_and_answer(own, [first[0], *lines[0].people])
        evidence = [begun[0], *(fact.text for fact in lines[0].facts)]
        return Item(
            tuple(needles),
            question,
            Reference(answer, (answer,), "\n".join(text.strip() for text in evidence), question),
            answer_prefix=lexicon("kinship", self.language)["begun"].format(),
            unique=tuple(one.name for one in people),
        )

    def _shared(self, draw: Draw) -> list[Descent]:
        """The lines of a length or repeat, without their first people."""
        if self.haystack == "none":
            return self._dense(f"{draw.seed}:{draw.repeat}")
        beside, taken, size = (
            draw.beside("kinship beside", self.fresh),
            set[str](),
            self._size(draw),
        )
        return [self._make_line(beside, size, taken, draw.holds) for _ in range(self._lines)]

    def _dense(self, source: str) -> list[Descent]:
        """The lines of a repeat that are its haystack."""
        random, taken = Random(f"kinship:{source}"), set[str]()
        return [
            self._make_line(random, self._facts or _MOST, taken, holds_nothing)
            for _ in range(self._lines)
        ]

    def _make_line(
        self, random: Random, facts: int, taken: set[str], holds: Callable[[str], bool]
    ) -> Descent:
        """A line of so many facts without its first person, and so without its first fact."""
        people = line(random, self.language, facts, taken, holds)
        texts = [
            f"{link.sentence(random, self.language)}{self._end}"
            for link in links(people, up=self._up)
        ]
        return Descent(people, scattered(random, ordered(random, texts, self.order)))

    def _begun(self, random: Random, first: Person, rest: Descent) -> str:
        """The fact that leads from a line's first person to the others."""
        (link,) = links([first, rest.people[0]], up=self._up)
        return f"{link.sentence(random, self.language)}{self._end}"

    def _size(self, draw: Draw) -> int:
        """How many facts the line has: as given, or as fill most of the length, the rest being
        other ones."""
        if self._facts is not None:
            return self._facts
        sample = sample_lines(self.language)
        share = _FILLED * (draw.room_tokens - _FRAME) / draw.tokens("".join(sample))
        fitting = max(2, min(_MOST, int(share * len(sample))))
        if self.steps is not None and self.steps > fitting:
            raise SettingsError(
                f"Length {draw.cell.length_tokens:,} has room for {fitting} facts, steps are "
                f"{self.steps}. "
                f"Use longer --lengths, or fewer steps."
            )
        return fitting

    def _question_and_answer(self, random: Random, people: list[Person]) -> tuple[str, str]:
        """Question and answer about a line that starts from whom the question names."""
        most = len(people) - 1
        steps = most if self.ask == "eldest" else self.steps or random.randint(1, most)
        words, end = lexicon("kinship", self.language), people[steps].name
        generations = words["generations"][steps > 1]
        question = words[self.ask].format(
            start=people[0].name, end=end, steps=steps, generations=generations
        )
        return question, str(steps) if self.ask == "distance" else end


def _check(ask: str, facts: int, steps: int | None) -> None:
    if not 2 <= facts <= _MOST:
        raise SettingsError(f"Option 'facts' of kinship must be 2 to {_MOST}, or fit; got {facts}.")
    if steps is not None and ask not in ("ancestor", "descendant"):
        raise SettingsError(
            f"Option 'steps' is for ask=ancestor and ask=descendant, not for ask={ask}."
        )
    if steps is not None and not 1 <= steps <= facts:
        raise SettingsError(
            f"Option 'steps' must be 1 to {facts}, as many as there are facts; got {steps}."
        )


_LINES = 64  # of a document of families, at least


@dataclass(frozen=True, slots=True)
class Link:
    """One fact: somebody's parent."""

    child: Person
    parent: Person

    def sentence(self, random: Random, language: Language) -> str:
        """In words."""
        words = lexicon("kinship", language)
        template: str = random.choice(words["sentences"])
        return template.format(
            parent=self.parent.name,
            child=self.child.name,
            mother=words["parent"][not self.parent.woman],
            daughter=words["child"][not self.child.woman],
            own=words["own"][not self.parent.woman],
        )


def line(
    random: Random, language: Language, count: int, taken: set[str], holds: Callable[[str], bool]
) -> list[Person]:
    """So many people, new ones, who descend from one another."""
    return [fresh_person(random, language, taken, holds) for _ in range(count)]


def links(people: list[Person], *, up: bool) -> list[Link]:
    """The facts about people who are each the next one's child, or if not `up` parent.

    >>> ada, eve = Person("Ada", True), Person("Eve", True)
    >>> links([ada, eve], up=True) == links([eve, ada], up=False) == [Link(child=ada, parent=eve)]
    True
    """
    return [Link(one, other) if up else Link(other, one) for one, other in pairwise(people)]


@dataclass(frozen=True, slots=True)
class Descent:
    """People who descend from one another, and the facts that say so, where they stand."""

    people: list[Person]
    facts: list[Needle]


@dataclass(frozen=True, slots=True)
class FamilyLines(Stream):
    """Lines about families without end, of so many facts each, those of a few shuffled together."""

    PIECES = 1

    facts: int
    language: Language
    source: str
    name: str = "families"

    def pieces(self) -> Iterator[str]:
        """The lines of some families at a time."""
        random, taken = Random(f"families:{self.source}"), set[str]()
        while True:
            found: list[str] = []
            while len(found) < _LINES:
                people = line(random, self.language, self.facts + 1, taken, holds_nothing)
                found += [link.sentence(random, self.language) for link in links(people, up=True)]
            random.shuffle(found)
            yield "".join(f"{text}\n" for text in found)


@dataclass(frozen=True, slots=True)
class Lines(Source):
    """Some lines, each with its end, and nothing else: a haystack that ends."""

    lines: tuple[str, ...]
    name: str = "facts"

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Yield the only document, unless it is left out."""
        if first == 0:
            yield Document(self.name, "".join(self.lines))


@cache
def sample_lines(language: Language) -> tuple[str, ...]:
    """Some lines as any family has them, to be measured."""
    random = Random(f"lineage:{language}")
    people = line(random, language, _LINES + 1, set(), holds_nothing)
    return tuple(f"{link.sentence(random, language)}\n" for link in links(people, up=True))
