"""Save a slot of llama.cpp to a file, use it for other sessions, and restore it."""

from __future__ import annotations

from needlemap.servers.storm.act import Path, Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Slots(Operation):
    """A cache that is restored from a file is as it was saved.

    In ggml-org/llama.cpp#28276 it was not.
    """

    name, follows = "slot", "restored"
    every = 4

    def applies(self, limits: Limits) -> bool:
        """Return True if the server saves slots."""
        return limits.slots

    def plan(self, family: FamilyPlan) -> None:
        """Plan a session that is saved, others in its slot, then the session restored.

        If there is room, half of the restored sessions have a further turn.
        """
        limits = family.limits
        stream = family.stream(0, family.length(limits.room // 2))
        path: Path = (family.turn((), (Piece(stream, stream.tokens),)),)
        session = family.session()
        family.plan_request(self.name, session, path, how="save")

        for _ in range(family.random.choice((1, 2))):
            lone_session, lone_family = family.lone_session()
            text = family.stream(0, family.length(limits.room // 2))
            turn = family.turn((), (Piece(text, text.tokens),))
            family.plan_request(self.name, lone_session, (turn,), family=lone_family, how="slot")

        if family.random.random() < 0.5:
            more = family.stream(1, family.length(limits.room // 4))
            longer = (*path, family.turn(path, (Piece(more, more.tokens),)))
            path = longer if family.fits(longer) else path
        family.plan_request(self.follows, session, path, how="restore")
