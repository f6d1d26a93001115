"""A second session that shares the beginning of another one's text, up to the edge of a block."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import ROOM, Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Fork(Operation):
    """Two sessions part inside a block, at its end, or a token beside."""

    name = "fork"
    share = 2.0
    known = (
        issue(
            "sgl-project/sglang#22819",
            "a prefix of exactly one block is read wrong",
            "another page size",
        ),
    )

    def plan(self, family: FamilyPlan) -> None:
        """One to three sessions behind one prefix, sometimes at the same time."""
        parent = family.paths[family.random.randrange(len(family.paths))]
        first = parent[0].pieces[0]
        tokens = family.near_edge(round(first.tokens * family.random.uniform(0.3, 1.0)))
        shared = Piece(first.stream, max(2 * ROOM, min(tokens, first.tokens)))
        room, wave = family.limits.room - shared.tokens, family.at
        together = family.random.random() < 0.5
        for _ in range(family.random.choice((1, 2, 3))):
            stream = family.stream(1, family.length(max(1, min(room, first.tokens))))
            made = (family.turn((), (shared, Piece(stream, stream.tokens))),)
            if family.fits(made):
                family.ask(self.name, family.session(), made, wave=wave if together else None)
