"""Send the same prompt once more, byte for byte."""

from __future__ import annotations

from needlemap.servers.storm.operation import FamilyPlan, Operation


class Again(Operation):
    """A hit that ends where the prompt does."""

    name = "again"

    def plan(self, family: FamilyPlan) -> None:
        """Plan one or two repeats of a session's last prompt, in turn or at the same time."""
        session = family.random.randrange(len(family.paths))
        path, wave = family.paths[session], family.next_wave
        is_together = family.random.random() < 0.3
        for _ in range(family.random.choice((1, 1, 2))):
            family.plan_request(self.name, session, path, wave=wave if is_together else None)
