"""Go back in a session, to an earlier turn or to a shorter start of its first text."""

from __future__ import annotations

from needlemap.servers.storm.act import ROOM, Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Rewind(Operation):
    """A cached prompt is longer than the one that is sent."""

    name = "rewind"

    def plan(self, family: FamilyPlan) -> None:
        """Plan an earlier turn of a session with another question, or its first text cut short."""
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        if len(path) > 1 and family.random.random() < 0.5:
            number = family.random.randrange(1, len(path)) - 1
            before = path[:number]
            new_path = (*before, family.turn(before, path[number].pieces))
        else:
            text = path[0].pieces[0]
            tokens = family.near_edge(round(text.tokens * family.random.uniform(0.3, 0.95)))
            piece = Piece(text.stream, max(2 * ROOM, min(tokens, text.tokens)))
            new_path = (family.turn((), (piece,)),)
        family.plan_request(self.name, session, new_path)
