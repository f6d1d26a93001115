"""Several families' scores as one: the mean over families at each length, and how far it holds.

In it every family counts the same, however many prompts it has; trials that share a repeat, and so a haystack
where families use the same one, are a cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import inf

import numpy as np

from needlemap.maps.cube import Cube

PUBLISHED = 0.856  # Llama-2-7B's mean over RULER's 13 tasks at 4k (Hsieh et al. 2024, arXiv 2404.06654)


def joined(cubes: Sequence[Cube]) -> Cube:
    """A cube whose depths are the families' numbers: each score a repeat's mean over a family's depths.

    Lengths at which a family has no score at all are left out: a mean over the rest says something else.
    """
    lengths = [length for length in sorted({each for cube in cubes for each in cube.lengths})]
    repeats = sorted({repeat for cube in cubes for repeat in cube.repeats})
    scores = np.full((len(repeats), len(lengths), len(cubes)), np.nan)
    for at, cube in enumerate(cubes):
        rows = np.ix_([repeats.index(one) for one in cube.repeats], [lengths.index(n) for n in cube.lengths])
        scores[(*rows, at)] = _means(cube)
    whole = ~np.isnan(scores).all(axis=0).any(axis=1)
    scores = scores[:, whole]
    kept = tuple(length for length, keep in zip(lengths, whole, strict=True) if keep)
    asked = np.ones(scores.shape, dtype=bool)
    one = bool(cubes) and all(cube.one_haystack for cube in cubes)
    places = tuple(map(float, range(len(cubes))))
    return Cube(tuple(repeats), kept, places, scores, scores, asked, one)


def published_length(means: dict[int, float]) -> float | None:
    """The largest length, in tokens, whose mean over families exceeds 85.6 %: RULER's rule.

    Infinite where it is the longest tested, 0 where there is none; None without means. It has no interval,
    and one lucky length decides it: ours are in `effective.py`.
    """
    if not means:
        return None
    above = [length for length, mean in means.items() if mean > PUBLISHED]
    return inf if max(means) in above else max(above, default=0)


def _means(cube: Cube) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(repeats, lengths): a repeat's mean over depths, NaN where nothing was measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is NaN, as it should be
        return np.nanmean(cube.scores, axis=2)
