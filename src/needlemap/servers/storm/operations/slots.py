"""llama.cpp's slots are saved to a file, used for others, and restored."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Path, Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Slots(Operation):
    """A cache that comes from a file goes on as it was."""

    name, follows = "slot", "restored"
    every = 4
    known = (
        issue(
            "ggml-org/llama.cpp#28276",
            "a restored slot hides a longer cached prompt",
            "no saved slots",
        ),
    )

    def applies(self, limits: Limits) -> bool:
        """Where the server saves slots."""
        return limits.slots

    def plan(self, family: FamilyPlan) -> None:
        """A session is saved, others use its slot; it is restored, asked again, and goes on."""
        limits = family.limits
        stream = family.stream(0, family.length(limits.room // 2))
        path: Path = (family.turn((), (Piece(stream, stream.tokens),)),)
        session = family.session()
        family.ask(self.name, session, path, how="save")
        for _ in range(family.random.choice((1, 2))):
            other, own = family.lone()
            text = family.stream(0, family.length(limits.room // 2))
            turn = family.turn((), (Piece(text, text.tokens),))
            family.ask(self.name, other, (turn,), family=own, how="slot")
        if family.random.random() < 0.5:
            more = family.stream(1, family.length(limits.room // 4))
            longer = (*path, family.turn(path, (Piece(more, more.tokens),)))
            path = longer if family.fits(longer) else path
        family.ask("restored", session, path, how="restore")
