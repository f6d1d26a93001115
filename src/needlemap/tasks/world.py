"""A small world: who is where, who carries what, what is inside what. Each sentence says how one is now.

Its state is what was said last: nothing is told of the way there, so no sentence contradicts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, Literal

import yaml

from needlemap.errors import SettingsError
from needlemap.tasks.people import fresh_person

Kind = Literal["go", "have", "put"]
_TRIES = 500  # draws of one thing


@dataclass(frozen=True, slots=True)
class Fact:
    """Somebody is now in a place (go), a thing or box with somebody (have), a thing in a box (put)."""

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

    def possible(self) -> list[Fact]:
        """Every fact that could be said: things are in boxes where there are boxes, else with people."""
        found = [Fact("go", who, where) for who in self.people for where in self.places]
        found += [Fact("have", what, who) for what in self.boxes or self.things for who in self.people]
        return found + [Fact("put", what, box) for what in self.things for box in self.boxes]


def cast(random: Random, language: str, size: Mapping[str, int], holds: Callable[[str], bool]) -> Cast:
    """People, things and boxes that nothing speaks of yet. size: how many 'people', 'places', ..."""
    words, taken = world(language), set[str]()
    people = [fresh_person(random, language, taken, holds).name for _ in range(size["people"])]
    places = random.sample(words["places"], size["places"])
    things = [_thing(random, language, "things", taken, holds) for _ in range(size["things"])]
    boxes = [_thing(random, language, "boxes", taken, holds) for _ in range(size["boxes"])]
    return Cast(tuple(people), tuple(places), tuple(things), tuple(boxes))


def state(facts: Iterable[Fact]) -> dict[str, str]:
    """How things are after some facts: what was said last of each.

    >>> state([Fact("go", "Ada", "hall"), Fact("go", "Ada", "barn")])
    {'Ada': 'barn'}
    """
    return {fact.subject: fact.to for fact in facts}


def where(now: Mapping[str, str], what: str) -> str:
    """Where somebody or something is: where its box is, where its carrier is.

    >>> where({"coin": "tin", "tin": "Ada", "Ada": "barn"}, "coin")
    'barn'
    """
    while what in now:
        what = now[what]
    return what


def sentence(chance: float, fact: Fact, language: str) -> str:
    """A fact in words. chance: in [0, 1), in which.

    >>> sentence(0.6, Fact("go", "Ada", "barn"), "english")
    'Ada is in the barn now.'
    """
    roles = {"go": ("who", "where"), "have": ("what", "who"), "put": ("what", "box")}[fact.kind]
    templates: list[str] = world(language)[fact.kind]
    return templates[int(chance * len(templates))].format_map(
        dict(zip(roles, (fact.subject, fact.to), strict=True))
    )


@cache
def world(language: str) -> dict[str, Any]:
    """The words of a language: lists of names, and sentences by kind."""
    text = files("needlemap.tasks").joinpath("data", "world.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(text)[language]
    return found


def _thing(random: Random, language: str, kind: str, taken: set[str], holds: Callable[[str], bool]) -> str:
    """A coloured thing, the only one of its kind."""
    words: Mapping[str, Sequence[str]] = world(language)
    for _ in range(_TRIES):
        colour, noun = random.choice(words["colours"]), random.choice(words[kind])
        name = f"{colour} {noun}" if language == "english" else f"{colour}{noun}"
        if noun not in taken and not holds(name):
            taken.add(noun)
            return name
    raise SettingsError(f"Names of {kind} are used up. Use shorter lengths, or fewer {kind}.")
