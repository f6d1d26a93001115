"""One answer's score, asked for again after passing failures; what these cost counts too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from needlemap.errors import Unmeasured
from needlemap.money import summed
from needlemap.runs.pacer import Pacer
from needlemap.runs.retry import attempts
from needlemap.scorers.base import Reference, Score, Scorer

LONGEST = 200_000  # characters of an answer that are scored: the first and the last half of them


@dataclass(slots=True)
class Scoring:
    """One answer to be scored; of one that never ended its beginning and its end.

    paid: US dollars of attempts that failed; None for an unknown price.
    """

    scorer: Scorer
    said: str
    reference: Reference
    paid: list[float | None] = field(default_factory=list)

    async def score(self, retries: int, pacer: Pacer | None = None) -> Score:
        """Raises the last Unmeasured, with what all attempts cost."""
        try:
            score, _ = await attempts(self._once, retries, pacer)
        except Unmeasured as failure:
            failure.usd = summed(self.paid)
            raise
        return replace(score, usd=summed([*self.paid, score.usd])) if self.paid else score

    async def _once(self) -> Score:
        try:
            return await self.scorer.score(bounded(self.said), self.reference)
        except Unmeasured as failure:
            self.paid.append(failure.usd)
            raise


def bounded(said: str) -> str:
    """An answer of bearable length.

    >>> len(bounded("x" * 1_000_000)) <= LONGEST, bounded("short")
    (True, 'short')
    """
    return said if len(said) <= LONGEST else f"{said[: LONGEST // 2 - 1]}\n{said[-LONGEST // 2 :]}"
