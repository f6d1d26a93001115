"""One of several replies to the same request, by its number: multi-round co-reference.

After MRCR (Vodrahalli et al. 2024, arXiv 2409.12640) and OpenAI's and Google's sets of that name.
All wording is our own. The conversation is one text, not messages with roles: what a turn's marks
cost is not known of a server's model, so that no length would be exact, and base models have none.

The conversation is without end, by a grammar of our own (`data/transcript.txt`). A request is a
format, a style and a topic. Exchanges are paragraphs: a blank line stands behind each, and nowhere
in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.resources import files
from random import Random
from string import ascii_letters, digits
from typing import Annotated, Literal

from annotated_types import Ge

from needlemap.haystacks import Stream
from needlemap.haystacks.generated import GrammarRule, Piece, Scene, grammar
from needlemap.tasks import Background, Draw, Item, Reference, Scope, Task, hidden
from needlemap.tasks.values import fresh, wording

_GONE = "Replies and codes that are not in the text are used up. Use shorter lengths."
TwoOrMore = Annotated[int, Ge(2)]


@dataclass(kw_only=True, eq=False)
class Ordinal(Task):
    """The same request several times among similar ones, a reply to each; one reply is asked for by
    number.

    requests: how often the request stands there. sentences: of each reply. code: characters of the
    random code that the answer must begin with. fresh: how often the asked reply is drawn, as for
    `magic`; the other replies to the request are drawn for each length at most.
    """

    name = "ordinal"
    scorer = "verbatim"

    requests: TwoOrMore = 4
    sentences: TwoOrMore = 8
    code: Annotated[int, Ge(4)] = 10
    fresh: Scope = "trial"
    language: Literal["english"] = "english"

    def background(self, repeat: int, seed: int) -> Background:
        """The conversation around the asked requests."""
        source = f"{seed}:{repeat}"
        return Background(
            Transcript(_request_of(repeat, seed), self.sentences, source), "paragraph"
        )

    def item(self, draw: Draw) -> Item:
        """The exchanges of the request; that of the cell's depth is asked for, whichever
        number it is."""
        wanted, words = _request_of(draw.repeat, draw.seed), wording("ordinal", self.language)
        replies = self._replies(wanted, draw)
        ordered = sorted(replies, key=lambda one: one[0])
        number, text = 1 + ordered.index(replies[0]), replies[0][1]
        code = self._drawn_code(draw.random("ordinal code"), draw)
        question = words["question"].format(request=request_words(wanted), number=number, code=code)
        texts = tuple(one for _, one in ordered)
        return Item(
            hidden((exchange(wanted, one) for _, one in replies), (depth for depth, _ in replies)),
            question,
            Reference(
                f"{code}\n{text}", (text,), exchange(wanted, text).strip(), question, choices=texts
            ),
            prologue=words["headed"],
            answer_prefix=code,
            unique=(code, *texts),
        )

    def _replies(self, wanted: Request, draw: Draw) -> list[tuple[float, str]]:
        """Depth and reply of each request, the asked one first."""
        others, own = draw.beside("ordinal beside", self.fresh), draw.random("ordinal", self.fresh)
        taken = set[str]()
        rest = [
            (others.random(), self._reply(wanted, others, taken, draw))
            for _ in range(self.requests - 1)
        ]
        return [(draw.cell.depth, self._reply(wanted, own, taken, draw)), *rest]

    def _reply(self, wanted: Request, random: Random, taken: set[str], draw: Draw) -> str:
        """A reply that stands nowhere else."""
        return fresh(
            lambda: _written(wanted, self.sentences, random.getrandbits(64)),
            taken,
            draw.holds,
            _GONE,
        )

    def _drawn_code(self, random: Random, draw: Draw) -> str:
        letters = partial(random.choices, ascii_letters + digits, k=self.code)
        return fresh(lambda: "".join(letters()), set(), draw.holds, _GONE)


@lru_cache(maxsize=1024)
def _written(wanted: Request, sentences: int, number: int) -> str:
    """A reply, by its number; those beside the asked one are the same at all depths of a
    length."""
    return reply(wanted, sentences, Random(number))


def _request_of(repeat: int, seed: int) -> Request:
    """The request of a repeat."""
    return request(Random(f"ordinal:{seed}:{repeat}"))


_STYLED = 0.3  # share of a reply's inner sentences that its style writes
_SIMILAR = 0.5  # share of the requests that differ from the asked one in one thing only
_PARTS = ("formats", "styles", "topics")
Request = tuple[str, str, str]  # format, style, topic


@cache
def rules() -> Mapping[str, GrammarRule]:
    """The grammar, parsed once per process."""
    return grammar(files("needlemap.suites").joinpath("data", "transcript.txt").read_text("utf-8"))


@cache
def parts() -> tuple[tuple[str, ...], ...]:
    """All formats, styles and topics."""
    empty = Scene(Random(0).random)
    return tuple(tuple(line(empty) for line in rules()[part].lines) for part in _PARTS)


def request(random: Random) -> Request:
    """Any request."""
    formats, styles, topics = parts()
    return random.choice(formats), random.choice(styles), random.choice(topics)


def request_words(wanted: Request) -> str:
    """A request in words.

    >>> request_words(("letter", "gloomy", "the sea"))
    'Write a gloomy letter about the sea.'
    """
    kind, style, topic = wanted
    return f"Write a {style} {kind} about {topic}."


def exchange(wanted: Request, reply: str) -> str:
    """A request with its reply."""
    return f"User: {request_words(wanted)}\nAssistant: {reply}\n\n"


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

    def __init__(self, rule: GrammarRule) -> None:
        self._rule = rule
        self._left: list[Piece] = []

    def __call__(self, scene: Scene) -> str:
        self._left = self._left or list(self._rule.lines)
        return self._left.pop(scene.below(len(self._left)))(scene)


def _sentence(piece: Piece, topic: str, scene: Scene) -> str:
    """A sentence with things, a place and an act of the topic."""
    for slot, rule in (("thing", "thing"), ("other", "thing"), ("place", "place"), ("act", "act")):
        scene.kept[slot] = rules()[f"{topic}.{rule}"](scene)
    return piece(scene)


@dataclass(frozen=True, slots=True)
class Transcript(Stream):
    """Exchanges of which none asks what `apart` asks; half of them differ from it in one thing
    only.

    sentences: of a reply. source: what fixes them, one a repeat.
    """

    PIECES = 16

    apart: Request
    sentences: int
    source: str
    name: str = "transcript"

    def pieces(self) -> Iterator[str]:
        """The exchanges."""
        random = Random(f"transcript:{self.source}")
        while True:
            wanted = self._similar(random) if random.random() < _SIMILAR else request(random)
            if wanted != self.apart:
                yield exchange(wanted, reply(wanted, self.sentences, random))

    def _similar(self, random: Random) -> Request:
        kind, style, topic = self.apart
        other = request(random)
        return random.choice(
            ((other[0], style, topic), (kind, other[1], topic), (kind, style, other[2]))
        )
