"""Continue a conversation after the model's own answer."""

from __future__ import annotations

from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class GoOn(Operation):
    """The rows that decoding wrote are used again."""

    name = "turn"
    share = 2.0

    def plan(self, family: FamilyPlan) -> None:
        """Plan one further turn of a session, if there is room for its text."""
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        stream = family.stream(family.rank(path), family.length(family.limits.room // 4))
        piece = Piece(stream, stream.tokens)
        longer_path = (*path, family.turn(path, (piece,)))
        if family.fits(longer_path):
            family.plan_request(self.name, session, longer_path)
