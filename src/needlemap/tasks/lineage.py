"""Lines of descent: everybody has one parent and one child in them, so that there is one way up and down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from random import Random
from typing import Any

import yaml

from needlemap.haystacks.base import Document
from needlemap.prompts.placement import Needle
from needlemap.tasks.base import holds_nothing
from needlemap.tasks.people import Person, fresh_person

_LINES = 64  # of a document of families, at least


@dataclass(frozen=True, slots=True)
class Link:
    """One fact: somebody's parent."""

    child: Person
    parent: Person

    def said(self, random: Random, language: str) -> str:
        """In words."""
        words = kinship(language)
        template: str = random.choice(words["sentences"])
        return template.format(
            parent=self.parent.name,
            child=self.child.name,
            mother=words["parent"][not self.parent.woman],
            daughter=words["child"][not self.child.woman],
            own=words["own"][not self.parent.woman],
        )


def line(
    random: Random, language: str, count: int, taken: set[str], holds: Callable[[str], bool]
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
class Line:
    """People who descend from one another, and the facts that say so, where they stand."""

    people: list[Person]
    facts: list[Needle]


@dataclass(frozen=True, slots=True)
class Families:
    """Lines about families without end, of so many facts each, those of a few shuffled together."""

    facts: int
    language: str
    source: str
    name: str = "families"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some families each."""
        random, taken, number = Random(f"families:{self.source}"), set[str](), 0
        while True:
            found: list[str] = []
            while len(found) < _LINES:
                people = line(random, self.language, self.facts + 1, taken, holds_nothing)
                found += [link.said(random, self.language) for link in links(people, up=True)]
            random.shuffle(found)
            if number >= first:
                yield Document(f"{self.name}:{number}", "".join(f"{text}\n" for text in found))
            number += 1


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines, each with its end, and nothing else: a haystack that ends."""

    lines: tuple[str, ...]
    name: str = "facts"
    endless: bool = False

    def documents(self, first: int = 0) -> Iterator[Document]:
        """One document."""
        yield from [Document(self.name, "".join(self.lines))][first:]


@cache
def kinship(language: str) -> dict[str, Any]:
    """The words of a language: sentences, questions, and what they need."""
    text = files("needlemap.tasks").joinpath("data", "kinship.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(text)[language]
    return found


@cache
def sample_lines(language: str) -> tuple[str, ...]:
    """Some lines as any family has them, to be measured."""
    random = Random(f"lineage:{language}")
    people = line(random, language, _LINES + 1, set(), holds_nothing)
    return tuple(f"{link.said(random, language)}\n" for link in links(people, up=True))
