"""Ask for several facts at once, so that the answer crosses the edges of blocks."""

from __future__ import annotations

from needlemap.servers.storm.act import Turn
from needlemap.servers.storm.operation import FamilyPlan, Limits, Operation, facts_of
from needlemap.servers.storm.operations.again import Again


class LongAnswer(Operation):
    """Decoding writes whole blocks; both ends of the answer are known."""

    name = "long"

    def applies(self, limits: Limits) -> bool:
        """Return True if the model answers several questions at once."""
        return limits.many

    def plan(self, family: FamilyPlan) -> None:
        """Plan a question for all facts in the last turn of a drawn session, then repeat it.

        Nothing is planned if that turn holds fewer than two facts.
        """
        session = family.random.randrange(len(family.paths))
        path = family.paths[session]
        pieces = path[-1].pieces
        facts = facts_of(pieces)
        if len(facts) < 2:
            return

        long_path = (*path[:-1], Turn(pieces, tuple(facts)))
        family.plan_request(self.name, session, long_path)
        # The repeat hits the cache. The hit must end where the prompt does, not in the blocks that
        # decoding wrote behind it.
        family.plan_request(Again.name, session, long_path)
