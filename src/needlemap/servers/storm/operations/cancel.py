"""Let a client go away before its answer, then send its prompt again."""

from __future__ import annotations

from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Cancel(Operation):
    """A request ends in prefill or in decoding, while others go on."""

    name, follows = "cancel", "retry"

    def applies(self, limits: Limits) -> bool:
        """Return True if clients may go away: not at another's server, unless it is allowed."""
        return limits.cancels

    def plan(self, family: FamilyPlan) -> None:
        """Plan one or two clients that go away, then the same prompts to their end."""
        requests = []
        wave = family.next_wave
        for _ in range(family.random.choice((1, 2))):
            stream = family.stream(0, family.length())
            path = (family.turn((), (Piece(stream, stream.tokens),)),)
            requests.append((family.session(), path))

        for session, path in requests:
            # Shares of the time that such a request took on an idle server: from its prefill on to
            # after its answer.
            share = family.random.choice((0.02, 0.1, 0.3, 0.6, 0.9, 1.2))
            family.plan_request(self.name, session, path, wave=wave, cancel=share)
        for session, path in requests:
            family.plan_request(self.follows, session, path, wave=wave + 1)
