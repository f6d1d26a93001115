"""The `generated` haystack: prose from a seed, in English or Chinese, as long as you like.

Essays, letters, diaries, reports, chronicles and town guides about invented people, full of small
facts, so that a needle is not the only concrete sentence. It needs no download and quotes nobody.
It does not tell a true or a long story: each document stands alone.

A document is title, opening, a section on the first topic, a section on the second with the two
people's parts exchanged, closing. All wording is in `data/*.txt`, in a small template language:

A grammar file holds rules. `== name` starts a rule with one template a line; `== name;` starts a
rule of short items separated by `;`. A line that starts with `# ` is a comment. Inside a template:

    {name}         a line of the rule `name`, or else the text kept under that name
    {^name}        the same with a capital first letter
    {a:name}       the same after "a" or "an"
    {#3-40}        a whole number from 3 to 40; {#100-900/50} in steps of 50; {#,1000-9000} written
    1,000 {x=name}       the same as {name}, and keeps the text under `x`; {x:=text} keeps that very
    text
    [one|two|]     one of the alternatives, which may be empty and may hold slots

It draws from `random()` alone, whose stream Python promises to keep, so the bytes are the same
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
        known = LANGUAGES.get(language.lower())
        if known is None:
            hint = did_you_mean(language.lower(), LANGUAGES)
            raise SettingsError(f"The generated haystack does not write '{language}'. {hint}")
        self.language = known
        self.seed = seed
        self.name = f"generated/{known}"

    def document(self, index: int) -> Document:
        """Document `index`, counted from 0, made without those before it."""
        return Document(
            f"{self.name}/{self.seed}/{index}", document(self.language, self.seed, index)
        )

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents first, first + 1, ... without end."""
        return map(self.document, count(first))


PARAGRAPHS = (3, 6)  # of a section, least and most
UNITS = (2, 4)  # of a paragraph; a unit is one to three sentences that belong together
TOPICAL = 0.62  # share of the units after a paragraph's first that keep to the topic


@cache
def rules_of(language: str) -> Mapping[str, GrammarRule]:
    """The grammar of a language ('english' or 'chinese'), parsed once per process."""
    return grammar(
        files("needlemap.haystacks").joinpath("data", f"{language}.txt").read_text("utf-8")
    )


def document(language: str, seed: int, index: int) -> str:
    """Document `index` of a seed: paragraphs separated by a blank line. Needs no other
    document."""
    rules = rules_of(language)
    scene = Scene(Random(f"needlemap/{language}/{seed}/{index}").random)
    rules["document"](scene)
    kind = rules["kinds"](scene)
    first, second = (
        rules["topics"].lines[k](scene) for k in shuffled(scene, len(rules["topics"].lines))[:2]
    )
    rules[f"{first}.subject"](scene)
    asides = shuffled(scene, len(rules["common"].lines))
    opening = [rules[f"{kind}.{part}"](scene) for part in ("title", "open")]
    body = section(rules, scene, first, asides)
    rules["swap"](scene)
    body += section(rules, scene, second, asides)
    heads = [heading(rules, scene, kind, k, len(body)) for k in range(len(body))]
    closing = rules[f"{kind}.close"](scene)
    return "\n\n".join([*opening, *map("".join, zip(heads, body, strict=True)), closing])


def section(
    rules: Mapping[str, GrammarRule], scene: Scene, topic: str, asides: list[int]
) -> list[str]:
    """Paragraphs on one topic, the first of which introduces it. Takes from `asides` those it
    uses."""
    topical = shuffled(scene, len(rules[topic].lines))
    opener = [rules[f"{topic}.open"](scene)]
    paragraphs = []
    for _ in range(between(scene, *PARAGRAPHS)):
        paragraphs.append(
            rules["joint"](scene).join(opener + paragraph(rules, scene, topic, topical, asides))
        )
        opener = []
    return paragraphs


def paragraph(
    rules: Mapping[str, GrammarRule],
    scene: Scene,
    topic: str,
    topical: list[int],
    asides: list[int],
) -> list[str]:
    """The units of one paragraph, taken off the two lists of lines not yet used."""
    units = []
    for k in range(between(scene, *UNITS)):
        on_topic = topical and (k == 0 or scene.random() < TOPICAL)
        units.append(
            rules[topic if on_topic else "common"].lines[(topical if on_topic else asides).pop()](
                scene
            )
        )
    return units


def heading(rules: Mapping[str, GrammarRule], scene: Scene, kind: str, k: int, n: int) -> str:
    """What stands before paragraph k of n: a date in a diary, a month in a chronicle, else
    nothing."""
    if f"{kind}.head" not in rules:
        return ""
    months = rules["months"].lines
    scene.kept["number"] = str(k + 1)
    scene.kept["day"] = str(2 + 26 * k // n)
    scene.kept["next"] = months[len(months) * k // n](scene)
    return rules[f"{kind}.head"](scene) + rules["joint"](scene)


def between(scene: Scene, low: int, high: int) -> int:
    """A whole number in low..high."""
    return low + scene.below(high - low + 1)


def shuffled(scene: Scene, n: int) -> list[int]:
    """0..n-1 in an order drawn from the scene."""
    keys = [scene.random() for _ in range(n)]
    return sorted(range(n), key=keys.__getitem__)


_MARKS = re.compile(r"(\{[^{}]*\}|[\[\]|])")
_NUMBER = re.compile(r"#(,?)(\d+)-(\d+)(?:/(\d+))?")
_SOUNDS_VOWEL = re.compile(
    r"(?!one\b|once\b|use|uni(?!n)|eu)[aeiou]|hour|hono|heir|8|11\b|18\b", re.IGNORECASE
)


@dataclass(slots=True)
class Scene:
    """What one document has settled so far.

    random: draws in [0, 1). kept: texts by name. last: for each rule, the line written last, so
    that no rule says the same thing twice running.
    """

    random: Callable[[], float]
    kept: dict[str, str] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def below(self, n: int) -> int:
        """A whole number in 0..n-1."""
        return int(self.random() * n)


Piece = Callable[[Scene], str]  # a part of a template: its text in a scene


@dataclass(frozen=True, slots=True)
class GrammarRule:
    """A named choice that never takes the same line twice running."""

    name: str
    lines: tuple[Piece, ...]

    def __call__(self, scene: Scene) -> str:
        k = int(scene.random() * len(self.lines))
        if scene.last.get(self.name) == k:
            k = (k + 1) % len(self.lines)
        scene.last[self.name] = k
        return self.lines[k](scene)


def _literal(text: str, _scene: Scene) -> str:
    return text


def _sequence(pieces: Sequence[Piece], scene: Scene) -> str:
    return "".join([piece(scene) for piece in pieces])


def _choice(options: Sequence[Piece], scene: Scene) -> str:
    return options[int(scene.random() * len(options))](scene)


def _named(name: str, rules: Mapping[str, GrammarRule], scene: Scene) -> str:
    """A rule by name if there is one, else the text kept under that name."""
    return rules[name](scene) if name in rules else scene.kept[name]


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
    text = scene.kept[key] = piece(scene)
    return text


def slot(body: str, rules: Mapping[str, GrammarRule]) -> Piece:
    """The piece that `{body}` stands for."""
    key, assigned, value = body.partition("=")
    if assigned:
        literal = key.endswith(":")
        return partial(
            _keep, key.rstrip(":"), partial(_literal, value) if literal else slot(value, rules)
        )
    if number := _NUMBER.fullmatch(body):
        style, low, high, step = number.groups()
        return partial(_number, int(low), int(high), int(step or 1), style)
    if body.startswith("^"):
        return partial(_capital, slot(body[1:], rules))
    if body.startswith("a:"):
        return partial(_article, slot(body[2:], rules))
    return partial(_named, body, rules)


def template(text: str, rules: Mapping[str, GrammarRule]) -> Piece:
    """A parsed template. Raises ValueError where a bracket is not closed or not opened."""
    marks = iter([mark for mark in _MARKS.split(text) if mark])
    piece, end = _options(marks, rules)
    if end or text.count("[") != text.count("]"):
        raise ValueError(f"Unbalanced brackets in the template: {text}")
    return piece


def _options(marks: Iterator[str], rules: Mapping[str, GrammarRule]) -> tuple[Piece, str]:
    """Alternatives up to the closing bracket or the end, and which of the two ended them."""
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
    return (partial(_choice, (*options, _joined(pieces))) if options else _joined(pieces)), ""


def _piece(mark: str, marks: Iterator[str], rules: Mapping[str, GrammarRule]) -> Piece:
    if mark == "[":
        return _options(marks, rules)[0]
    return slot(mark[1:-1], rules) if mark.startswith("{") else partial(_literal, mark)


def _joined(pieces: list[Piece]) -> Piece:
    return pieces[0] if len(pieces) == 1 else partial(_sequence, tuple(pieces))


def grammar(text: str) -> Mapping[str, GrammarRule]:
    """The rules of a grammar file, by name."""
    rules: dict[str, GrammarRule] = {}
    for block in re.split(r"^== *", text, flags=re.MULTILINE)[1:]:
        heading, _, body = block.partition("\n")
        name, listed, _ = heading.strip().partition(";")
        rules[name] = GrammarRule(
            name, tuple(template(line, rules) for line in _lines(body, listed))
        )
    return rules


def _lines(body: str, listed: str) -> list[str]:
    lines = [line.strip() for line in body.splitlines() if not line.startswith("# ")]
    if listed:
        lines = [item.strip() for line in lines for item in line.split(";")]
    return [line for line in lines if line]
