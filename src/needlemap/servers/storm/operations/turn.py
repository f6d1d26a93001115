"""Continue a conversation after the model's own answer."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class GoOn(Operation):
    """The rows that decoding wrote are used again."""

    name = "turn"
    share = 2.0
    known = (
        issue(
            "vllm-project/vllm#53912",
            "answers of another request's state, with draft tokens",
            "speculative decoding off",
        ),
        issue(
            "ggml-org/llama.cpp#26185",
            "the second turn answers another question",
            "the server's cache of prompts off",
        ),
    )

    def plan(self, family: FamilyPlan) -> None:
        """One further turn of a session, as long as there is room."""
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        stream = family.stream(family.rank(path), family.length(family.limits.room // 4))
        piece = Piece(stream, stream.tokens)
        made = (*path, family.turn(path, (piece,)))
        if family.fits(made):
            family.ask(self.name, session, made)
