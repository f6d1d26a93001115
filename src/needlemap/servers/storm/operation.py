"""Define an operation: one thing that sessions do to a server, planned from the seed alone.

All that is known of an operation is in its class, in a file of its own in `operations/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import log2
from random import Random
from typing import ClassVar

from needlemap.servers.storm.act import Act, Fact, How, Path, Piece, Stream, Turn

# Tokens of blocks, pages and chunks.
EDGES = (16, 64, 512, 2_048)
# Streams of one prompt, at most: their facts have keys of their own.
RANKS = 4
# Tokens of a stream that hides its facts apart.
SHORTEST = 160
# Tokens of a turn in addition to its texts and its answer, about: template and question.
TURN_TOKENS = 60
# Tokens of a first prompt in addition to its text, about.
FRAME_TOKENS = 120
# Tokens that a length may lie from an edge.
_NEAR = (0, 1, -1)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a storm may do.

    Attributes:
        max_length: Tokens of the longest prompt, answer included.
        load: Requests at a time.
        answer_tokens: Tokens of one answer.
        kv_tokens: Tokens that the server caches, at most; None if that is not known.
        cancels: Whether clients may go away.
        many: Whether the model answers several questions at once.
        without: Names of operations that are left out.
        slots: Whether the server saves and restores slots.
        other: Whether it has a second model.
    """

    max_length: int
    load: int = 8
    answer_tokens: int = 300
    kv_tokens: int | None = None
    cancels: bool = True
    many: bool = True
    without: frozenset[str] = frozenset()
    slots: bool = False
    other: bool = False

    @property
    def room(self) -> int:
        """Return the tokens of a prompt's texts, at most.

        Template, questions and answers take the rest.
        """
        return self.max_length - RANKS * (self.answer_tokens + TURN_TOKENS)


@dataclass
class FamilyPlan:
    """The sessions of one family while they are planned.

    Attributes:
        number: Its number.
        random: Its random numbers.
        limits: What the storm may do.
        streams: Numbers of new streams.
        others: Numbers of families of one prompt.
        next_wave: The number of the wave that comes next.
        acts: The requests that are planned.
        paths: The conversation that each session sent last.
    """

    number: int
    random: Random
    limits: Limits
    streams: Iterator[int]
    others: Iterator[int]
    next_wave: int = 0
    acts: list[Act] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def stream(self, rank: int, tokens: int) -> Stream:
        """Return a new text."""
        return Stream(next(self.streams), self.number, rank, max(SHORTEST, tokens))

    def lone_session(self) -> tuple[int, int]:
        """Return the numbers of a new session and of a new family for it, which shares nothing."""
        return self.session(), next(self.others)

    def length(self, most: int | None = None) -> int:
        """Draw the length of a text, in tokens.

        Short ones come more often, so that each octave of lengths costs a server about as much.
        most: the longest; None for the whole room.
        """
        most = max(SHORTEST, min(most or self.limits.room, self.limits.room))
        octaves = max(0.0, log2(most / SHORTEST))
        steps = [step / 4 for step in range(int(4 * octaves) + 1)]
        (step,) = self.random.choices(steps, [2 ** (-step / 2) for step in steps])
        return min(most, round(SHORTEST * 2 ** (step + self.random.random() / 4)))

    def near_edge(self, tokens: int) -> int:
        """Draw a number of tokens near `tokens` at the end of a block or chunk, or one off it."""
        edges = [edge for edge in EDGES if edge <= tokens] or EDGES[:1]
        edge = self.random.choice(edges)
        return max(1, round(tokens / edge)) * edge + self.random.choice(_NEAR)

    def turn(self, path: Path, pieces: tuple[Piece, ...], total: int | None = None) -> Turn:
        """Draw a user's turn that asks for one fact of the conversation.

        The first and the last fact of its own texts and of the earlier ones are likelier than the
        others. The turn may bring no text. total: tokens of the whole prompt; None for any number.
        """
        new_facts = facts_of(pieces)
        old_facts = facts_of(piece for turn in path for piece in turn.pieces)
        choices = []
        for facts in (new_facts, old_facts):
            if facts:
                choices += [facts[0], facts[-1], self.random.choice(facts)]
        return Turn(pieces, (self.random.choice(choices),), total)

    def session(self) -> int:
        """Add a session without requests, and return its number."""
        self.paths.append(())
        return len(self.paths) - 1

    def plan_request(
        self,
        operation: str,
        session: int,
        path: Path,
        *,
        wave: int | None = None,
        cancel: float | None = None,
        after: float = 0.0,
        family: int | None = None,
        how: How = "",
    ) -> None:
        """Plan one request.

        If no wave is given, it is sent in the next one. If no family is given, it belongs to this
        one; a request that shares nothing with this family has its own.
        """
        if wave is None:
            wave = self.next_wave
        self.next_wave = max(self.next_wave, wave + 1)
        number = self.number if family is None else family
        act = Act(
            0,
            wave,
            family=number,
            session=session,
            operation=operation,
            path=path,
            after=after,
            cancel=cancel,
            how=how,
        )
        self.acts.append(act)
        self.paths[session] = path

    def fits(self, path: Path) -> bool:
        """Return True if the texts of a conversation fit into a prompt."""
        pieces = [piece for turn in path for piece in turn.pieces]
        tokens = sum(piece.tokens for piece in pieces)
        return tokens <= self.limits.room and len(pieces) <= RANKS

    def rank(self, path: Path) -> int:
        """Return the rank of the next stream of a conversation: how many stand before it."""
        return sum(len(turn.pieces) for turn in path)


def facts_of(pieces: Iterable[Piece]) -> list[Fact]:
    """Return the facts that are whole in some texts, in their order."""
    return [
        Fact(piece.stream, number)
        for piece in pieces
        for number in piece.stream.facts_within(piece.tokens)
    ]


class Operation:
    """One thing that sessions do.

    Attributes:
        name: Its name in tables.
        follows: The name of a request that it plans after its own; '' for none.
        share: How often it is drawn, compared with others.
        every: Of one that is not drawn: one round in so many has it, in a family of its own.
    """

    name: ClassVar[str]
    follows: ClassVar[str] = ""
    share: ClassVar[float] = 1.0
    every: ClassVar[int] = 0

    def applies(self, limits: Limits) -> bool:
        """Return True if the server and the limits allow it."""
        return True

    def is_left_out(self, limits: Limits) -> bool:
        """Return True if it, or what follows it, is to be left out."""
        return not limits.without.isdisjoint((self.name, self.follows or self.name))

    def plan(self, family: FamilyPlan) -> None:
        """Plan its requests, for a family that has at least one session with a request."""
        raise NotImplementedError
