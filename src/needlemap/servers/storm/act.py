"""What a storm does: an act is one request of a conversation, a round the acts of a few families.

All of it follows from the seed alone, so that a record, which says its round and its place there,
tells which request it was. A prompt is told by its texts: the first tokens of some streams, each of
which hides facts of its own near its beginning, in its middle and near its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

FACTS = 3  # of a stream
ACTS = 1_000  # more than any round has: a record's number is the round's times this, and the act's
ROOM = 40  # tokens that a fact and the words around it take at most
_SHARES = (0.0, 0.5, 1.0)  # where a stream's facts stand


@dataclass(frozen=True, slots=True)
class Stream:
    """A text with a first line of its own, so that no cache holds anything of it. number: in its
    round. rank: how many streams may stand before it in a prompt; equal ones hide facts with the
    same keys. tokens: what it is made for; shorter pieces of it are cut from its beginning."""

    number: int
    family: int
    rank: int
    tokens: int

    def facts_within(self, tokens: int) -> list[int]:
        """The numbers of the facts that its first tokens hold."""
        return [
            at for at, place in enumerate(self.places) if tokens >= min(self.tokens, place + ROOM)
        ]

    @property
    def places(self) -> tuple[int, ...]:
        """The token at which each of its facts starts, about."""
        last = max(0, self.tokens - ROOM)
        return tuple(round(share * last) for share in _SHARES)


@dataclass(frozen=True, slots=True)
class Piece:
    """The first tokens of a stream."""

    stream: Stream
    tokens: int


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a stream."""

    stream: Stream
    number: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What a user says: texts, and which facts are asked for, the first and the last of the answer
    at its ends. total: tokens that the whole prompt is to have; None: as it comes."""

    pieces: tuple[Piece, ...]
    asked: tuple[Fact, ...]
    total: int | None = None

    @property
    def tokens(self) -> int:
        """About how many its texts have."""
        return sum(piece.tokens for piece in self.pieces)


Path = tuple[Turn, ...]  # a conversation's user turns; between them stand the model's own answers


@dataclass(frozen=True, slots=True)
class Act:
    """One request. number: in its round. wave: those of one wave are sent at the same time, once
    the wave before has ended. family: of sessions that share texts, and none with other families.
    after, cancel: when it is sent after its wave began, and how long it is waited for until the
    client goes away (None: to its end), as shares of the time that a prompt of its length took at
    the storm's beginning. salt: another first line, of as many digits, which no cache holds."""

    number: int
    wave: int
    family: int
    session: int
    operation: str
    path: Path
    after: float = 0.0
    cancel: float | None = None
    salt: str = ""

    @property
    def asked_facts(self) -> tuple[Fact, ...]:
        """The facts that are asked for."""
        return self.path[-1].asked

    @property
    def tokens(self) -> int:
        """About how many its texts have."""
        return sum(turn.tokens for turn in self.path)

    @property
    def streams(self) -> Iterator[Piece]:
        """All texts of its prompt."""
        return (piece for turn in self.path for piece in turn.pieces)


@dataclass(frozen=True)
class Round:
    """The acts of a few families, wave by wave. number: in the storm."""

    number: int
    acts: tuple[Act, ...]

    @cached_property
    def waves(self) -> list[list[Act]]:
        """The acts, wave by wave."""
        found: dict[int, list[Act]] = {}
        for act in self.acts:
            found.setdefault(act.wave, []).append(act)
        return [found[wave] for wave in sorted(found)]

    def until(self, act: Act) -> Round:
        """What is asked up to one act, and with it."""
        return self.of(each for each in self.acts if each.wave <= act.wave)

    def of(self, acts: Iterable[Act]) -> Round:
        """Some of its acts, and those whose answers they go on behind."""
        kept = {act.number: act for act in acts}
        said = {act.path for act in kept.values()}
        wanted = {act.path[:end] for act in kept.values() for end in range(1, len(act.path))}
        for act in self.acts:
            if act.path in wanted - said:
                kept[act.number] = act
                said.add(act.path)
        return replace(self, acts=tuple(kept[number] for number in sorted(kept)))


def key_of(round_number: int, act: int) -> int:
    """The number of a record."""
    return round_number * ACTS + act


def ordered(acts: Sequence[Act]) -> tuple[Act, ...]:
    """Acts numbered by wave, in the order in which they were made."""
    rows = sorted(acts, key=lambda act: act.wave)
    return tuple(replace(act, number=number) for number, act in enumerate(rows))
