"""Is B better than A, no worse, or worse? By a margin given beforehand, and what it would take to tell."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from needlemap.maps.difference import Difference

Word = Literal["better", "no worse", "worse", "cannot tell"]
CEILING = 0.99
FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """word; more: further pairs that would tell if the difference stays, None when told or no number would.

    warning: why the reference proves little or nothing here; empty when it does.
    """

    word: Word
    more: int | None
    warning: str


UNCOUNTED = Verdict(
    "cannot tell",
    None,
    "each score is a mean, and the files do not say of how many answers: no n, no interval",
)


def verdict(difference: Difference, margin: float) -> Verdict:
    """Judge a difference against a margin, a share (Piaggio et al. 2012, JAMA 308:2594, figure 1).

    better: the whole 95 % interval lies above 0, which is no worse too. no worse: it lies above -margin, be
    it below 0 or not. worse: it lies below 0, and reaches -margin or beyond: a loss, of which Piaggio et al.
    would say that it matters only where the whole interval lies beyond -margin. cannot tell: else, or where
    the reference scores so little that it could not lose the margin.
    """
    warning = _warning(difference, margin)
    if difference.low > 0:  # also where the reference is at the floor: there is much to gain
        return Verdict("better", None, "")
    if difference.first <= max(margin, FLOOR):
        return Verdict("cannot tell", None, warning)
    if difference.low > -margin:
        return Verdict("no worse", None, warning)
    if difference.high < 0:
        return Verdict("worse", None, warning)
    return Verdict("cannot tell", more_pairs(difference, margin), warning)


def more_pairs(difference: Difference, margin: float) -> int | None:
    """Further pairs after which the interval, narrowed by the root of n, clears -margin or 0; None if never.

    Takes the observed difference to be the true one.
    """
    half = (difference.high - difference.low) / 2
    gap = max(difference.value + margin, -difference.value)
    needed = difference.n * (half / gap) ** 2 if gap > 1e-9 else inf
    return ceil(needed) - difference.n if needed > difference.n and needed < inf else None


def _warning(difference: Difference, margin: float) -> str:
    if difference.first <= max(margin, FLOOR):
        return "the reference is at the floor: there is nothing that could be lost, so this proves nothing"
    if difference.first >= CEILING:
        return (
            "the reference is at the ceiling: trials as easy as these show only gross losses; "
            "use longer lengths or a harder task"
        )
    return ""
