"""So many other prompts that what the server cached must be evicted; then a session comes back."""

from __future__ import annotations

from math import ceil

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation

SPARE = 1.1  # times what a cache holds


class Flood(Operation):
    """Evicted prefixes are computed again, or loaded back."""

    name, follows = "flood", "back"
    known = (
        issue(
            "sgl-project/sglang#38031",
            "a prefix that is loaded back lacks a part of its index",
            "the host cache off",
        ),
    )

    def applies(self, limits: Limits) -> bool:
        """Where it is known what the server caches."""
        return limits.kv_tokens is not None

    def plan(self, family: FamilyPlan) -> None:
        """Prompts that share nothing, as long as there may be; then the session's own once
        more."""
        limits = family.limits
        session = family.random.randrange(len(family.paths))
        size = max(1, limits.room)
        count = ceil(SPARE * (limits.kv_tokens or 0) / size)
        for start in range(0, count, limits.load):
            wave = family.at
            for _ in range(start, min(count, start + limits.load)):
                stream, (other, own) = family.stream(0, size), family.lone()
                flood = family.turn((), (Piece(stream, stream.tokens),))
                family.ask(self.name, other, (flood,), wave=wave, family=own)
        family.ask("back", session, family.paths[session])
