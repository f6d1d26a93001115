"""Make what the tasks need: values that nobody can guess, backgrounds, wording.

Words, numbers, UUIDs and full names are drawn afresh and used once. A background that a task brings
along is the same few sentences over and over, or lines with such keys and values. All that tasks
say is in `data/*.yaml`, by language, and ours; people who want another wording take the
tasks `single` and `multi`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import repeat
from random import Random
from typing import Any, Literal, TypeVar

from needlemap.errors import SettingsError
from needlemap.files import read_yaml
from needlemap.haystacks import Stream
from needlemap.tasks import Background, Language, holds_nothing, no_wording
from needlemap.text import any_of, hexadecimal, number

Kind = Literal["word", "number", "uuid"]
Drawn = TypeVar("Drawn")
# Draws of one value or name before its kind is given up as used up.
TRIES = 2000
# Digits in each group, if there are 32; and otherwise.
_UUID = (8, 4, 4, 4, 12)
_GROUP = 8
_JOINTS = {"english": "-", "chinese": ""}


@cache
def lexicon(name: str, language: Language, package: str = "needlemap.tasks") -> Mapping[str, Any]:
    """Return a language's part of a package's `data/NAME.yaml`."""
    text = files(package).joinpath("data", f"{name}.yaml").read_text("utf-8")
    words: Mapping[str, Any] = read_yaml(text)[language]
    return words


def wording(task: str, language: Language) -> Mapping[str, Any]:
    """Return the words in which a task hides and asks.

    Raises SettingsError for a task that has no words in a language.

    >>> wording("passkey", "english")["begun"]
    'The pass key is'
    """
    words: Mapping[str, Any] | None = lexicon("wording", language).get(task)
    if words is None:
        raise no_wording(task, language)
    return words


def fresh(
    draw: Callable[[], Drawn],
    taken: set[str],
    holds: Callable[[str], bool],
    gone: str,
    named: Callable[[Drawn], str] = str,
) -> Drawn:
    """Return a drawn value that is neither taken nor held, and count it as taken.

    named: returns the name of a value. Raises SettingsError, `gone`, if none is left.

    >>> fresh(iter(["a", "b", "c"]).__next__, {"a"}, lambda text: text == "b", "No letter is left.")
    'c'
    """
    for _ in range(TRIES):
        value = draw()
        name = named(value)
        if name not in taken and not holds(name):
            taken.add(name)
            return value
    raise SettingsError(gone)


@dataclass(frozen=True, slots=True)
class Values:
    """A kind of value.

    digits: of a number, decimal; of a UUID, hexadecimal. language: of words.
    """

    kind: Kind
    digits: int
    language: Language = "english"

    @classmethod
    def sized(cls, kind: Kind, digits: int, uuid_digits: int, language: Language) -> Values:
        """Return a kind of value with the size that fits it; words have none."""
        sizes: Mapping[Kind, int] = {"word": 0, "number": digits, "uuid": uuid_digits}
        return cls(kind, sizes[kind], language=language)

    def draw(self, random: Random) -> str:
        """Return any value of the kind.

        >>> Values("number", 5).draw(Random("x")), Values("uuid", 12).draw(Random("x"))
        ('92678', '50aea17b-4dd3')
        """
        if self.kind == "number":
            return str(random.randrange(10 ** (self.digits - 1), 10**self.digits))
        if self.kind == "uuid":
            return grouped(_hexadecimal(random, self.digits))
        adjectives, nouns = words(self.language)
        return f"{random.choice(adjectives)}{_JOINTS[self.language]}{random.choice(nouns)}"

    @property
    def like(self) -> str:
        """Return a pattern of what looks like a value of the kind; of words, those of `draw`.

        >>> from re import findall
        >>> findall(Values("number", 7).like, "none of the 3, or 7394821")
        ['7394821']
        """
        if self.kind == "number":
            return number(self.digits)
        if self.kind == "uuid":
            return hexadecimal(self.digits, hyphens=self.digits > _GROUP)
        return any_of(*words(self.language), joint=_JOINTS[self.language])

    def fresh(self, random: Random, taken: set[str], holds: Callable[[str], bool]) -> str:
        """Return a value that is neither taken nor held, and count it as taken.

        Raises SettingsError if none is left.
        """
        gone = (
            f"Values of kind '{self.kind}' are used up: {TRIES} draws gave none that is not in the "
            f"haystack already. Use shorter lengths, --task-options digits={self.digits + 2} or "
            "uuid_digits=32."
        )
        return fresh(partial(self.draw, random), taken, holds=holds, gone=gone)


def _hexadecimal(random: Random, digits: int) -> str:
    """Return hexadecimal digits, some of them letters, so that it is neither number nor word."""
    while True:
        text = f"{random.getrandbits(4 * digits):0{digits}x}"
        if not text.isdecimal() and not text.isalpha():
            return text


def grouped(digits: str) -> str:
    """Return hexadecimal digits as a UUID has them: 8-4-4-4-12 if there are 32, else by eights.

    >>> grouped("0123456789abcdef")
    '01234567-89abcdef'
    """
    full, rest = divmod(len(digits), _GROUP)
    sizes = _UUID if len(digits) == sum(_UUID) else (_GROUP,) * full + (rest,)
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return "-".join(
        digits[start : start + size] for start, size in zip(starts, sizes, strict=True) if size
    )


@cache
def words(language: Language) -> tuple[list[str], list[str]]:
    """Return the adjectives and nouns of a language."""
    lists = lexicon("words", language)
    return lists["adjectives"].split(), lists["nouns"].split()


@dataclass(frozen=True, slots=True)
class Person:
    """A full name, and whose it is."""

    name: str
    woman: bool


def person(random: Random, language: Language) -> Person:
    """Return anybody.

    >>> person(Random("x"), "english"), person(Random("x"), "chinese")
    (Person(name='Quentin Rookstone', woman=False), Person(name='潘建森', woman=False))
    """
    names = _names(language)
    woman = random.random() < 0.5
    given = random.choice(names["women" if woman else "men"])
    family = random.choice(names["family"])
    if language == "english":
        return Person(f"{given} {family}{random.choice(names['endings'])}", woman)
    return Person(f"{family}{given}{random.choice(names['women' if woman else 'men'])}", woman)


def fresh_person(
    random: Random, language: Language, taken: set[str], holds: Callable[[str], bool]
) -> Person:
    """Return somebody who is neither taken nor held, and count the name as taken.

    Raises SettingsError if nobody is left.
    """
    return fresh(
        partial(person, random, language),
        taken,
        holds=holds,
        gone="Names of people are used up. Use shorter lengths, or fewer people.",
        named=lambda somebody: somebody.name,
    )


@cache
def _names(language: Language) -> dict[str, list[str]]:
    return {part: words.split() for part, words in lexicon("people", language).items()}


@dataclass(frozen=True, slots=True)
class Noise(Stream):
    """A text again and again, one line each time."""

    text: str
    name: str = "repeat"

    def pieces(self) -> Iterator[str]:
        """Return equal lines."""
        return repeat(f"{self.text}\n")


def noise(language: Language) -> Background:
    """Return the same few sentences again and again."""
    return Background(Noise(wording("magic", language)["noise"]), "sentence")


@dataclass(frozen=True, slots=True)
class PairLines(Stream):
    """Lines, each with a key and a value that no other line has.

    Attributes:
        line: Its text with {key} and {value}, without the line break.
        keys, values: Their kinds.
        source: What fixes them, one a repeat.
    """

    line: str
    keys: Values
    values: Values
    source: str
    name: str = "pairs"

    def pieces(self) -> Iterator[str]:
        """Yield the lines."""
        random = Random(f"pairs:{self.source}")
        keys = set[str]()
        values = set[str]()
        while True:
            key = self.keys.fresh(random, keys, holds=holds_nothing)
            value = self.values.fresh(random, values, holds=holds_nothing)
            yield self.line.format(key=key, value=value) + "\n"


def solved(text: str, question: str, answer: str, *, headed: str = "", begun: str = "") -> str:
    """Return an example that stands before what is asked about.

    It is a text of its own, a question, and its answer.

    >>> solved("Ann swims.", "Who swims?", "Ann", headed="An example:\\n", begun="Answer: ")
    'An example:\\nAnn swims.\\nWho swims?\\nAnswer: Ann\\n\\n'
    """
    return f"{headed}{text}\n{question}\n{begun}{answer}\n\n"
