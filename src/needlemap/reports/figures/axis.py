"""Where lengths and depths lie on an axis, how wide their cells are, and which labels it has.

Values lie at their own places on a linear or a logarithmic axis, whichever their steps fit,
and a cell reaches half way to its neighbours. Values that fit neither lie side by side, one as
wide as another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log2, log10
from typing import Literal

from needlemap.reports.labels import length_labels

Kind = Literal["linear", "log", "even"]
MOST_TICKS = 8
# As a share of the mean width. With narrower cells, values lie side by side on an even axis.
LEAST_CELL_WIDTH = 0.3


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie on an axis.

    Attributes:
        kind: How the values lie.
        edges: Where each value's cell starts and ends, as shares of the axis from 0 to 1.
        centres: Where each value itself lies, as such shares.
    """

    kind: Kind
    values: tuple[float, ...]
    edges: tuple[tuple[float, float], ...]
    centres: tuple[float, ...]

    def position(self, value: float) -> float:
        """Return the share of the axis at which a value lies.

        On an even axis the value must be one of the axis' values.
        """
        if self.kind == "even":
            return self.centres[self.values.index(value)]
        if len(self.values) == 1:
            return 0.5
        scale = SCALES[self.kind]
        first, last = scale(self.values[0]), scale(self.values[-1])
        share = (scale(value) - first) / (last - first)
        return self.centres[0] + share * (self.centres[-1] - self.centres[0])

    def edge(self, value: float) -> tuple[float, float]:
        """Return the cell of one of its values."""
        return self.edges[self.values.index(value)]


SCALES: dict[str, Callable[[float], float]] = {"linear": float, "log": log2}


def make_axis(values: Sequence[float], kinds: Sequence[Kind]) -> Axis:
    """Return an axis for ascending values, of the kind that makes their cells most alike in width.

    If the narrowest cell would be too narrow with every kind, the axis is even.

    kinds: the kinds to choose from, without 'even'.
    """
    steps_by_kind = {
        kind: _steps([SCALES[kind](value) for value in values]) for kind in kinds if len(values) > 1
    }
    fitting = {
        kind: steps for kind, steps in steps_by_kind.items() if _evenness(steps) >= LEAST_CELL_WIDTH
    }
    if not fitting:
        # Values lie side by side.
        steps = [(index - 0.5, index + 0.5, float(index)) for index in range(len(values))]
        return _axis("even", values, steps)

    kind = max(fitting, key=lambda kind: _evenness(fitting[kind]))
    return _axis(kind, values, fitting[kind])


# Where a cell starts, where it ends, and its value.
Step = tuple[float, float, float]


def _steps(places: Sequence[float]) -> list[Step]:
    """Return cells half way to their neighbours; the outer ones reach as far out as in."""
    middles = [(low + high) / 2 for low, high in pairwise(places)]
    if not middles:
        return [(places[0] - 0.5, places[0] + 0.5, places[0])]
    ends = [2 * places[0] - middles[0], *middles, 2 * places[-1] - middles[-1]]
    return [(low, high, place) for (low, high), place in zip(pairwise(ends), places, strict=True)]


def _evenness(steps: Sequence[Step]) -> float:
    """Return the width of the narrowest cell as a share of the mean one."""
    widths = [high - low for low, high, _ in steps]
    return min(widths) * len(widths) / sum(widths)


def _axis(kind: Kind, values: Sequence[float], steps: Sequence[Step]) -> Axis:
    start, end = (steps[0][0], steps[-1][1]) if steps else (0.0, 1.0)
    shares = [tuple((place - start) / (end - start) for place in step) for step in steps]
    edges = tuple((low, high) for low, high, _ in shares)
    return Axis(kind, tuple(values), edges, tuple(centre for *_, centre in shares))


# Shares of the axis, and the labels there.
Ticks = list[tuple[float, str]]


def length_ticks(axis: Axis, room: Callable[[str], float]) -> Ticks:
    """Return labels in tokens. room: the share of the axis that one takes."""
    lengths = [round(value) for value in axis.values]
    rounds = []
    if lengths and axis.kind in ROUNDS:
        rounds = [_labels(round_lengths) for round_lengths in ROUNDS[axis.kind](lengths)]
    return _ticks(axis, _labels(lengths), room, rounds)


def _labels(lengths: Sequence[int]) -> dict[float, str]:
    return {float(length): label for length, label in length_labels(lengths).items()}


def depth_ticks(axis: Axis, labels: Mapping[float, str], room: Callable[[str], float]) -> Ticks:
    """Return labels of depths, shares in [0, 1]: of the axis' own values, each at its row."""
    ticks = _ticks(axis, labels, room, rounds=[])
    all_ticks = [(axis.position(value), labels[value]) for value in axis.values]
    last_index = len(all_ticks) - 1
    for step in range(1, len(all_ticks)):
        even_ticks = all_ticks[::step]
        if last_index % step == 0 and _fits(even_ticks, room):
            # Even steps read better, unless they leave most labels out.
            return even_ticks if 2 * len(even_ticks) >= len(ticks) else ticks
    return ticks


def _ticks(
    axis: Axis,
    labels: Mapping[float, str],
    room: Callable[[str], float],
    rounds: Sequence[Mapping[float, str]],
) -> Ticks:
    """Return the first choice of labels that has room.

    Each choice includes the first and the last value. If both have no room, only the last is
    returned.
    """
    all_ticks = [(axis.position(value), labels[value]) for value in axis.values]
    if not all_ticks:
        return []
    ends = [all_ticks[0], all_ticks[-1]] if len(all_ticks) > 1 else all_ticks
    choices = [all_ticks] if len(all_ticks) <= MOST_TICKS else []
    for marks in rounds:
        inner_ticks = [
            (axis.position(value), label)
            for value, label in marks.items()
            if _is_inside(axis, value)
        ]
        choices.append(_add_ends(inner_ticks, ends, room))
    choices += [_add_ends(all_ticks[::step], ends, room) for step in range(2, len(all_ticks))]
    fits = (ticks for ticks in choices if _fits(ticks, room))
    return next(fits, ends if _are_apart(ends, room) else ends[-1:])


def _fits(ticks: Ticks, room: Callable[[str], float]) -> bool:
    return len(ticks) <= MOST_TICKS and _are_apart(ticks, room)


def _is_inside(axis: Axis, value: float) -> bool:
    return axis.values[0] < value < axis.values[-1]


def _add_ends(inner_ticks: Ticks, ends: Ticks, room: Callable[[str], float]) -> Ticks:
    """Add the ends' labels, and leave out the inner ones that would touch them."""
    free_ticks = [
        tick for tick in inner_ticks if all(_are_apart(sorted([tick, end]), room) for end in ends)
    ]
    return sorted({*free_ticks, *ends})


def _are_apart(ticks: Ticks, room: Callable[[str], float]) -> bool:
    """Return True if no two labels touch."""
    return all(
        high[0] - low[0] >= (room(low[1]) + room(high[1])) / 2 for low, high in pairwise(ticks)
    )


def _round_steps(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield round lengths in even steps, from many to few."""
    span = lengths[-1] - lengths[0]
    power = floor(log10(span / MOST_TICKS)) if span else 0
    for decade in (power, power + 1):
        for digit in (1, 2, 5):
            step = max(1, round(digit * 10**decade))
            first, last = ceil(lengths[0] / step), lengths[-1] // step
            yield [step * multiple for multiple in range(first, last + 1)]


def _doublings(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield 1k, 2k, 4k, ...; then every second and third of them."""
    low, high = floor(log2(lengths[0] / 1000)), ceil(log2(lengths[-1] / 1000))
    for step in (1, 2, 3, 4, 5):
        yield [
            round(1000 * 2.0**exponent)
            for exponent in range(low, high + 1)
            if exponent % step == 0 and 1000 * 2.0**exponent >= 1
        ]


ROUNDS = {"linear": _round_steps, "log": _doublings}
