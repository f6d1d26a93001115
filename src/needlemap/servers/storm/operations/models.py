"""Send prompts to two models of one server, or to one with and without an adapter."""

from __future__ import annotations

from needlemap.servers.storm.act import How, Piece
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class Models(Operation):
    """The same prompts go to both, at the same time and in turns.

    In ggml-org/llama.cpp#26207, what one adapter cached was used for another.
    """

    name = "models"
    every = 4

    def applies(self, limits: Limits) -> bool:
        """Return True if the server has a second model that answers."""
        return limits.other

    def plan(self, family: FamilyPlan) -> None:
        """Plan one to three prompts, each for both models in drawn order, then for both at once."""
        for _ in range(family.random.choice((1, 2, 3))):
            stream = family.stream(0, family.length(family.limits.room // 2))
            path = (family.turn((), (Piece(stream, stream.tokens),)),)
            session = family.session()
            other_session = family.session()
            requests: tuple[tuple[int, How], ...] = ((session, ""), (other_session, "other"))
            for number, how in family.random.sample(requests, 2):
                family.plan_request(self.name, number, path, how=how)

            wave = family.next_wave
            family.plan_request(self.name, other_session, path, wave=wave, how="other")
            family.plan_request(self.name, session, path, wave=wave)
