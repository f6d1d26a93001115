"""Write the `generated` haystack: prose from a seed, in English or Chinese, of any length.

Essays, letters, diaries, reports, chronicles and town guides about invented people, full of small
facts, so that a needle is not the only concrete sentence. It needs no download and quotes nobody.
It does not tell a true or a long story: each document stands alone.

A document has a title, an opening, a section on the first topic, a section on the second one with
the two people's parts exchanged, and a closing. All wording is in `data/*.txt`, in a small template
language:

A grammar file holds rules. `== name` starts a rule with one template a line; `== name;` starts a
rule of short items separated by `;`. A line that starts with `# ` is a comment. Inside a template:

    {name}         a line of the rule `name`, or else the text kept under that name
    {^name}        the same with a capital first letter
    {a:name}       the same after "a" or "an"
    {#3-40}        a whole number from 3 to 40
    {#100-900/50}  the same in steps of 50
    {#,1000-9000}  the same written as 1,000
    {x=name}       the same as {name}, and keeps the text under `x`
    {x:=text}      keeps that very text under `x`
    [one|two|]     one of the alternatives, which may be empty and may hold slots

Only `random()` is drawn from. Python promises to keep its stream, so the bytes are the same
everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from itertools import count
from random import Random

from needlemap.errors import SettingsError, did_you_mean
from needlemap.haystacks import Document, Source

LANGUAGES = {"english": "english", "en": "english", "chinese": "chinese", "zh": "chinese"}


class Generated(Source):
    """Invented prose from (language, seed, index), without end: the same bytes on any machine.

    language: 'english' ('en') or 'chinese' ('zh'), in any case. Raises SettingsError for another.
    """

    endless = True

    def __init__(self, *, language: str = "english", seed: int = 0) -> None:
        full_name = LANGUAGES.get(language.lower())
        if full_name is None:
            hint = did_you_mean(language.lower(), LANGUAGES)
            raise SettingsError(f"The generated haystack does not write '{language}'. {hint}")
        self.language = full_name
        self.seed = seed
        self.name = f"generated/{full_name}"

    def document(self, index: int) -> Document:
        """Return document `index`, counted from 0. Those before it need not be made."""
        text = document(self.language, self.seed, index)
        return Document(f"{self.name}/{self.seed}/{index}", text)

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Return documents first, first + 1, ... without end."""
        return map(self.document, count(first))


# Paragraphs of a section: at least, at most.
PARAGRAPHS = (3, 6)
# Units of a paragraph: at least, at most. A unit is one to three sentences that belong together.
UNITS = (2, 4)
# Share of the units after a paragraph's first one that keep to the topic.
TOPICAL = 0.62


@cache
def rules_of(language: str) -> Mapping[str, GrammarRule]:
    """Return the grammar of a language ('english' or 'chinese'), parsed once per process."""
    file = files("needlemap.haystacks").joinpath("data", f"{language}.txt")
    return grammar(file.read_text("utf-8"))


def document(language: str, seed: int, index: int) -> str:
    """Return document `index` of a seed: paragraphs separated by a blank line.

    It does not depend on other documents.
    """
    rules = rules_of(language)
    scene = Scene(Random(f"needlemap/{language}/{seed}/{index}").random)
    rules["document"](scene)
    kind = rules["kinds"](scene)
    topics = rules["topics"].lines
    first, second = [topics[number](scene) for number in shuffled(scene, len(topics))[:2]]
    rules[f"{first}.subject"](scene)
    asides = shuffled(scene, len(rules["common"].lines))

    title = rules[f"{kind}.title"](scene)
    opening = rules[f"{kind}.open"](scene)
    body = section(rules, scene, topic=first, asides=asides)
    rules["swap"](scene)
    body += section(rules, scene, topic=second, asides=asides)
    headings = [
        heading(rules, scene, kind=kind, number=number, count=len(body))
        for number in range(len(body))
    ]
    closing = rules[f"{kind}.close"](scene)

    paragraphs = [head + text for head, text in zip(headings, body, strict=True)]
    return "\n\n".join([title, opening, *paragraphs, closing])


def section(
    rules: Mapping[str, GrammarRule], scene: Scene, topic: str, asides: list[int]
) -> list[str]:
    """Return paragraphs on one topic, the first of which introduces it.

    asides: numbers of common lines that are not used yet. Those that are used are removed.
    """
    topical = shuffled(scene, len(rules[topic].lines))
    opener = [rules[f"{topic}.open"](scene)]
    paragraphs = []
    for _ in range(between(scene, *PARAGRAPHS)):
        joint = rules["joint"](scene)
        units = paragraph(rules, scene, topic=topic, topical=topical, asides=asides)
        paragraphs.append(joint.join(opener + units))
        opener = []
    return paragraphs


def paragraph(
    rules: Mapping[str, GrammarRule],
    scene: Scene,
    topic: str,
    topical: list[int],
    asides: list[int],
) -> list[str]:
    """Return the units of one paragraph.

    topical, asides: numbers of lines on the topic, and of common lines, that are not used yet.
    Those that are used are removed.
    """
    units = []
    for number in range(between(scene, *UNITS)):
        is_topical = topical and (number == 0 or scene.random() < TOPICAL)
        if is_topical:
            line = rules[topic].lines[topical.pop()]
        else:
            line = rules["common"].lines[asides.pop()]
        units.append(line(scene))
    return units


def heading(
    rules: Mapping[str, GrammarRule], scene: Scene, kind: str, number: int, count: int
) -> str:
    """Return what stands before a paragraph.

    That is a date in a diary, a month in a chronicle, and nothing in other kinds. number: of the
    paragraph, from 0. count: how many paragraphs there are.
    """
    if f"{kind}.head" not in rules:
        return ""
    months = rules["months"].lines
    scene.kept["number"] = str(number + 1)
    scene.kept["day"] = str(2 + 26 * number // count)
    scene.kept["next"] = months[len(months) * number // count](scene)
    return rules[f"{kind}.head"](scene) + rules["joint"](scene)


def between(scene: Scene, low: int, high: int) -> int:
    """Draw a whole number in low..high."""
    return low + scene.below(high - low + 1)


def shuffled(scene: Scene, count: int) -> list[int]:
    """Return 0..count-1 in an order drawn from the scene."""
    keys = [scene.random() for _ in range(count)]
    return sorted(range(count), key=keys.__getitem__)


_MARKS = re.compile(r"(\{[^{}]*\}|[\[\]|])")
_NUMBER = re.compile(r"#(,?)(\d+)-(\d+)(?:/(\d+))?")
_SOUNDS_VOWEL = re.compile(
    r"(?!one\b|once\b|use|uni(?!n)|eu)[aeiou]|hour|hono|heir|8|11\b|18\b", re.IGNORECASE
)


@dataclass(slots=True)
class Scene:
    """What one document has settled so far.

    Attributes:
        random: Draws a number in [0, 1).
        kept: Texts by their names.
        last: The line that each rule wrote last, so that no rule repeats itself at once.
    """

    random: Callable[[], float]
    kept: dict[str, str] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def below(self, limit: int) -> int:
        """Draw a whole number in 0..limit-1."""
        return int(self.random() * limit)


# A part of a template: returns its text in a scene.
Piece = Callable[[Scene], str]


@dataclass(frozen=True, slots=True)
class GrammarRule:
    """A named choice that never takes the same line twice in a row."""

    name: str
    lines: tuple[Piece, ...]

    def __call__(self, scene: Scene) -> str:
        number = int(scene.random() * len(self.lines))
        if scene.last.get(self.name) == number:
            number = (number + 1) % len(self.lines)
        scene.last[self.name] = number
        return self.lines[number](scene)


def _literal(text: str, _scene: Scene) -> str:
    return text


def _sequence(pieces: Sequence[Piece], scene: Scene) -> str:
    return "".join([piece(scene) for piece in pieces])


def _choice(options: Sequence[Piece], scene: Scene) -> str:
    return options[int(scene.random() * len(options))](scene)


def _named(name: str, rules: Mapping[str, GrammarRule], scene: Scene) -> str:
    """Return the text of a rule, or else the text that is kept under the name."""
    if name in rules:
        return rules[name](scene)
    return scene.kept[name]


def _number(low: int, high: int, step: int, style: str, scene: Scene) -> str:
    steps = (high - low) // step + 1
    return format(low + step * int(scene.random() * steps), style)


def _capital(piece: Piece, scene: Scene) -> str:
    text = piece(scene)
    return text[:1].upper() + text[1:]


def _article(piece: Piece, scene: Scene) -> str:
    text = piece(scene)
    return f"an {text}" if _SOUNDS_VOWEL.match(text) else f"a {text}"


def _keep(key: str, piece: Piece, scene: Scene) -> str:
    text = piece(scene)
    scene.kept[key] = text
    return text


def slot(body: str, rules: Mapping[str, GrammarRule]) -> Piece:
    """Return the piece that `{body}` stands for."""
    key, assigned, value = body.partition("=")
    if assigned:
        # `x:=text` keeps the text itself, `x=name` the text of a rule.
        piece = partial(_literal, value) if key.endswith(":") else slot(value, rules)
        return partial(_keep, key.rstrip(":"), piece)
    number = _NUMBER.fullmatch(body)
    if number:
        style, low, high, step = number.groups()
        return partial(_number, int(low), int(high), int(step or 1), style)
    if body.startswith("^"):
        return partial(_capital, slot(body[1:], rules))
    if body.startswith("a:"):
        return partial(_article, slot(body[2:], rules))
    return partial(_named, body, rules)


def template(text: str, rules: Mapping[str, GrammarRule]) -> Piece:
    """Parse a template. Raises ValueError if a bracket is not closed or not opened."""
    marks = iter([mark for mark in _MARKS.split(text) if mark])
    piece, end = _options(marks, rules)
    if end or text.count("[") != text.count("]"):
        raise ValueError(f"Unbalanced brackets in the template: {text}")
    return piece


def _options(marks: Iterator[str], rules: Mapping[str, GrammarRule]) -> tuple[Piece, str]:
    """Return alternatives up to a closing bracket or the end.

    The second value is the bracket, or '' at the end.
    """
    options: list[Piece] = []
    pieces: list[Piece] = []
    for mark in marks:
        if mark in "|]":
            options.append(_joined(pieces))
            pieces = []
        if mark == "]":
            return partial(_choice, tuple(options)), mark
        if mark != "|":
            pieces.append(_piece(mark, marks, rules))
    last = _joined(pieces)
    if not options:
        return last, ""
    return partial(_choice, (*options, last)), ""


def _piece(mark: str, marks: Iterator[str], rules: Mapping[str, GrammarRule]) -> Piece:
    if mark == "[":
        return _options(marks, rules)[0]
    if mark.startswith("{"):
        return slot(mark[1:-1], rules)
    return partial(_literal, mark)


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return partial(_sequence, tuple(pieces))


def grammar(text: str) -> Mapping[str, GrammarRule]:
    """Return the rules of a grammar file, by name."""
    rules: dict[str, GrammarRule] = {}
    for block in re.split(r"^== *", text, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        name, separator, _ = head.strip().partition(";")
        lines = _lines(body, has_items=bool(separator))
        rules[name] = GrammarRule(name, tuple(template(line, rules) for line in lines))
    return rules


def _lines(body: str, has_items: bool) -> list[str]:
    """Return the lines of a rule, or its items if these are separated by `;`."""
    lines = [line.strip() for line in body.splitlines() if not line.startswith("# ")]
    if has_items:
        lines = [item.strip() for line in lines for item in line.split(";")]
    return [line for line in lines if line]
