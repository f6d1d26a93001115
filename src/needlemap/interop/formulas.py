"""Compute positions of needles as the two older tools do, for drop-in classes and presets.

docs/from-opencompass.md shows what each formula does to a map. Grids are in `needlemap.grid`, edit
distances in `needlemap.scorers.edit`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from needlemap.text.tokens import Tokenizer


def chained_positions(
    depth: float, needle_tokens: Sequence[int], haystack_tokens: int, step: float
) -> list[int]:
    """Return the haystack tokens before each needle by OpenCompass's formula.

    depth: of the first needle, as a share. step: between two needles, as a share of the haystack.
    The formula counts each needle's own tokens into the next gap as well, and puts what falls
    behind the end at the end.

    >>> chained_positions(0.0, [53, 32, 48], 667, 0.1)
    [0, 119, 217]
    """
    position = int(haystack_tokens * depth)
    positions = [position]
    for tokens in needle_tokens[:-1]:
        position = int(position + tokens + haystack_tokens * step)
        positions.append(position)
    return [min(position, haystack_tokens) for position in positions]


def full_stops(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the tokens of a bare '.'."""
    return frozenset(tokenizer.index(b".").ids.tolist())


def behind_full_stop(ids: NDArray[np.int32], position: int, stops: frozenset[int]) -> int:
    """Return the last position up to this one that follows a full stop, or 0 if there is none.

    This is needlehaystack's rule. A full stop that shares its token with other characters does not
    count.
    """
    position = min(position, len(ids))
    while position and int(ids[position - 1]) not in stops:
        position -= 1
    return position
