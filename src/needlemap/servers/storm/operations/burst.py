"""Many prompts of mixed lengths at the same time, at the edges of blocks and chunks."""

from __future__ import annotations

from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FRAME_TOKENS, FamilyPlan, Operation


class Burst(Operation):
    """Batches whose rows begin and end at different steps."""

    name = "burst"
    share = 0.5

    def plan(self, family: FamilyPlan) -> None:
        """Plan new sessions at the same time, one fewer than the load allows and two at least.

        Every other one shares a prefix with the first session.
        """
        prefix = family.paths[0][0].pieces[0]
        wave = family.next_wave
        for number in range(max(2, family.limits.load - 1)):
            after = family.random.choice((0.0, 0.0, 0.2, 0.5))
            shares_prefix = number % 2 == 1
            rank = 1 if shares_prefix else 0
            stream = family.stream(rank, family.length(prefix.tokens))
            piece = Piece(stream, stream.tokens)

            path = (family.turn((), (prefix, piece) if shares_prefix else (piece,)),)
            if not shares_prefix:
                total = family.near_edge(piece.tokens + FRAME_TOKENS)
                path = (family.turn((), (piece,), total),)
            if family.fits(path):
                family.plan_request(self.name, family.session(), path, wave=wave, after=after)
