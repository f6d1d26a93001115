"""Send sessions that share the start of another session's text, up to the edge of a block."""

from __future__ import annotations

from needlemap.servers.storm.act import ROOM, Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Fork(Operation):
    """Two sessions differ from inside a block on, from its end on, or a token before or after."""

    name = "fork"
    share = 2.0

    def plan(self, family: FamilyPlan) -> None:
        """Plan one to three sessions behind one prefix, sometimes at the same time."""
        parent = family.paths[family.random.randrange(len(family.paths))]
        text = parent[0].pieces[0]
        tokens = family.near_edge(round(text.tokens * family.random.uniform(0.3, 1.0)))
        prefix = Piece(text.stream, max(2 * ROOM, min(tokens, text.tokens)))
        room = family.limits.room - prefix.tokens
        wave = family.next_wave
        is_together = family.random.random() < 0.5
        for _ in range(family.random.choice((1, 2, 3))):
            stream = family.stream(1, family.length(max(1, min(room, text.tokens))))
            path = (family.turn((), (prefix, Piece(stream, stream.tokens))),)
            if family.fits(path):
                family.plan_request(
                    self.name, family.session(), path, wave=wave if is_together else None
                )
