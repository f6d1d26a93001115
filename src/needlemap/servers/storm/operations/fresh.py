"""Send the first prompt of a new session, often at the edge of a block or next to it."""

from __future__ import annotations

from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FRAME_TOKENS, FamilyPlan, Operation


class Fresh(Operation):
    """Each family begins with it."""

    name = "fresh"
    share = 0.0

    def plan(self, family: FamilyPlan) -> None:
        """Plan one prompt of a new session."""
        tokens = family.length()
        total = None
        if family.random.random() < 0.6:
            total = family.near_edge(tokens + FRAME_TOKENS)
        stream = family.stream(0, tokens)
        piece = Piece(stream, stream.tokens)
        family.plan_request(self.name, family.session(), (family.turn((), (piece,), total),))
