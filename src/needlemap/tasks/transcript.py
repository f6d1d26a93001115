"""A conversation of requests and replies without end, by a grammar of our own (`data/transcript.txt`).

A request is a format, a style and a topic. Exchanges are paragraphs: a blank line stands behind each, and
nowhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from random import Random

from needlemap.haystacks.base import Document
from needlemap.haystacks.grammar import Piece, Rule, Scene, grammar

_EXCHANGES = 16  # of a document
_STYLED = 0.3  # share of a reply's inner sentences that its style writes
_SIMILAR = 0.5  # share of the requests that differ from the asked one in one thing only
_PARTS = ("formats", "styles", "topics")
Request = tuple[str, str, str]  # format, style, topic


@cache
def rules() -> Mapping[str, Rule]:
    """The grammar, parsed once per process."""
    return grammar(files("needlemap.tasks").joinpath("data", "transcript.txt").read_text("utf-8"))


@cache
def parts() -> tuple[tuple[str, ...], ...]:
    """All formats, styles and topics."""
    empty = Scene(Random(0).random)
    return tuple(tuple(line.write(empty) for line in rules()[part].lines) for part in _PARTS)


def request(random: Random) -> Request:
    """Any request."""
    formats, styles, topics = parts()
    return random.choice(formats), random.choice(styles), random.choice(topics)


def said(wanted: Request) -> str:
    """A request in words.

    >>> said(("letter", "gloomy", "the sea"))
    'Write a gloomy letter about the sea.'
    """
    kind, style, topic = wanted
    return f"Write a {style} {kind} about {topic}."


def exchange(wanted: Request, reply: str) -> str:
    """A request with its reply."""
    return f"User: {said(wanted)}\nAssistant: {reply}\n\n"


def reply(wanted: Request, sentences: int, random: Random) -> str:
    """What the assistant writes, of so many sentences, 2 or more; a poem's are lines."""
    kind, style, topic = wanted
    scene = Scene(random.random)
    decks = {name: _Deck(rules()[name]) for name in (style, f"{kind}.line")}
    inner = [style if scene.random() < _STYLED else f"{kind}.line" for _ in range(sentences - 2)]
    lines = [_sentence(rules()[f"{kind}.open"], topic, scene)]
    lines += [_sentence(decks[name], topic, scene) for name in inner]
    lines.append(_sentence(rules()[f"{kind}.close"], topic, scene))
    return ("\n" if kind == "poem" else " ").join(lines)


class _Deck:
    """A rule whose lines come in random order, none again before all have come."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._left: list[Piece] = []

    def write(self, scene: Scene) -> str:
        self._left = self._left or list(self._rule.lines)
        return self._left.pop(scene.below(len(self._left))).write(scene)


def _sentence(piece: Piece, topic: str, scene: Scene) -> str:
    """A sentence with things, a place and an act of the topic."""
    for slot, rule in (("thing", "thing"), ("other", "thing"), ("place", "place"), ("act", "act")):
        scene.kept[slot] = rules()[f"{topic}.{rule}"].write(scene)
    return piece.write(scene)


@dataclass(frozen=True, slots=True)
class Transcript:
    """Exchanges of which none asks what `apart` asks; half of them differ from it in one thing only.

    sentences: of a reply. source: what fixes them, one a repeat.
    """

    apart: Request
    sentences: int
    source: str
    name: str = "transcript"
    endless: bool = True

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents of some exchanges each."""
        exchanges, number = self._exchanges(), 0
        while True:
            text = "".join(islice(exchanges, _EXCHANGES))
            if number >= first:
                yield Document(f"{self.name}:{number}", text)
            number += 1

    def _exchanges(self) -> Iterator[str]:
        random = Random(f"transcript:{self.source}")
        while True:
            wanted = self._similar(random) if random.random() < _SIMILAR else request(random)
            if wanted != self.apart:
                yield exchange(wanted, reply(wanted, self.sentences, random))

    def _similar(self, random: Random) -> Request:
        kind, style, topic = self.apart
        other = request(random)
        return random.choice(((other[0], style, topic), (kind, other[1], topic), (kind, style, other[2])))
