"""What an operation is: one thing that sessions do to a server, planned from the seed alone.

All that is known of an operation stands in its class, in a file of its own in `operations/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log2
from random import Random
from typing import ClassVar

from needlemap.servers.check.finding import KnownIssue
from needlemap.servers.storm.act import Act, Fact, Path, Piece, Stream, Turn

EDGES = (16, 64, 512, 2_048)  # tokens of blocks, pages and chunks
RANKS = 4  # streams of one prompt at most: their facts have keys of their own
SHORTEST = 160  # tokens of a stream that hides its facts apart
_NEAR = (0, 1, -1)  # tokens beside an edge


@dataclass(frozen=True, slots=True)
class Limits:
    """What a storm may do. max_length: tokens of the longest prompt, answer included. load:
    requests at a time. answer_tokens: of one answer. kv_tokens: what the server caches at most,
    None where unknown. cancels: whether clients may go away. many: whether the model answers
    several questions at once. without: operations that are left out."""

    max_length: int
    load: int = 8
    answer_tokens: int = 300
    kv_tokens: int | None = None
    cancels: bool = True
    many: bool = True
    without: frozenset[str] = frozenset()

    @property
    def room(self) -> int:
        """Tokens of a prompt's texts at most: template, questions and answers take the
        rest."""
        return self.max_length - RANKS * (self.answer_tokens + 60)


@dataclass
class FamilyPlan:
    """The sessions of one family while they are planned. streams, others: numbers of new
    streams, and of families of one prompt. at: the wave that comes next. paths: of
    each session what it asked last."""

    number: int
    random: Random
    limits: Limits
    streams: Iterator[int]
    others: Iterator[int]
    at: int = 0
    acts: list[Act] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def stream(self, rank: int, tokens: int) -> Stream:
        """A new text."""
        return Stream(next(self.streams), self.number, rank, max(SHORTEST, tokens))

    def lone(self) -> tuple[int, int]:
        """A new session and a family of its own for it."""
        return self.session(), next(self.others)

    def length(self, most: int | None = None) -> int:
        """Tokens of a text: short ones more often, so that all octaves together take about as
        much of a server."""
        most = max(SHORTEST, min(most or self.limits.room, self.limits.room))
        octaves = max(0.0, log2(most / SHORTEST))
        steps = [step / 4 for step in range(int(4 * octaves) + 1)]
        (step,) = self.random.choices(steps, [2 ** (-step / 2) for step in steps])
        return min(most, round(SHORTEST * 2 ** (step + self.random.random() / 4)))

    def near_edge(self, tokens: int) -> int:
        """A number of tokens at the end of a block or chunk, or one beside it, not far from
        this one."""
        edges = [edge for edge in EDGES if edge <= tokens] or EDGES[:1]
        edge = self.random.choice(edges)
        return max(1, round(tokens / edge)) * edge + self.random.choice(_NEAR)

    def turn(self, path: Path, pieces: tuple[Piece, ...], total: int | None = None) -> Turn:
        """A user's turn that asks for one of the facts at the ends of what stands there: the
        first of all, the last that was there before, or one of its own."""
        before = [piece for each in path for piece in each.pieces]
        held = [
            [Fact(each.stream, at) for at in each.stream.facts_within(each.tokens)]
            for each in before
        ]
        own = [
            Fact(piece.stream, at)
            for piece in pieces
            for at in piece.stream.facts_within(piece.tokens)
        ]
        choices = [own[0], own[-1], self.random.choice(own)]
        old = [fact for facts in held for fact in facts]
        if old:
            choices += [old[0], old[-1], self.random.choice(old)]
        return Turn(pieces, (self.random.choice(choices),), total)

    def session(self) -> int:
        """A new session's number."""
        self.paths.append(())
        return len(self.paths) - 1

    def ask(
        self,
        operation: str,
        session: int,
        path: Path,
        *,
        wave: int | None = None,
        cancel: float | None = None,
        after: float = 0.0,
        family: int | None = None,
    ) -> None:
        """Plan one request, in the next wave unless another is named, of this family unless it
        shares nothing with it."""
        if wave is None:
            wave, self.at = self.at, self.at + 1
        self.at = max(self.at, wave + 1)
        number = self.number if family is None else family
        self.acts.append(Act(0, wave, number, session, operation, path, after, cancel))
        self.paths[session] = path

    def fits(self, path: Path) -> bool:
        """Whether a conversation has room."""
        pieces = [piece for turn in path for piece in turn.pieces]
        return sum(each.tokens for each in pieces) <= self.limits.room and len(pieces) <= RANKS

    def rank(self, path: Path) -> int:
        """The rank of a stream behind a conversation's."""
        return sum(len(turn.pieces) for turn in path)


class Operation:
    """One thing that sessions do. name: in tables. follows: that of
    a request that it plans behind its own, '' for none. share: how often it is drawn,
    beside others. known: public faults that it is aimed at."""

    name: ClassVar[str]
    follows: ClassVar[str] = ""
    share: ClassVar[float] = 1.0
    known: ClassVar[tuple[KnownIssue, ...]] = ()

    def applies(self, limits: Limits) -> bool:
        """Whether it is done at all."""
        return True

    def is_left_out(self, limits: Limits) -> bool:
        """Return True if it was asked to leave it out, or what follows it."""
        return not limits.without.isdisjoint((self.name, self.follows or self.name))

    def plan(self, family: FamilyPlan) -> None:
        """Plan its requests: a family has asked at least once."""
        raise NotImplementedError
