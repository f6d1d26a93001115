"""Two models on one server, or one with and without an adapter."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Models(Operation):
    """The same prompts go to both, at the same time and in turns."""

    name = "models"
    every = 4
    known = (
        issue(
            "ggml-org/llama.cpp#26207",
            "a prompt that was cached with one adapter serves another",
            "the cache of prompts off",
        ),
    )

    def applies(self, limits: Limits) -> bool:
        """Where a second model answers."""
        return limits.other

    def plan(self, family: FamilyPlan) -> None:
        """A prompt for the second model and for the first; then both at the same time."""
        for _ in range(family.random.choice((1, 2, 3))):
            stream = family.stream(0, family.length(family.limits.room // 2))
            path = (family.turn((), (Piece(stream, stream.tokens),)),)
            session, other = family.session(), family.session()
            for name in family.random.sample((0, 1), 2):
                family.ask(self.name, (session, other)[name], path, how=("", "other")[name])
            wave = family.at
            family.ask(self.name, other, path, wave=wave, how="other")
            family.ask(self.name, session, path, wave=wave)
