"""Find what a comparison cannot test: families and lengths that the reference gets wrong.

If nothing is right, nothing can be lost. In a mean such a family hides the loss of the others:
three dead families of four turn a loss of 50 points into 12. So a verdict leaves them out and
names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array
from needlemap.stats.rows import Rows

# Fewer prompts show little about a share: of 20 that a model gets right with probability 0.75,
# under half are right in 1 of 250 cases.
LEAST_PROMPTS = 20
LEAST_RIGHT = 0.5
FLOOR = 0.01
# At a length that is half right, none of six is right in 1 of 64 cases.
FEWEST_OF_LENGTH = 6


@dataclass(frozen=True, slots=True)
class NotTested:
    """A family, or some of its lengths, that the reference mostly gets wrong.

    Attributes:
        family: empty if there is only one.
        lengths: empty for all of them.
        n: prompts.
        right: the sum of their scores.
    """

    family: str
    lengths: tuple[int, ...]
    n: int
    right: float


def is_untested(n: int, right: float) -> bool:
    """Return True if the reference got under half of enough prompts right.

    >>> is_untested(20, 9), is_untested(20, 10), is_untested(19, 0)
    (True, False, False)
    """
    return n >= LEAST_PROMPTS and right < LEAST_RIGHT * n


def drop_untested(rows: Rows, margin: float) -> tuple[Rows, tuple[NotTested, ...]]:
    """Return the pairs that could show a loss, and the groups that were left out.

    A family, or a length with FEWEST_OF_LENGTH prompts, is also left out if its mean is so low
    that it could not lose the margin. If no pair could show a loss, all rows are returned, so
    that the numbers can still be shown.
    """
    is_tested = np.ones(len(rows.first), dtype=bool)
    untested = list[NotTested]()
    for group, in_group in _untested_groups(rows, margin):
        is_tested &= ~in_group
        untested.append(group)
    return (rows.where(is_tested) if is_tested.any() else rows), tuple(untested)


def count_tested(rows: Rows, untested: tuple[NotTested, ...]) -> tuple[int, int]:
    """Return the number of families with a tested length, and the number of all families."""
    numbers = np.unique(rows.family[~np.isnan(rows.first)]).tolist()
    untested_families = {group.family for group in untested if not group.lengths}
    return sum(rows.names[number] not in untested_families for number in numbers), len(numbers)


def _untested_groups(rows: Rows, margin: float) -> Iterator[tuple[NotTested, NDArray[np.bool_]]]:
    """Yield the group that is not tested in each family, if any, with a mask of its rows."""
    measured = ~np.isnan(rows.first)
    for number in np.unique(rows.family[measured]).tolist():
        in_family = rows.family == number
        name, scores = rows.names[number], rows.first[in_family & measured]
        n, right = len(scores), float(scores.sum())
        if is_untested(n, right) or _is_floored(n, right, margin):
            yield NotTested(name, (), n, right), in_family
            continue
        lengths = np.unique(rows.length[in_family & measured]).tolist()
        sums = {
            length: rows.first[in_family & measured & (rows.length == length)] for length in lengths
        }
        dead = {length: part for length, part in sums.items() if _is_dead(part, margin)}
        if dead:
            right = sum(float(part.sum()) for part in dead.values())
            group = NotTested(name, tuple(dead), sum(map(len, dead.values())), right)
            yield group, in_family & np.isin(rows.length, list(dead))


def _is_floored(n: int, right: float, margin: float) -> bool:
    return right <= max(margin, FLOOR) * n


def _is_dead(scores: Array, margin: float) -> bool:
    """Return True if a length cannot be tested."""
    n, right = len(scores), float(scores.sum())
    return is_untested(n, right) or (n >= FEWEST_OF_LENGTH and _is_floored(n, right, margin))
