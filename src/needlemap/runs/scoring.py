"""One answer's score, asked for again after passing failures; what these cost counts too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from unicodedata import normalize

from needlemap.errors import Unmeasured
from needlemap.runs.pacer import Pacer
from needlemap.runs.retry import attempts
from needlemap.scorers.base import Connected, Reference, Score, Scorer
from needlemap.settings.prices import summed

LONGEST = 40_000  # characters of an answer that are scored: the first and the last half of them
JUDGED = 200_000  # that a judge reads
_MUCH = 3  # times the right answer are scored in any case


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
            most = JUDGED if isinstance(self.scorer, Connected) else LONGEST
            most = max(most, _MUCH * len(self.reference.answer))
            return await self.scorer.score(bounded(self.said, most), self.reference)
        except Unmeasured as failure:
            self.paid.append(failure.usd)
            raise


def bounded(said: str, most: int = LONGEST) -> str:
    """An answer of bearable length, also as scorers compare it: one letter may stand for eighteen.

    >>> len(bounded("x" * 1_000_000)) <= LONGEST, bounded("short")
    (True, 'short')
    """
    said, room = _ends(said, most), most
    while not said.isascii() and len(normalize("NFKC", said)) > most:
        room //= 2
        said = _ends(said, room)
    return said


def _ends(said: str, most: int) -> str:
    """A text, or the two ends of a longer one."""
    return said if len(said) <= most else f"{said[: most // 2 - 1]}\n{said[-(most // 2) :]}"
