"""Send a conversation of thirty turns or more."""

from __future__ import annotations

from needlemap.servers.storm.act import Path, Piece
from needlemap.servers.storm.operation import (
    RANKS,
    SHORTEST,
    TURN_TOKENS,
    FamilyPlan,
    Limits,
    Operation,
)

# Turns of a conversation, at least and at most.
TURNS = 30, 40
# Share of its turns that bring a text, as long as a prompt may have more of them.
TEXTS = 0.1


class Talk(Operation):
    """Cached prefixes that grow by a few tokens at a time, most of which decoding wrote."""

    name = "talk"
    every = 8

    def applies(self, limits: Limits) -> bool:
        """Return True if there is room for that many turns."""
        return most_turns(limits) >= TURNS[0]

    def plan(self, family: FamilyPlan) -> None:
        """Plan one session, turn by turn. Most turns ask about texts that were sent before."""
        limits = family.limits
        fewest, most = TURNS
        most = min(most, most_turns(limits))
        session = family.session()
        path: Path = ()
        for number in range(family.random.randint(fewest, most)):
            has_room = family.rank(path) < RANKS
            pieces: tuple[Piece, ...] = ()
            if number == 0 or (has_room and family.random.random() < TEXTS):
                stream = family.stream(family.rank(path), family.length(text_tokens(limits)))
                pieces = (Piece(stream, stream.tokens),)
            path = (*path, family.turn(path, pieces))
            family.plan_request(self.name, session, path)


def most_turns(limits: Limits) -> int:
    """Return how many turns fit, each with an answer, if every text has its shortest length."""
    spare = limits.room - RANKS * SHORTEST
    return RANKS + max(0, spare) // (limits.answer_tokens + TURN_TOKENS)


def text_tokens(limits: Limits) -> int:
    """Return the most tokens that one text may have, so that TURNS[1] turns fit."""
    spare = limits.room - (TURNS[1] - RANKS) * (limits.answer_tokens + TURN_TOKENS)
    return max(SHORTEST, spare // RANKS)
