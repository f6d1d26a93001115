"""Ask for ancestors, who are traced from parent to parent, and descendants, from child to child.

Facts are scattered in prose, or lie among facts about other families, or are the whole haystack:
`haystack=none` is dense. The idea is NeedleBench's (Li et al. 2024, arXiv 2407.11963). People and
wording are our own. Everybody has at most one parent and one child in the text, so that answers are
unique. All lines of descent have the same length and stand anywhere, so neither the number nor the
place of a name shows whose ancestor it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

# The most facts of a line of descent.
_MOST = 512
# The facts of each other family's line, if the line that is asked for fits the length.
_OTHERS = 32
# The share of a length that the line's facts fill, if as many as fit are asked for.
_FILLED = 0.9
# About the tokens of question and template.
_FRAME = 150
# The least lines of a document of families.
_LINES = 64


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
                "need be traced. Give families=3, or ask=ancestor."
            )
        # None for as many as fit.
        self._fact_count = None if self.facts == "fit" else self.facts
        self._up = self.ask != "descendant"
        self._line_end = "" if self.haystack == "prose" else "\n"
        # With haystack=families the other families are the background.
        self._line_count = 1 if self.haystack == "families" else 1 + self.families

    def background(self, repeat: int, seed: int) -> Background | None:
        """Return lines of other families, or all facts but the first of each line.

        Return None for prose.
        """
        source = f"{seed}:{repeat}"
        if self.haystack == "families":
            fact_count = self._fact_count or _OTHERS
            return Background(FamilyLines(fact_count, self.language, source=source))
        if self.haystack == "none":
            descents = self._haystack_descents(source)
            facts = [fact for descent in descents for fact in descent.facts]
            facts.sort(key=lambda fact: fact.depth)
            return Background(Lines(tuple(fact.text for fact in facts)))
        return None

    def item(self, draw: Draw) -> Item:
        """Return the facts and the question.

        The fact about the person from whom the question starts is at the cell's depth, and those
        about the first people of other lines are behind it. All other facts stand anywhere, the
        same at all depths of a length.
        """
        descents = self._descents(draw)
        random = draw.random("kinship", self.fresh)
        random.shuffle(descents)
        taken = {person.name for descent in descents for person in descent.people}
        first_people = [
            fresh_person(random, self.language, taken, holds=draw.holds) for _ in descents
        ]
        first_facts = [
            self._first_fact(random, person, descent=descent)
            for person, descent in zip(first_people, descents, strict=True)
        ]
        needles = following(random, first_facts, depth=draw.cell.depth, span=1.0)
        people = [*first_people]
        # With haystack=none the other facts are the background.
        if self.haystack != "none":
            for descent in descents:
                needles += descent.facts
                people += descent.people

        question, answer = self._question_and_answer(random, [first_people[0], *descents[0].people])
        evidence = [first_facts[0], *(fact.text for fact in descents[0].facts)]
        reference = Reference(
            answer=answer,
            keywords=(answer,),
            needle="\n".join(text.strip() for text in evidence),
            question=question,
        )
        return Item(
            tuple(needles),
            question,
            reference=reference,
            answer_prefix=lexicon("kinship", self.language)["begun"].format(),
            unique=tuple(person.name for person in people),
        )

    def _descents(self, draw: Draw) -> list[Descent]:
        """Return the lines of descent of a length or repeat, without their first people."""
        if self.haystack == "none":
            return self._haystack_descents(f"{draw.seed}:{draw.repeat}")
        random = draw.beside("kinship beside", self.fresh)
        return self._draw_descents(random, self._fact_count_in(draw), holds=draw.holds)

    def _haystack_descents(self, source: str) -> list[Descent]:
        """Return the lines of descent that are a repeat's whole haystack.

        source: the seed and the repeat. The haystack is the same at all lengths of a repeat, so
        the number of facts does not depend on the length.
        """
        random = Random(f"kinship:{source}")
        fact_count = self._fact_count or _MOST
        return self._draw_descents(random, fact_count, holds=holds_nothing)

    def _draw_descents(
        self, random: Random, fact_count: int, *, holds: Callable[[str], bool]
    ) -> list[Descent]:
        """Return all lines of descent, of so many facts each. No two people have one name."""
        taken = set[str]()
        return [
            self._descent(random, fact_count, taken=taken, holds=holds)
            for _ in range(self._line_count)
        ]

    def _descent(
        self,
        random: Random,
        fact_count: int,
        *,
        taken: set[str],
        holds: Callable[[str], bool],
    ) -> Descent:
        """Return a line of so many facts, without its first person and that person's fact."""
        people = line(random, self.language, count=fact_count, taken=taken, holds=holds)
        texts = [self._text(random, link) for link in links(people, up=self._up)]
        return Descent(people, scattered(random, ordered(random, texts, order=self.order)))

    def _first_fact(self, random: Random, person: Person, *, descent: Descent) -> str:
        """Return the fact that leads from a line's first person to the others."""
        (link,) = links([person, descent.people[0]], up=self._up)
        return self._text(random, link)

    def _text(self, random: Random, link: Link) -> str:
        return f"{link.sentence(random, self.language)}{self._line_end}"

    def _fact_count_in(self, draw: Draw) -> int:
        """Return how many facts the line has: the number given, or as many as fit the length.

        Raises SettingsError if fewer fit than there are steps.
        """
        if self._fact_count is not None:
            return self._fact_count
        sample = sample_lines(self.language)
        share = _FILLED * (draw.room_tokens - _FRAME) / draw.tokens("".join(sample))
        fitting = max(2, min(_MOST, int(share * len(sample))))
        if self.steps is not None and self.steps > fitting:
            raise SettingsError(
                f"Length {draw.cell.length_tokens:,} has room for {fitting} facts, steps are "
                f"{self.steps}. Use longer --lengths, or fewer steps."
            )
        return fitting

    def _question_and_answer(self, random: Random, people: list[Person]) -> tuple[str, str]:
        """Return question and answer about a line. people: the first is named in the question."""
        all_steps = len(people) - 1
        if self.ask == "eldest":
            steps = all_steps
        elif self.steps is not None:
            steps = self.steps
        else:
            steps = random.randint(1, all_steps)

        words = lexicon("kinship", self.language)
        end = people[steps].name
        singular, plural = words["generations"]
        question = words[self.ask].format(
            start=people[0].name,
            end=end,
            steps=steps,
            generations=plural if steps > 1 else singular,
        )
        if self.ask == "distance":
            return question, str(steps)
        return question, end


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


@dataclass(frozen=True, slots=True)
class Link:
    """One fact: somebody's parent."""

    child: Person
    parent: Person

    def sentence(self, random: Random, language: Language) -> str:
        """Return the fact in words."""
        words = lexicon("kinship", language)
        template: str = random.choice(words["sentences"])
        return template.format(
            parent=self.parent.name,
            child=self.child.name,
            mother=_form(words["parent"], self.parent),
            daughter=_form(words["child"], self.child),
            own=_form(words["own"], self.parent),
        )


def _form(forms: Sequence[str], person: Person) -> str:
    """Return the form of a word for a person. forms: for a woman, then for a man."""
    if person.woman:
        return forms[0]
    return forms[1]


def line(
    random: Random, language: Language, count: int, taken: set[str], holds: Callable[[str], bool]
) -> list[Person]:
    """Return `count` new people, who descend from one another.

    taken: names that are not new; those of the people are added. Raises SettingsError if nobody is
    left.
    """
    return [fresh_person(random, language, taken, holds=holds) for _ in range(count)]


def links(people: list[Person], *, up: bool) -> list[Link]:
    """Return the facts about people, each of whom is the next one's child.

    up: False if each is the next one's parent.

    >>> ada, eve = Person("Ada", True), Person("Eve", True)
    >>> links([ada, eve], up=True) == links([eve, ada], up=False) == [Link(child=ada, parent=eve)]
    True
    """
    if up:
        return [Link(child=child, parent=parent) for child, parent in pairwise(people)]
    return [Link(child=child, parent=parent) for parent, child in pairwise(people)]


@dataclass(frozen=True, slots=True)
class Descent:
    """People who descend from one another, and the facts about them with their depths."""

    people: list[Person]
    facts: list[Needle]


@dataclass(frozen=True, slots=True)
class FamilyLines(Stream):
    """Endless lines about families of so many facts each. The lines of a few are shuffled."""

    PIECES = 1

    facts: int
    language: Language
    source: str
    name: str = "families"

    def pieces(self) -> Iterator[str]:
        """Yield the lines of a few families at a time."""
        random = Random(f"families:{self.source}")
        taken = set[str]()
        while True:
            sentences: list[str] = []
            while len(sentences) < _LINES:
                people = line(
                    random,
                    self.language,
                    count=self.facts + 1,
                    taken=taken,
                    holds=holds_nothing,
                )
                family_links = links(people, up=True)
                sentences += [link.sentence(random, self.language) for link in family_links]
            random.shuffle(sentences)
            yield "".join(f"{sentence}\n" for sentence in sentences)


@dataclass(frozen=True, slots=True)
class Lines(Source):
    """A finite haystack of lines, each with its line end."""

    lines: tuple[str, ...]
    name: str = "facts"

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Yield the only document, unless it is left out."""
        if first == 0:
            yield Document(self.name, "".join(self.lines))


@cache
def sample_lines(language: Language) -> tuple[str, ...]:
    """Return lines like those of any family, to measure their tokens."""
    random = Random(f"lineage:{language}")
    people = line(random, language, count=_LINES + 1, taken=set(), holds=holds_nothing)
    return tuple(f"{link.sentence(random, language)}\n" for link in links(people, up=True))
