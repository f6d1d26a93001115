"""A conversation of thirty turns and more."""

from __future__ import annotations

from needlemap.servers.storm.act import Path, Piece
from needlemap.servers.storm.operation import RANKS, SHORTEST, FamilyPlan, Limits, Operation
from needlemap.servers.storm.operations.long_answer import LongAnswer

TURNS = 30, 40  # of a conversation
TEXTS = 0.1  # share of its turns that bring a text, as far as there may be more


class Talk(Operation):
    """Cached prefixes that grow by a few tokens at a time, most of which decoding wrote."""

    name = "talk"
    every = 8
    known = LongAnswer.known

    def applies(self, limits: Limits) -> bool:
        """Where there is room for as many turns."""
        return most_turns(limits) >= TURNS[0]

    def plan(self, family: FamilyPlan) -> None:
        """One session, turn by turn; most ask about what stands there."""
        limits = family.limits
        fewest, most = TURNS[0], min(TURNS[1], most_turns(limits))
        session = family.session()
        path: Path = ()
        for number in range(family.random.randint(fewest, most)):
            brings = not number or (family.rank(path) < RANKS and family.random.random() < TEXTS)
            pieces: tuple[Piece, ...] = ()
            if brings:
                stream = family.stream(family.rank(path), family.length(text_tokens(limits)))
                pieces = (Piece(stream, stream.tokens),)
            path = (*path, family.turn(path, pieces))
            family.ask(self.name, session, path)


def most_turns(limits: Limits) -> int:
    """Return how many turns fit, each with an answer, beside the texts."""
    spare = limits.room - RANKS * SHORTEST
    return RANKS + max(0, spare) // (limits.answer_tokens + 60)


def text_tokens(limits: Limits) -> int:
    """Return the tokens of one of its texts at most: as many as so many turns leave."""
    spare = limits.room - (TURNS[1] - RANKS) * (limits.answer_tokens + 60)
    return max(SHORTEST, spare // RANKS)
