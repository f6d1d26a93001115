"""Many prompts of mixed lengths at the same time, at the edges of blocks and chunks."""

from __future__ import annotations

from needlemap.servers.check.finding import issue
from needlemap.servers.storm.act import Piece
from needlemap.servers.storm.operation import FamilyPlan, Operation


class Burst(Operation):
    """Batches whose rows begin and end at different steps."""

    name = "burst"
    share = 0.5
    known = (
        issue(
            "sgl-project/sglang#22688",
            "a chunk of length zero where prefixes of a batch differ",
            "mixed chunks off",
        ),
    )

    def plan(self, family: FamilyPlan) -> None:
        """As many sessions as the storm has requests at a time; half of them share a
        prefix."""
        first, wave = family.paths[0][0].pieces[0], family.at
        for number in range(max(2, family.limits.load - 1)):
            after = family.random.choice((0.0, 0.0, 0.2, 0.5))
            shares = number % 2
            rank = 1 if shares else 0
            stream = family.stream(rank, family.length(first.tokens))
            own = Piece(stream, stream.tokens)
            made = (family.turn((), (first, own) if shares else (own,)),)
            if not shares:
                edge = family.near_edge(own.tokens + 120)
                made = (family.turn((), (own,), edge),)
            if family.fits(made):
                family.ask(self.name, family.session(), made, wave=wave, after=after)
