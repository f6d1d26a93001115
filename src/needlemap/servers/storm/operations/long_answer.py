"""Several facts are asked for at once, so that an answer goes over the edges of blocks."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Fact, Turn
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation


class LongAnswer(Operation):
    """Decoding writes whole blocks; both ends of the answer are known."""

    name = "long"
    known = (
        issue(
            "vllm-project/vllm#47087",
            "long answers of deep conversations go in circles",
            "speculative decoding off",
        ),
    )

    def applies(self, limits: Limits) -> bool:
        """Where the model answers several questions at once."""
        return limits.many

    def plan(self, family: FamilyPlan) -> None:
        """All facts of a session's last texts."""
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        last = path[-1]
        held = [(piece.stream, piece.stream.facts_within(piece.tokens)) for piece in last.pieces]
        facts = [Fact(stream, at) for stream, places in held for at in places]
        if len(facts) > 1:
            turn = Turn(last.pieces, tuple(facts[:8]))
            family.ask(self.name, session, (*path[:-1], turn))
            family.ask("again", session, family.paths[session])
