"""A client goes away in the middle, and asks again."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Cancel(Operation):
    """A request ends in prefill or while it is answered, others go on beside it."""

    name, follows = "cancel", "retry"
    known = (
        issue(
            "sgl-project/sglang#23392",
            "a cancelled request's retry spoils others",
            "retries only after the server has let go of the first request",
        ),
    )

    def applies(self, limits: Limits) -> bool:
        """Not at somebody else's server, unless it is allowed."""
        return limits.cancels

    def plan(self, family: FamilyPlan) -> None:
        """Some clients go away at once; then the same prompts are asked to the end."""
        paths = []
        wave = family.at
        for _ in range(family.random.choice((1, 2))):
            stream = family.stream(0, family.length())
            made = (family.turn((), (Piece(stream, stream.tokens),)),)
            paths.append((family.session(), made))
        for session, made in paths:
            share = family.random.choice((0.02, 0.1, 0.3, 0.6, 0.9, 1.2))
            family.ask(self.name, session, made, wave=wave, cancel=share)
        for session, made in paths:
            family.ask("retry", session, made, wave=wave + 1)
