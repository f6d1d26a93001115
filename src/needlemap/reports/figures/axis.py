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
NARROWEST = 0.3  # of the mean cell: with narrower ones, values lie side by side


@dataclass(frozen=True, slots=True)
class Axis:
    """kind: how values lie. edges: where each one's cell begins and ends, centres: where it is
    itself; shares of the axis, from 0 to 1."""

    kind: Kind
    values: tuple[float, ...]
    edges: tuple[tuple[float, float], ...]
    centres: tuple[float, ...]

    def position(self, value: float) -> float:
        """The share of the axis at which a value lies. On an even axis: one of its values."""
        if self.kind == "even":
            return self.centres[self.values.index(value)]
        if len(self.values) == 1:
            return 0.5
        scale = SCALES[self.kind]
        first, last = scale(self.values[0]), scale(self.values[-1])
        share = (scale(value) - first) / (last - first)
        return self.centres[0] + share * (self.centres[-1] - self.centres[0])

    def edge(self, value: float) -> tuple[float, float]:
        """The cell of one of its values."""
        return self.edges[self.values.index(value)]


SCALES: dict[str, Callable[[float], float]] = {"linear": float, "log": log2}


def make_axis(values: Sequence[float], kinds: Sequence[Kind]) -> Axis:
    """The axis of ascending values, of the kind that makes their cells most alike."""
    scaled = {
        kind: _steps([SCALES[kind](value) for value in values]) for kind in kinds if len(values) > 1
    }
    fit = {kind: steps for kind, steps in scaled.items() if _evenness(steps) >= NARROWEST}
    if not fit:
        return _axis("even", values, [(at - 0.5, at + 0.5, float(at)) for at in range(len(values))])
    kind = max(fit, key=lambda kind: _evenness(fit[kind]))
    return _axis(kind, values, fit[kind])


Step = tuple[float, float, float]  # where a cell begins, where it ends, and its value


def _steps(places: Sequence[float]) -> list[Step]:
    """Cells half way to their neighbours; the outer ones reach as far out as in."""
    middles = [(low + high) / 2 for low, high in pairwise(places)]
    if not middles:
        return [(places[0] - 0.5, places[0] + 0.5, places[0])]
    ends = [2 * places[0] - middles[0], *middles, 2 * places[-1] - middles[-1]]
    return [(low, high, place) for (low, high), place in zip(pairwise(ends), places, strict=True)]


def _evenness(steps: Sequence[Step]) -> float:
    """The narrowest cell, of the mean one."""
    widths = [high - low for low, high, _ in steps]
    return min(widths) * len(widths) / sum(widths)


def _axis(kind: Kind, values: Sequence[float], steps: Sequence[Step]) -> Axis:
    start, end = (steps[0][0], steps[-1][1]) if steps else (0.0, 1.0)
    shares = [tuple((part - start) / (end - start) for part in step) for step in steps]
    edges = tuple((low, high) for low, high, _ in shares)
    return Axis(kind, tuple(values), edges, tuple(centre for *_, centre in shares))


Ticks = list[tuple[float, str]]  # a share of the axis, and the label there


def length_ticks(axis: Axis, room: Callable[[str], float]) -> Ticks:
    """Labels in tokens; room: the share of the axis that one takes."""
    lengths = [round(value) for value in axis.values]
    rounds = ROUNDS[axis.kind](lengths) if lengths and axis.kind in ROUNDS else ()
    return _ticks(axis, _labels(lengths), room, [_labels(each) for each in rounds])


def _labels(lengths: Sequence[int]) -> dict[float, str]:
    return {float(length): label for length, label in length_labels(lengths).items()}


def depth_ticks(axis: Axis, labels: Mapping[float, str], room: Callable[[str], float]) -> Ticks:
    """Labels of depths, shares in [0, 1]: of the axis' own values alone, each at its row."""
    found = _ticks(axis, labels, room, [])
    own = [(axis.position(value), labels[value]) for value in axis.values]
    steps = (step for step in range(1, len(own)) if (len(own) - 1) % step == 0)
    even = next((ticks for step in steps if _fits(ticks := own[::step], room)), [])
    # Even steps read better, unless they leave most labels out.
    return even if 2 * len(even) >= len(found) else found


def _ticks(
    axis: Axis,
    labels: Mapping[float, str],
    room: Callable[[str], float],
    rounds: Sequence[Mapping[float, str]],
) -> Ticks:
    """The first choice of labels that has room, first and last value always among them."""
    own = [(axis.position(value), labels[value]) for value in axis.values]
    if not own:
        return []
    ends = [own[0], own[-1]] if len(own) > 1 else own
    choices = [own] if len(own) <= MOST_TICKS else []
    for marks in rounds:
        inner = [(axis.position(at), label) for at, label in marks.items() if _inside(axis, at)]
        choices.append(_with_ends(inner, ends, room))
    choices += [_with_ends(own[::step], ends, room) for step in range(2, len(own))]
    fits = (each for each in choices if _fits(each, room))
    return next(fits, ends if _apart(ends, room) else ends[-1:])


def _fits(ticks: Ticks, room: Callable[[str], float]) -> bool:
    return len(ticks) <= MOST_TICKS and _apart(ticks, room)


def _inside(axis: Axis, value: float) -> bool:
    return axis.values[0] < value < axis.values[-1]


def _with_ends(inner: Ticks, ends: Ticks, room: Callable[[str], float]) -> Ticks:
    """Without the inner labels that would touch one of the ends'."""
    free = [tick for tick in inner if all(_apart(sorted([tick, end]), room) for end in ends)]
    return sorted({*free, *ends})


def _apart(ticks: Ticks, room: Callable[[str], float]) -> bool:
    """Whether no two labels touch."""
    return all(
        high[0] - low[0] >= (room(low[1]) + room(high[1])) / 2 for low, high in pairwise(ticks)
    )


def _round_steps(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Round lengths in even steps, from many to few."""
    span = lengths[-1] - lengths[0]
    power = floor(log10(span / MOST_TICKS)) if span else 0
    for step in (
        max(1, round(part * 10 ** (power + more))) for more in (0, 1) for part in (1, 2, 5)
    ):
        yield [step * at for at in range(ceil(lengths[0] / step), lengths[-1] // step + 1)]


def _doublings(lengths: Sequence[int]) -> Iterator[list[int]]:
    """1k, 2k, 4k, ...; then every second and third of them."""
    low, high = floor(log2(lengths[0] / 1000)), ceil(log2(lengths[-1] / 1000))
    for step in (1, 2, 3, 4, 5):
        yield [
            round(1000 * 2.0**at)
            for at in range(low, high + 1)
            if at % step == 0 and 1000 * 2.0**at >= 1
        ]


ROUNDS = {"linear": _round_steps, "log": _doublings}
