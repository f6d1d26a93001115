"""Ask for one of several replies to the same request, by its number: multi-round co-reference.

After MRCR (Vodrahalli et al. 2024, arXiv 2409.12640) and OpenAI's and Google's sets of that name.
All wording is our own. The conversation is one text, not messages with roles: for a server's model
nobody knows how many tokens the marks of a turn take, so no length would be exact, and base models
have no such marks.

The conversation is without end, by a grammar of our own (`data/transcript.txt`). A request is a
format, a style and a topic. Exchanges are paragraphs: a blank line stands after each, and nowhere
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
# Format, style and topic.
Request = tuple[str, str, str]
# Share of a reply's inner sentences that its style writes.
_STYLED = 0.3
# Share of the requests that differ from the asked one in one thing only.
_SIMILAR = 0.5
_PARTS = ("formats", "styles", "topics")


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
        """Return the conversation around the asked requests."""
        source = f"{seed}:{repeat}"
        transcript = Transcript(_request_of(repeat, seed), self.sentences, source=source)
        return Background(transcript, unit="paragraph")

    def item(self, draw: Draw) -> Item:
        """Return the exchanges about one request, and a question for one of their replies.

        The question asks for the reply at the cell's depth, by its number in the order of depths.
        """
        request = _request_of(draw.repeat, draw.seed)
        words = wording("ordinal", self.language)
        replies = self._replies(request, draw)
        by_depth = sorted(replies, key=lambda placed: placed[0])
        number = 1 + by_depth.index(replies[0])
        _, text = replies[0]
        code = self._draw_code(draw)
        question = words["question"].format(
            request=request_words(request), number=number, code=code
        )
        texts = tuple(reply_text for _, reply_text in by_depth)
        return Item(
            hidden(
                (exchange(request, reply_text) for _, reply_text in replies),
                (depth for depth, _ in replies),
            ),
            question,
            reference=Reference(
                f"{code}\n{text}",
                (text,),
                needle=exchange(request, text).strip(),
                question=question,
                choices=texts,
            ),
            prologue=words["headed"],
            answer_prefix=code,
            unique=(code, *texts),
        )

    def _replies(self, request: Request, draw: Draw) -> list[tuple[float, str]]:
        """Return depth and text of each reply to the request, the asked one first."""
        shared_random = draw.beside("ordinal beside", self.fresh)
        asked_random = draw.random("ordinal", self.fresh)
        taken = set[str]()
        other_replies = []
        for _ in range(self.requests - 1):
            depth = shared_random.random()
            text = self._fresh_reply(request, shared_random, taken=taken, draw=draw)
            other_replies.append((depth, text))
        asked_text = self._fresh_reply(request, asked_random, taken=taken, draw=draw)
        return [(draw.cell.depth, asked_text), *other_replies]

    def _fresh_reply(self, request: Request, random: Random, taken: set[str], draw: Draw) -> str:
        """Return a reply that stands nowhere else."""
        return fresh(
            lambda: _numbered_reply(request, self.sentences, number=random.getrandbits(64)),
            taken,
            holds=draw.holds,
            gone=_GONE,
        )

    def _draw_code(self, draw: Draw) -> str:
        random = draw.random("ordinal code")
        letters = partial(random.choices, ascii_letters + digits, k=self.code)
        return fresh(lambda: "".join(letters()), set(), holds=draw.holds, gone=_GONE)


@lru_cache(maxsize=1024)
def _numbered_reply(request: Request, sentences: int, number: int) -> str:
    """Return a reply by its number.

    Replies are cached, because those next to the asked one are the same at all depths of a length.
    """
    return reply(request, sentences, random=Random(number))


def _request_of(repeat: int, seed: int) -> Request:
    return draw_request(Random(f"ordinal:{seed}:{repeat}"))


@cache
def rules() -> Mapping[str, GrammarRule]:
    """Return the grammar, which is parsed once per process."""
    text = files("needlemap.suites").joinpath("data", "transcript.txt").read_text("utf-8")
    return grammar(text)


@cache
def parts() -> tuple[tuple[str, ...], ...]:
    """Return all formats, styles and topics."""
    empty = Scene(Random(0).random)
    return tuple(tuple(line(empty) for line in rules()[part].lines) for part in _PARTS)


def draw_request(random: Random) -> Request:
    """Return any request."""
    formats, styles, topics = parts()
    return random.choice(formats), random.choice(styles), random.choice(topics)


def request_words(request: Request) -> str:
    """Return a request in words.

    >>> request_words(("letter", "gloomy", "the sea"))
    'Write a gloomy letter about the sea.'
    """
    kind, style, topic = request
    return f"Write a {style} {kind} about {topic}."


def exchange(request: Request, text: str) -> str:
    """Return a request with its reply."""
    return f"User: {request_words(request)}\nAssistant: {text}\n\n"


def reply(request: Request, sentences: int, random: Random) -> str:
    """Return what the assistant writes.

    sentences: how many it has, 2 or more. Those of a poem are lines.
    """
    kind, style, topic = request
    scene = Scene(random.random)
    decks = {name: _Deck(rules()[name]) for name in (style, f"{kind}.line")}
    names = [style if scene.random() < _STYLED else f"{kind}.line" for _ in range(sentences - 2)]
    lines = [_sentence(rules()[f"{kind}.open"], topic, scene=scene)]
    for name in names:
        lines.append(_sentence(decks[name], topic, scene=scene))
    lines.append(_sentence(rules()[f"{kind}.close"], topic, scene=scene))
    separator = "\n" if kind == "poem" else " "
    return separator.join(lines)


class _Deck:
    """A rule whose lines come in random order, and none again before all have come."""

    def __init__(self, rule: GrammarRule) -> None:
        self._rule = rule
        self._remaining: list[Piece] = []

    def __call__(self, scene: Scene) -> str:
        if not self._remaining:
            self._remaining = list(self._rule.lines)
        return self._remaining.pop(scene.below(len(self._remaining)))(scene)


def _sentence(piece: Piece, topic: str, scene: Scene) -> str:
    """Return a sentence with things, a place and an act of the topic."""
    for slot, rule in (("thing", "thing"), ("other", "thing"), ("place", "place"), ("act", "act")):
        scene.kept[slot] = rules()[f"{topic}.{rule}"](scene)
    return piece(scene)


@dataclass(frozen=True, slots=True)
class Transcript(Stream):
    """Exchanges whose requests are other ones than `apart`; half differ from it in one thing only.

    Attributes:
        apart: The request that no exchange repeats.
        sentences: How many sentences a reply has.
        source: What fixes the exchanges, one a repeat.
    """

    PIECES = 16

    apart: Request
    sentences: int
    source: str
    name: str = "transcript"

    def pieces(self) -> Iterator[str]:
        """Yield the exchanges."""
        random = Random(f"transcript:{self.source}")
        while True:
            is_similar = random.random() < _SIMILAR
            request = self._similar(random) if is_similar else draw_request(random)
            if request != self.apart:
                yield exchange(request, reply(request, self.sentences, random=random))

    def _similar(self, random: Random) -> Request:
        """Return a request that may differ in one thing only."""
        kind, style, topic = self.apart
        other_kind, other_style, other_topic = draw_request(random)
        candidates = (
            (other_kind, style, topic),
            (kind, other_style, topic),
            (kind, style, other_topic),
        )
        return random.choice(candidates)
