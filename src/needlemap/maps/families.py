"""Several families' scores as one, and how far their mean holds.

Trials that share a repeat, and so a haystack where families use the same one, are a cluster. Each prompt counts
once: families that ask as many weigh the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.maps.cube import Cube

PUBLISHED = 0.856  # Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654)


def joined(cubes: Sequence[Cube]) -> Cube:
    """A cube of all families: its depths are numbers of (family, depth), one family behind the other.

    Lengths at which a family has no score at all are left out: a mean over the rest says something else.
    """
    lengths = [
        n for n in sorted({n for cube in cubes for n in cube.lengths}) if all(_has(c, n) for c in cubes)
    ]
    repeats = sorted({repeat for cube in cubes for repeat in cube.repeats})
    scores = np.concatenate([_placed(cube.scores, cube, repeats, lengths, np.nan) for cube in cubes], axis=2)
    spread = np.concatenate([_placed(cube.spread, cube, repeats, lengths, np.nan) for cube in cubes], axis=2)
    asked = np.concatenate([_placed(cube.asked, cube, repeats, lengths, False) for cube in cubes], axis=2)
    one = all(cube.one_haystack for cube in cubes)
    places = tuple(map(float, range(scores.shape[2])))
    return Cube(tuple(repeats), tuple(lengths), places, scores, spread, asked, one)


def published_length(means: dict[int, float]) -> float | None:
    """The largest length, in tokens, whose mean over families exceeds 85.6 %: RULER's rule.

    Infinite where it is the longest tested, 0 where there is none; None without means. It has no interval,
    and one lucky length decides it: ours are in `effective.py`.
    """
    if not means:
        return None
    above = [length for length, mean in means.items() if mean > PUBLISHED]
    return inf if max(means) in above else max(above, default=0)


def _has(cube: Cube, length: int) -> bool:
    """Whether a family has a score at a length."""
    return length in cube.lengths and bool(cube.known[:, cube.lengths.index(length)].any())


def _placed(
    values: NDArray[Any], cube: Cube, repeats: Sequence[int], lengths: Sequence[int], nothing: float
) -> NDArray[Any]:
    """A cube's array (repeats, lengths, depths) at the places of these repeats and lengths."""
    made = np.full((len(repeats), len(lengths), values.shape[2]), nothing, values.dtype)
    rows = [repeats.index(repeat) for repeat in cube.repeats]
    made[rows] = values[:, [cube.lengths.index(length) for length in lengths]]
    return made
