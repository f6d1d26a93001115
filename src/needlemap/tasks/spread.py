"""Depths of needles that belong together: the first one's is the cell's, the others stand behind it.

So a cell's depth means the same in whatever order they come: where in the text their first one stands.
"""

from __future__ import annotations

from random import Random
from typing import Literal, TypeVar

from needlemap.errors import SettingsError
from needlemap.prompts.placement import Needle

Order = Literal["forward", "backward", "random"]
Piece = TypeVar("Piece")


def behind(random: Random, depth: float, count: int, span: float) -> list[float]:
    """Depths, ascending, of `count` needles: the first at a depth, the rest uniform in the span behind it.

    span: as a share of the haystack; it ends with the haystack.

    >>> [round(one, 2) for one in behind(Random("x"), 0.5, 3, 1.0)], behind(Random("x"), 1.0, 2, 0.1)
    ([0.5, 0.8, 0.82], [1.0, 1.0])
    """
    width = min(span, 1 - depth)
    return [depth, *sorted(depth + width * random.random() for _ in range(count - 1))]


def anywhere(random: Random, count: int) -> list[float]:
    """Depths, ascending, of needles that stand anywhere."""
    return sorted(random.random() for _ in range(count))


def ordered(random: Random, pieces: list[Piece], order: Order) -> list[Piece]:
    """Pieces in the order in which the text has them.

    >>> ordered(Random("x"), [1, 2, 3], "backward"), ordered(Random("z"), [1, 2, 3], "random")
    ([3, 2, 1], [1, 3, 2])
    """
    if order == "random":
        return random.sample(pieces, len(pieces))
    return pieces[::-1] if order == "backward" else pieces


def following(random: Random, texts: list[str], depth: float, span: float) -> list[Needle]:
    """Needles in the order given, from a depth on; only the first moves where a plan wants it to."""
    depths = behind(random, depth, len(texts), span)
    return [Needle(*both, still=place > 0) for place, both in enumerate(zip(texts, depths, strict=True))]


def scattered(random: Random, texts: list[str]) -> list[Needle]:
    """Needles in the order given, that stand anywhere."""
    return [Needle(*both, still=True) for both in zip(texts, anywhere(random, len(texts)), strict=True)]


def share(span: float) -> float:
    """A span in percent as a share. Raises SettingsError for one that is none."""
    if not 0 < span <= 100:
        raise SettingsError(f"Option 'span' is a percentage above 0 and up to 100, got {span:g}.")
    return span / 100
