"""Send so many other prompts that cached prefixes must be evicted, then come back to one."""

from __future__ import annotations

from math import ceil

from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation

# Tokens of a flood, as a multiple of what the cache holds.
SPARE = 1.1


class Flood(Operation):
    """Evicted prefixes are computed again, or loaded back."""

    name, follows = "flood", "back"

    def applies(self, limits: Limits) -> bool:
        """Return True if it is known how many tokens the server caches."""
        return limits.kv_tokens is not None

    def plan(self, family: FamilyPlan) -> None:
        """Plan prompts that share nothing, as long as possible; then repeat a session's last."""
        limits = family.limits
        session = family.random.randrange(len(family.paths))
        size = max(1, limits.room)
        count = ceil(SPARE * (limits.kv_tokens or 0) / size)
        for start in range(0, count, limits.load):
            wave = family.next_wave
            for _ in range(start, min(count, start + limits.load)):
                stream = family.stream(0, size)
                lone_session, lone_family = family.lone_session()
                turn = family.turn((), (Piece(stream, stream.tokens),))
                family.plan_request(self.name, lone_session, (turn,), wave=wave, family=lone_family)
        family.plan_request(self.follows, session, family.paths[session])
