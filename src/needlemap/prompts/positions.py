"""Needles by depth: their order in a prompt, and how they move where a plan chose the place of one.

An item's first needle is the one that the cell's depth is meant for; others may stand before or behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from needlemap.prompts.prompt import PlacedNeedle, Prompt
from needlemap.text.tokens import Span, Tokenizer, TokenText


class Hidden(Protocol):
    """A needle: its text, the depth it is meant for, a share in [0, 1], and whether it never moves."""

    @property
    def text(self) -> str: ...

    @property
    def depth(self) -> float: ...

    @property
    def still(self) -> bool: ...


def by_depth(needles: Sequence[Hidden]) -> list[int]:
    """The needles' places in the order of their depths; those of one depth keep their order."""
    return sorted(range(len(needles)), key=lambda place: needles[place].depth)


def moved(needles: Sequence[Hidden], chosen: tuple[int, int] | None, stop: int) -> list[float]:
    """Depths as meant; where a position, of `stop`, was chosen for one, others move along but those that are
    still, which none of them passes. needles: by depth.
    """
    depths = [needle.depth for needle in needles]
    if chosen is None or not stop:
        return depths
    shift = chosen[1] / stop - depths[chosen[0]]
    least = accumulate((needle.depth if needle.still else 0.0 for needle in needles), max)
    most = [*accumulate((needle.depth if needle.still else 1.0 for needle in reversed(needles)), min)]
    return [
        needle.depth if needle.still else min(high, max(low, needle.depth + shift))
        for needle, low, high in zip(needles, least, reversed(most), strict=True)
    ]


def around(positions: list[int], chosen: tuple[int, int] | None) -> list[int]:
    """Positions of which one was chosen, if it was; the others stay before or behind it.

    >>> around([10, 20, 30], (1, 35))
    [10, 35, 35]
    """
    if chosen is None:
        return positions
    place, position = chosen
    before = [min(position, earlier) for earlier in positions[:place]]
    return [*before, position, *(max(position, later) for later in positions[place + 1 :])]


def restored(prompt: Prompt, order: Sequence[int]) -> Prompt:
    """A prompt built with needles in this order, listing them in the order they came."""
    if list(order) == sorted(order):
        return prompt
    places = sorted(range(len(order)), key=order.__getitem__)
    return replace(
        prompt,
        needles=tuple(prompt.needles[place] for place in places),
        positions=tuple(prompt.positions[place] for place in places),
    )


def chained(depth: float, sizes: Sequence[int], stop: int, step: float) -> list[int]:
    """Positions of needles of these many tokens by OpenCompass's formula, which counts needles twice.

    step: the increment as a share of the haystack's `stop` tokens. See docs/coming-from.md.
    """
    point = int(stop * depth)
    points = [point]
    for size in sizes[:-1]:
        point = int(point + size + stop * step)
        points.append(point)
    return [min(point, stop) for point in points]


def dots(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens of a bare '.'."""
    return frozenset(tokenizer.index(b".").ids.tolist())


def behind_stop(ids: NDArray[np.int32], point: int, stops: frozenset[int]) -> int:
    """The last position at or before a point that one of these tokens stands before; 0 without any."""
    while point and int(ids[point - 1]) not in stops:
        point -= 1
    return point


def placed(
    needles: Sequence[Hidden],
    positions: tuple[int, ...],
    stop: int,
    context: list[Span],
    besides: Sequence[TokenText],
) -> tuple[PlacedNeedle, ...]:
    """Each needle's meant and realised depth and its byte in the context, behind a space put before it.

    Its bytes are not looked for: the tokenizer may have normalised them. besides: texts of other spans.
    """
    spans, offset = [], 0
    for span in context:
        if not any(span.text is text for text in besides):
            spans.append((offset, bytes(span.data[:1])))
        offset += len(span.data)
    return tuple(
        PlacedNeedle(needle.depth, position / stop, start + (first == b" " and needle.text[0] != " "))
        for needle, position, (start, first) in zip(needles, positions, spans, strict=False)
    )


def touch(left: str, right: str) -> bool:
    """Whether two characters need a space between them: both are no white space and of spaced scripts."""
    if not left or not right or left.isspace() or right.isspace():
        return False
    return ord(left) < 0x2E80 and ord(right) < 0x2E80
