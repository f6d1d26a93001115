"""A session of its own asks for the first time, in a length at the edge of a block or beside it."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Fresh(Operation):
    """Each family begins with it."""

    name = "fresh"
    share = 0.0
    known = (
        issue(
            "sgl-project/sglang#34947",
            "a prompt above one length is computed without attention",
            "chunked prefill with smaller chunks",
        ),
    )

    def plan(self, family: FamilyPlan) -> None:
        """One prompt of a new session."""
        tokens = family.length()
        edge = family.near_edge(tokens + 120) if family.random.random() < 0.6 else None
        stream = family.stream(0, tokens)
        piece = Piece(stream, stream.tokens)
        family.ask(self.name, family.session(), (family.turn((), (piece,), edge),))
