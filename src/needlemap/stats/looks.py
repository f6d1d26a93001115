"""Order pairs for a verdict that is reached in several looks, and add up what each unit loses.

A unit is what is drawn at random. It is a prompt if the verdict is for these prompts and they are
sent in random order; else it is a whole haystack, since its prompts are correlated. Units of
planned prompts are drawn without replacement, so a bet on them is on the mean over all of them
(Waudby-Smith and Ramdas 2020, NeurIPS 33, section 3), however their losses cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array
from needlemap.stats.rows import Integers, Rows

Scope = Literal["these", "new"]
Unit = TypeVar("Unit")
# Planned prompts are sent in this many pieces, each drawn at random. Smaller pieces end a run
# sooner, but share fewer prefixes: with 8 lengths and 11 depths a prompt takes 1.4 times the
# tokens in twelfths, and 1.7 times in fiftieths.
PIECES = 12
LEAST_PIECE = 10


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """The order in which units are judged.

    Attributes:
        turns: (pairs,), the position of each pair's unit in that order, from 0. It is -1 for a
            pair that is seen at every look, and -2 for one that is not judged.
        planned: how many units there are; None if there is no end to them.
        every: units between two looks.
        unit: its name.
    """

    turns: Integers
    planned: int | None = None
    every: int = 1
    unit: Literal["pair", "haystack"] = "haystack"

    def where(self, mask: NDArray[np.bool_]) -> Looks:
        """Return the looks at some of the pairs. mask: True for these, (pairs,)."""
        return Looks(self.turns[mask], self.planned, self.every, self.unit)


Looking = Callable[[Rows], Looks]


def in_random_order(units: Iterable[Unit]) -> list[Unit]:
    """Return units in the seeded random order in which they are sent and judged.

    The order depends on the units alone.

    >>> in_random_order([3, 1, 2, 0, 4]) == in_random_order(range(5))
    True
    """
    numbers = sorted(set(units))  # type: ignore[type-var]
    Random(len(numbers)).shuffle(numbers)
    return numbers


def piece_size(planned: int) -> int:
    """Return how many of the planned prompts are sent together.

    >>> piece_size(1_000), piece_size(90)
    (84, 10)
    """
    return max(LEAST_PIECE, ceil(planned / PIECES))


def planned_looks(rows: Rows, wanted: Scope = "these") -> Looks:
    """Return looks at the pairs that the reference scored, all of which are planned."""
    is_measured = ~np.isnan(rows.first)
    if wanted == "new":
        order = in_random_order(rows.haystack[is_measured].tolist())
        return Looks(_turns(rows.haystack.tolist(), order), len(order))
    numbers = np.arange(len(rows.first)).tolist()
    places = rows.places or numbers
    keys = list(zip((rows.names[number] for number in rows.family.tolist()), places, strict=True))
    order = in_random_order(
        key for key, is_scored in zip(keys, is_measured.tolist(), strict=True) if is_scored
    )
    return Looks(_turns(keys, order), len(order), piece_size(len(order)), "pair")


def endless_looks(rows: Rows) -> Looks:
    """Return looks at haystacks in the order of their numbers, to which there is no end."""
    numbers = rows.haystack.tolist()
    return Looks(_turns(numbers, sorted(set(numbers))))


def whole_units(rows: Rows, looks: Looks) -> Looks:
    """Return looks at the units that were sent whole and have an answer.

    All other units get the turn -2. If units are planned, only those before the first unfinished
    one count, because what was sent out of turn is not a random draw.
    """
    has_answer = ~(np.isnan(rows.first) & np.isnan(rows.second))
    open_turns = set(looks.turns[~rows.tried].tolist())
    whole_turns = set(looks.turns[has_answer].tolist()) - open_turns - {-1}
    if looks.planned is None:
        order = sorted(whole_turns)
    else:
        order = list(
            range(next(turn for turn in range(looks.planned + 1) if turn not in whole_turns))
        )
    ranks = {turn: rank for rank, turn in enumerate(order)}
    turns = [-1 if turn == -1 else ranks.get(turn, -2) for turn in looks.turns.tolist()]
    return Looks(np.array(turns, dtype=np.int64), looks.planned, looks.every, looks.unit)


def unit_losses(rows: Rows, looks: Looks) -> tuple[Array, Array, float]:
    """Return the losses of units in their order, against B and for B, and a scale.

    Missing answers count against B in the first, and for B in the second. The margin must be
    divided by the scale. Each family has the same weight: losses of planned prompts are weighted
    by the size of their family, and divided by the largest weight so that they lie in [-1, 1].
    """
    count = int(looks.turns.max(initial=-1)) + 1
    if looks.unit == "haystack":
        sides = [
            _unit_means(rows, side, looks.turns, count)
            for side in (_losses_against, _losses_in_favour)
        ]
        return sides[0], sides[1], 1.0
    is_planned = ~np.isnan(rows.first)
    sizes = np.bincount(rows.family[is_planned], minlength=len(rows.names))
    weights = is_planned.sum() / ((sizes > 0).sum() * np.maximum(1, sizes))
    scale = float(weights[sizes > 0].max(initial=1.0))
    sides = []
    for side in (_losses_against, _losses_in_favour):
        losses = np.zeros(count)
        has_turn = looks.turns >= 0
        losses[looks.turns[has_turn]] = (side(rows) * weights[rows.family])[has_turn] / scale
        sides.append(np.clip(losses, -1.0, 1.0))
    return sides[0], sides[1], scale


def group_losses(rows: Rows, looks: Looks, in_group: NDArray[np.bool_]) -> tuple[Array, Integers]:
    """Return the mean losses of units within a part, missing answers for B, and their turns."""
    part, turns = rows.where(in_group), looks.turns[in_group]
    count = int(turns.max(initial=-1)) + 1
    losses = _unit_means(part, _losses_in_favour, turns, count)
    numbers = np.unique(turns[turns >= 0])
    return losses[numbers], numbers


def _losses_against(rows: Rows) -> Array:
    """Return losses with B's missing answers wrong and A's right, or 0 if both are missing."""
    losses = np.nan_to_num(rows.first, nan=1.0) - np.nan_to_num(rows.second, nan=0.0)
    return np.where(np.isnan(rows.first) & np.isnan(rows.second), 0.0, losses)


def _losses_in_favour(rows: Rows) -> Array:
    """Return losses with B's missing answers right and A's wrong, or 0 if both are missing."""
    losses = np.nan_to_num(rows.first, nan=0.0) - np.nan_to_num(rows.second, nan=1.0)
    return np.where(np.isnan(rows.first) & np.isnan(rows.second), 0.0, losses)


def _unit_means(rows: Rows, side: Callable[[Rows], Array], turns: Integers, count: int) -> Array:
    """Return the mean loss of each unit, in which each family has the same weight.

    side: returns the loss of each row. turns: the unit of each row, or less than 0 for none. count:
    the number of units.
    """
    has_answer = ~(np.isnan(rows.first) & np.isnan(rows.second)) & (turns >= 0)
    keys = turns[has_answer] * max(1, len(rows.names)) + rows.family[has_answer]
    pairs, groups, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.bincount(groups, side(rows)[has_answer], minlength=len(pairs))
    # Linearised scores (`ratio.py`) may lie a little outside [0, 1]; bets must not.
    means = np.clip(sums / sizes, -1.0, 1.0)
    units, unit_indices, families = np.unique(
        pairs // max(1, len(rows.names)), return_inverse=True, return_counts=True
    )
    losses = np.zeros(count)
    losses[units] = np.bincount(unit_indices, means, minlength=len(units)) / families
    return losses


def _turns(keys: list[Unit], order: list[Unit]) -> Integers:
    ranks = {unit: rank for rank, unit in enumerate(order)}
    return np.array([ranks.get(key, -1) for key in keys], dtype=np.int64)
