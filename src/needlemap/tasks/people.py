"""People whom nobody knows: full names, drawn afresh and used once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

import yaml

from needlemap.errors import SettingsError

_TRIES = 2000  # draws of one name before all are given up as used up


@dataclass(frozen=True, slots=True)
class Person:
    """A full name, and whose it is."""

    name: str
    woman: bool


def person(random: Random, language: str) -> Person:
    """Anybody.

    >>> person(Random("x"), "english"), person(Random("x"), "chinese")
    (Person(name='Quentin Rookstone', woman=False), Person(name='潘建森', woman=False))
    """
    names, woman = _names(language), random.random() < 0.5
    given, family = random.choice(names["women" if woman else "men"]), random.choice(names["family"])
    if language == "english":
        return Person(f"{given} {family}{random.choice(names['endings'])}", woman)
    return Person(f"{family}{given}{random.choice(names['women' if woman else 'men'])}", woman)


def fresh_person(random: Random, language: str, taken: set[str], holds: Callable[[str], bool]) -> Person:
    """Somebody who is neither taken, and is from now on, nor held. Raises SettingsError if nobody is left."""
    for _ in range(_TRIES):
        found = person(random, language)
        if found.name not in taken and not holds(found.name):
            taken.add(found.name)
            return found
    raise SettingsError("Names of people are used up. Use shorter lengths, or fewer people.")


@cache
def _names(language: str) -> dict[str, list[str]]:
    text = files("needlemap.tasks").joinpath("data", "people.yaml").read_text("utf-8")
    return {part: words.split() for part, words in yaml.safe_load(text)[language].items()}
