"""How well a model tells what is there from what is not: balanced accuracy, false answers.

Of records whose scorer says whether the text held what was asked for (`scorer.why.present`, by `only`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from needlemap.maps.cube import by_prompt, known_scores, latest_records
from needlemap.maps.intervals import wilson
from needlemap.records.record import Record


@dataclass(frozen=True, slots=True)
class Rate:
    """hits of n, with the 95 % Wilson interval."""

    hits: float
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, scores: list[float]) -> Rate | None:
        """Their mean; None without any."""
        interval = wilson(sum(scores), len(scores))
        return None if interval is None else cls(sum(scores), len(scores), *interval)

    @property
    def share(self) -> float:
        """hits / n."""
        return self.hits / self.n

    @property
    def rest(self) -> Rate:
        """That of the others."""
        return Rate(self.n - self.hits, self.n, 1 - self.high, 1 - self.low)


@dataclass(frozen=True, slots=True)
class Balance:
    """found: scores where it was there. rejected: where it was not, whether the answer said so.

    false: the other answers there. named: of them, those that took a value that stands in the text; invented:
    those that made one up.
    """

    found: Rate
    rejected: Rate
    named: int
    invented: int = 0

    @property
    def false(self) -> Rate:
        """Answers to what the text does not answer."""
        return self.rejected.rest

    @property
    def accuracy(self) -> tuple[float, float, float]:
        """Half of the sum of both rates, which no constant answer lifts above one half; low, high.

        Interval by adding the rates' distances to their Wilson ends in squares (Newcombe 1998, Statistics in
        Medicine 17:873, method 10; Zou and Donner 2008, Statistics in Medicine 27:1693).
        """
        share = (self.found.share + self.rejected.share) / 2
        rates = (self.found, self.rejected)
        below = sqrt(sum((rate.share - rate.low) ** 2 for rate in rates)) / 2
        above = sqrt(sum((rate.high - rate.share) ** 2 for rate in rates)) / 2
        return share, max(0.0, share - below), min(1.0, share + above)


def balance(records: Iterable[Record]) -> Balance | None:
    """That of a run; None where its questions were not of both kinds. Each different prompt counts once."""
    scores: dict[bool, list[float]] = {True: [], False: []}
    named = invented = 0
    for group in by_prompt(latest_records(records)):
        told = [record for record in group if _why(record, "present") is not None]
        known = known_scores(told)
        if known:
            present = bool(_why(told[0], "present"))
            scores[present].append(sum(known) / len(known))
            named += not present and bool(_why(told[0], "decoys"))
            invented += not present and bool(_why(told[0], "invented"))
    found, rejected = Rate.of(scores[True]), Rate.of(scores[False])
    return Balance(found, rejected, named, invented) if found and rejected else None


def _why(record: Record, what: str) -> object:
    return record.scorer.why.get(what) if record.scorer is not None and record.scored else None
