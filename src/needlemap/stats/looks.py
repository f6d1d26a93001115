"""The order in which a verdict looks at pairs, and what one unit of that order loses.

A unit is what is drawn at random: a prompt, if the verdict is for these prompts and they are
sent in random order; else a whole haystack, since its prompts hang together. Units of planned
prompts are drawn without replacement, so a bet on them is one on the mean over all of them
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
# Planned prompts are sent in so many pieces, each drawn at random. Smaller pieces end a run
# sooner, and share fewer prefixes: a grid of 8 lengths and 11 depths takes 1.4 times the tokens
# a prompt in twelfths, 1.7 times in fiftieths.
PIECES = 12
LEAST_PIECE = 10


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """Units are judged one after the other. turns: (pairs,) the place of each pair's unit in
    that order, from 0; -1 if it is seen at every look. planned: how many units there are, None
    if there is no end to them. every: how many are sent between two looks. unit: its name."""

    turns: Integers
    planned: int | None = None
    every: int = 1
    unit: Literal["pair", "haystack"] = "haystack"

    def where(self, kept: NDArray[np.bool_]) -> Looks:
        """Return the same for some of the pairs."""
        return Looks(self.turns[kept], self.planned, self.every, self.unit)


Looking = Callable[[Rows], Looks]


def in_random_order(units: Iterable[Unit]) -> list[Unit]:
    """Return units in the seeded random order in which they are sent and judged; it hangs on
    the units alone.

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
    known = ~np.isnan(rows.first)
    if wanted == "new":
        order = in_random_order(rows.haystack[known].tolist())
        return Looks(_turns(rows.haystack.tolist(), order), len(order))
    numbers = np.arange(len(rows.first)).tolist()
    places = rows.places or numbers
    keys = list(zip((rows.names[number] for number in rows.family.tolist()), places, strict=True))
    order = in_random_order(key for key, scored in zip(keys, known.tolist(), strict=True) if scored)
    return Looks(_turns(keys, order), len(order), piece_size(len(order)), "pair")


def endless_looks(rows: Rows) -> Looks:
    """Return looks at haystacks in the order of their numbers, to which there is no end."""
    numbers = rows.haystack.tolist()
    return Looks(_turns(numbers, sorted(set(numbers))))


def whole_units(rows: Rows, looks: Looks) -> Looks:
    """Return looks at units of which all was sent and something was answered, -2 for the rest.

    Of planned units only those before the first open one: what came out of its turn is no
    random draw.
    """
    answered = ~(np.isnan(rows.first) & np.isnan(rows.second))
    open_turns = set(looks.turns[~rows.tried].tolist())
    whole = set(looks.turns[answered].tolist()) - open_turns - {-1}
    if looks.planned is None:
        order = sorted(whole)
    else:
        order = list(range(next(at for at in range(looks.planned + 1) if at not in whole)))
    ranks = {turn: rank for rank, turn in enumerate(order)}
    turns = [-1 if turn == -1 else ranks.get(turn, -2) for turn in looks.turns.tolist()]
    return Looks(np.array(turns, dtype=np.int64), looks.planned, looks.every, looks.unit)


def unit_losses(rows: Rows, looks: Looks) -> tuple[Array, Array, float]:
    """Return the losses of units in their order, with what misses counted against B, and for
    it; and the scale to divide the margin by.

    Each family counts the same. Losses of planned prompts are weighed by how many prompts
    their family has, and divided by the largest weight so that they lie in [-1, 1].
    """
    count = int(looks.turns.max(initial=-1)) + 1
    if looks.unit == "haystack":
        sides = [_means(rows, side, looks.turns, count) for side in (_against, _in_favour)]
        return sides[0], sides[1], 1.0
    planned = ~np.isnan(rows.first)
    sizes = np.bincount(rows.family[planned], minlength=len(rows.names))
    weights = planned.sum() / ((sizes > 0).sum() * np.maximum(1, sizes))
    scale = float(weights[sizes > 0].max(initial=1.0))
    made = []
    for side in (_against, _in_favour):
        losses = np.zeros(count)
        seen = looks.turns >= 0
        losses[looks.turns[seen]] = (side(rows) * weights[rows.family])[seen] / scale
        made.append(np.clip(losses, -1.0, 1.0))
    return made[0], made[1], scale


def group_losses(rows: Rows, looks: Looks, here: NDArray[np.bool_]) -> tuple[Array, Integers]:
    """Return the mean losses of units inside a group, with misses counted for B, and their
    turns."""
    part, turns = rows.where(here), looks.turns[here]
    count = int(turns.max(initial=-1)) + 1
    losses = _means(part, _in_favour, turns, count)
    numbers = np.unique(turns[turns >= 0])
    return losses[numbers], numbers


def _against(rows: Rows) -> Array:
    """Losses, with B's missing answers wrong and A's right; 0 if both are missing."""
    lost = np.nan_to_num(rows.first, nan=1.0) - np.nan_to_num(rows.second, nan=0.0)
    return np.where(np.isnan(rows.first) & np.isnan(rows.second), 0.0, lost)


def _in_favour(rows: Rows) -> Array:
    """Losses, with B's missing answers right and A's wrong; 0 if both are missing."""
    lost = np.nan_to_num(rows.first, nan=0.0) - np.nan_to_num(rows.second, nan=1.0)
    return np.where(np.isnan(rows.first) & np.isnan(rows.second), 0.0, lost)


def _means(rows: Rows, side: Callable[[Rows], Array], turns: Integers, count: int) -> Array:
    """Mean losses of units, each family counting the same."""
    answered = ~(np.isnan(rows.first) & np.isnan(rows.second)) & (turns >= 0)
    keys = turns[answered] * max(1, len(rows.names)) + rows.family[answered]
    pairs, at, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.bincount(at, side(rows)[answered], minlength=len(pairs))
    # Linearised scores (`ratio.py`) may lie a little beyond [0, 1], and bets do not.
    means = np.clip(sums / sizes, -1.0, 1.0)
    units, back, families = np.unique(
        pairs // max(1, len(rows.names)), return_inverse=True, return_counts=True
    )
    losses = np.zeros(count)
    losses[units] = np.bincount(back, means, minlength=len(units)) / families
    return losses


def _turns(keys: list[Unit], order: list[Unit]) -> Integers:
    ranks = {unit: rank for rank, unit in enumerate(order)}
    return np.array([ranks.get(key, -1) for key in keys], dtype=np.int64)
