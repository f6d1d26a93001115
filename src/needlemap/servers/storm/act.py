"""Describe what a storm does: an act is one request of a conversation, a round the acts of a few
families.

All of it follows from the seed alone, so that a record, which has its round and its place there,
shows which request it was. A prompt is given by its texts: the first tokens of some streams, each
of which hides facts of its own near its start, in its middle and near its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

# Facts of a stream.
FACTS = 3
# More acts than any round has: a record's number is the round's times this, plus the act's.
ACTS = 1_000
# Tokens that a fact and the words around it take, at most.
ROOM = 40
# Where a stream's facts stand.
_SHARES = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Stream:
    """A text with a first line of its own, so that no cache holds anything of it.

    Attributes:
        number: Its number in its round.
        family: Its family.
        rank: How many streams may stand before it in a prompt. Streams of equal rank hide facts
            with the same keys.
        tokens: The tokens that it is made for; shorter pieces of it are cut from its start.
    """

    number: int
    family: int
    rank: int
    tokens: int

    def facts_within(self, tokens: int) -> list[int]:
        """Return the numbers of the facts that are whole in its first tokens."""
        return [
            number
            for number, place in enumerate(self.places)
            if tokens >= min(self.tokens, place + ROOM)
        ]

    @property
    def places(self) -> tuple[int, ...]:
        """Return about where each of its facts starts, in tokens."""
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
    """A user's turn in a conversation.

    Attributes:
        pieces: Texts.
        facts: The facts that are asked for, in the order of the answer.
        total: Tokens that the whole prompt is to have; None for what it comes to.
    """

    pieces: tuple[Piece, ...]
    facts: tuple[Fact, ...]
    total: int | None = None

    @property
    def tokens(self) -> int:
        """Return about how many tokens its texts have."""
        return sum(piece.tokens for piece in self.pieces)


How = Literal["", "slot", "save", "restore", "other"]
# A conversation's user turns; between them stand the model's own answers.
Path = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Act:
    """One request.

    Attributes:
        number: Its number in its round.
        wave: Requests of one wave are sent at the same time, once the wave before has ended.
        family: Sessions of one family share texts, and none with other families.
        session: Its session.
        operation: The name of the operation that planned it.
        path: Its conversation.
        after: When it is sent after its wave started, as a share of the time that a prompt of its
            length took at the start of the storm.
        cancel: How long it is waited for until the client goes away, in the same unit; None to its
            end.
        salt: Another first line, of as many digits, which no cache holds.
        how: 'slot' in llama.cpp's slot that is saved; 'save' there, and then the slot is saved;
            'restore' after the slot was restored; 'other' to the second model; '' for none of
            these.
    """

    number: int
    wave: int
    family: int
    session: int
    operation: str
    path: Path
    after: float = 0.0
    cancel: float | None = None
    salt: str = ""
    how: How = ""

    @property
    def asked_facts(self) -> tuple[Fact, ...]:
        """Return the facts that are asked for."""
        return self.path[-1].facts

    @property
    def tokens(self) -> int:
        """Return about how many tokens its texts have."""
        return sum(turn.tokens for turn in self.path)

    @property
    def pieces(self) -> Iterator[Piece]:
        """Return all texts of its prompt."""
        return (piece for turn in self.path for piece in turn.pieces)


@dataclass(frozen=True)
class Round:
    """The acts of a few families, wave by wave. number: in the storm."""

    number: int
    acts: tuple[Act, ...]

    @cached_property
    def waves(self) -> list[list[Act]]:
        """Return the acts, wave by wave."""
        by_wave: dict[int, list[Act]] = {}
        for act in self.acts:
            by_wave.setdefault(act.wave, []).append(act)
        return [acts for _, acts in sorted(by_wave.items())]

    def until(self, act: Act) -> Round:
        """Return the round with only the waves up to that of an act."""
        return self.of(other for other in self.acts if other.wave <= act.wave)

    def of(self, acts: Iterable[Act]) -> Round:
        """Return the round with only some of its acts, and those whose answers they continue."""
        by_number = {act.number: act for act in acts}
        paths = {act.path for act in by_number.values()}
        needed_paths = {
            act.path[:end] for act in by_number.values() for end in range(1, len(act.path))
        }
        for act in self.acts:
            if act.path in needed_paths and act.path not in paths:
                by_number[act.number] = act
                paths.add(act.path)
        return replace(self, acts=tuple(by_number[number] for number in sorted(by_number)))


def key_of(round_number: int, act: int) -> int:
    """Return the number of the record of an act. act: its number in the round."""
    return round_number * ACTS + act


def ordered(acts: Sequence[Act]) -> tuple[Act, ...]:
    """Return acts by wave, numbered in that order. Acts of one wave keep their order."""
    by_wave = sorted(acts, key=lambda act: act.wave)
    return tuple(replace(act, number=number) for number, act in enumerate(by_wave))
