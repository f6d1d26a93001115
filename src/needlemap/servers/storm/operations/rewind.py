"""A session goes back: to an earlier turn, or to a shorter beginning of its first text."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import ROOM, Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Rewind(Operation):
    """A cached prompt that is longer than the one that is asked."""

    name = "rewind"
    known = (
        issue(
            "ml-explore/mlx-lm#1494",
            "a longer cached prompt is used for a shorter one",
            "the prompt cache off",
        ),
    )

    def plan(self, family: FamilyPlan) -> None:
        """An earlier turn with another question, or its first text cut short."""
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        if len(path) > 1 and family.random.random() < 0.5:
            end = family.random.randrange(1, len(path))
            made = (*path[: end - 1], family.turn(path[: end - 1], path[end - 1].pieces))
        else:
            first = path[0].pieces[0]
            tokens = family.near_edge(round(first.tokens * family.random.uniform(0.3, 0.95)))
            piece = Piece(first.stream, max(2 * ROOM, min(tokens, first.tokens)))
            made = (family.turn((), (piece,)),)
        family.ask(self.name, session, made)
