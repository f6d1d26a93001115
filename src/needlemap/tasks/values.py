"""What the tasks of keys and values are made of: values that nobody can guess, backgrounds, wording.

Words, numbers, UUIDs and full names are drawn afresh and used once. A background that a task brings along
is the same few sentences over and over, or lines with such keys and values. The wording is ours; who wants
another takes the tasks `single` and `multi`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count, islice
from random import Random
from typing import Literal

import yaml

from needlemap.errors import SettingsError
from needlemap.haystacks import Document, Source
from needlemap.tasks import holds_nothing
from needlemap.text.matching import any_of, hexadecimal, number

Kind = Literal["word", "number", "uuid"]
_TRIES = 2000  # draws of one value or name before its kind is given up as used up
_UUID = (8, 4, 4, 4, 12)  # digits in each group, where there are 32
_GROUP = 8  # digits in each group otherwise
_JOINTS = {"english": "-", "chinese": ""}
_LINES = 32  # of a document
KEY_VALUE = {  # question, beginning of its answer
    "english": (
        'Which value does the JSON object hold under the key "{key}"? Answer with that value alone.',
        'Under the key "{key}" it holds',
    ),
    "chinese": ("JSON 对象中，键“{key}”对应的值是什么？只回答这个值。", "键“{key}”对应的值是"),
}
PASS_KEY = {  # needle, question, beginning of its answer
    "english": (
        "There is one pass key in here, and it is {value}. Write it down: {value}.",
        "What is the pass key in the text? Answer with the number alone.",
        "The pass key is",
    ),
    "chinese": (
        "这里只有一个通行码，就是{value}。记下来：{value}。",
        "文中的通行码是什么？只回答数字。",
        "通行码是",
    ),
}


@dataclass(frozen=True, slots=True)
class Values:
    """A kind of value. digits: of a number, decimal; of a UUID, hexadecimal. language: of words."""

    kind: Kind
    digits: int
    language: str = "english"

    def draw(self, random: Random) -> str:
        """Any value of the kind.

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
        """A pattern of what looks like a value of the kind; of words, only those that `draw` knows.

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
        """A value that is neither taken, and is from now on, nor held.

        Raises SettingsError when there is none left.
        """
        for _ in range(_TRIES):
            value = self.draw(random)
            if value not in taken and not holds(value):
                taken.add(value)
                return value
        raise SettingsError(
            f"Values of kind '{self.kind}' are used up: {_TRIES} draws gave none that is not in the haystack "
            f"already. Use shorter lengths, --task-options digits={self.digits + 2} or uuid_digits=32."
        )


def _hexadecimal(random: Random, digits: int) -> str:
    """Hexadecimal digits, of which some are letters and some are not: else it were a number or a word."""
    while True:
        found = f"{random.getrandbits(4 * digits):0{digits}x}"
        if not found.isdecimal() and not found.isalpha():
            return found


def grouped(digits: str) -> str:
    """Hexadecimal digits as a UUID has them: 8-4-4-4-12 where there are 32, else in groups of 8.

    >>> grouped("0123456789abcdef")
    '01234567-89abcdef'
    """
    full, rest = divmod(len(digits), _GROUP)
    sizes = _UUID if len(digits) == sum(_UUID) else (_GROUP,) * full + (rest,)
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return "-".join(digits[start : start + size] for start, size in zip(starts, sizes, strict=True) if size)


@cache
def words(language: str) -> tuple[list[str], list[str]]:
    """Adjectives and nouns of a language, 'english' or 'chinese'."""
    text = files("needlemap.tasks").joinpath("data", f"{language}.txt").read_text("utf-8")
    _, adjectives, nouns = text.split("\n== ")
    return adjectives.split()[1:], nouns.split()[1:]


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


@dataclass(frozen=True, slots=True)
class Noise(Source):
    """A text again and again, one line each time."""

    text: str
    name: str = "repeat"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of equal lines."""
        text = f"{self.text}\n" * _LINES
        return (Document(f"{self.name}:{number}", text) for number in count(first))


@dataclass(frozen=True, slots=True)
class Pairs(Source):
    """Lines, each with a key and a value that no other line has.

    line: its text with {key} and {value}, without the line break. source: what fixes them, one a repeat.
    """

    line: str
    keys: Values
    values: Values
    source: str
    name: str = "pairs"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some lines each."""
        lines, number = self._lines(), 0
        while True:
            text = "".join(islice(lines, _LINES))
            if number >= first:
                yield Document(f"{self.name}:{number}", text)
            number += 1

    def _lines(self) -> Iterator[str]:
        random, keys, values = Random(f"pairs:{self.source}"), set[str](), set[str]()
        while True:
            key = self.keys.fresh(random, keys, holds_nothing)
            value = self.values.fresh(random, values, holds_nothing)
            yield self.line.format(key=key, value=value) + "\n"


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts with {key}, {keys}, {value}, {kind} (of value) and {kinds}.

    one, several: the question for one value and for more; begun, begun_several: how its answer begins. noise:
    sentences that say nothing. comma, last: what stands between keys.
    """

    needle: str
    one: str
    several: str
    begun: str
    begun_several: str
    noise: str
    kinds: dict[str, tuple[str, str]]
    comma: str
    last: str

    def naming(self, value: str, text: str) -> str:
        """A text in which the kind of value is named.

        >>> ENGLISH.naming("uuid", "The {kinds} assigned to {keys} are")
        'The UUIDs assigned to {keys} are'
        """
        kind, kinds = self.kinds[value]
        return text.replace("{kind}", kind).replace("{kinds}", kinds)

    def listed(self, words: list[str]) -> str:
        """Words as a sentence lists them.

        >>> ENGLISH.listed(["a", "b", "c"])
        'a, b and c'
        """
        return self.last.join([*[self.comma.join(words[:-1])][: len(words) - 1], words[-1]])


ENGLISH = Wording(
    needle="Keep in mind that the {kind} assigned to {key} is {value}.",
    one="Which {kind} does the text say is assigned to {keys}? Answer with that {kind} alone.",
    several="Which {kinds} does the text say are assigned to {keys}? List every one of them.",
    begun="The {kind} assigned to {keys} is",
    begun_several="The {kinds} assigned to {keys} are",
    noise="The kettle is warm. The street is long. The window is shut. Round we walk. Nobody is in a hurry.",
    kinds={"word": ("word", "words"), "number": ("number", "numbers"), "uuid": ("UUID", "UUIDs")},
    comma=", ",
    last=" and ",
)
CHINESE = Wording(
    needle="请记住，{key}对应的{kind}是{value}。",
    one="文中说{keys}对应的{kind}是什么？只回答这个{kind}。",
    several="文中说{keys}对应的{kind}有哪些？请全部列出。",
    begun="{keys}对应的{kind}是",
    begun_several="{keys}对应的{kind}有",
    noise="水壶还热着。街道很长。窗户关着。我们绕着走。谁也不着急。",
    kinds={"word": ("词语", "词语"), "number": ("数字", "数字"), "uuid": ("UUID", "UUID")},
    comma="、",
    last="和",
)
WORDINGS = {"english": ENGLISH, "chinese": CHINESE}


def solved(text: str, question: str, answer: str, *, headed: str = "", begun: str = "") -> str:
    """An example that stands before what is asked about: a text of its own, a question, and its answer.

    >>> solved("Ann swims.", "Who swims?", "Ann", headed="An example:\\n", begun="Answer: ")
    'An example:\\nAnn swims.\\nWho swims?\\nAnswer: Ann\\n\\n'
    """
    return f"{headed}{text}\n{question}\n{begun}{answer}\n\n"
