"""Curves of score over length: bootstrapped means, a falling fit, a crossing, an area.

Rows are draws, columns are lengths. Between tested lengths a curve is straight over log2 of the
length.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, log2

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array

_SEED = 0


def length_means(
    cells: Array, drawn: Array, *, worst: bool = False, order: NDArray[np.intp] | None = None
) -> Array:
    """Return the score at one length for each draw of clusters: (draws,).

    Args:
        cells: scores, (clusters, depths), NaN if missing.
        drawn: how often each cluster is drawn, (draws, clusters).
        worst: True for the score of the worst depth.
        order: a permutation of the draws. With it, a length (or a cell, for the worst depth) at
            which all clusters agree gets the spread of `agreement_draws`, because the bootstrap
            would see no doubt there, however few the trials.
    """
    if not worst:
        return _with_doubt(_means(cells, drawn), cells, order)
    columns = []
    for at in range(cells.shape[1]):
        cell = cells[:, at : at + 1]
        if not np.isnan(cell).all():
            columns.append(_with_doubt(_means(cell, drawn), cell, order))
    return np.asarray(np.fmin.reduce(columns), dtype=np.float64)


def _with_doubt(drawn_means: Array, scores: Array, order: NDArray[np.intp] | None) -> Array:
    """Return drawn means or, if they are all equal, `agreement_draws` in the given order."""
    if order is None or np.ptp(drawn_means) > 1e-12:
        return drawn_means
    n = int((~np.isnan(scores)).sum())
    # Linearised scores (`ratio.py`) may sum to less than 0 or more than n.
    total = min(float(n), max(0.0, float(np.nansum(scores))))
    return agreement_draws(total, n, len(order))[order]


@lru_cache(maxsize=1_000)
def agreement_draws(total: float, n: int, draws: int) -> Array:
    """Return ascending draws of the rate behind n scores that sum to total.

    The Jeffreys posterior Beta(total + 1/2, n - total + 1/2): Brown, Cai and DasGupta 2001,
    Statistical Science 16:101. They ascend, so that one order for all lengths puts all of them
    in doubt together and not one by one.
    """
    return np.sort(np.random.default_rng(_SEED).beta(total + 0.5, max(0.0, n - total) + 0.5, draws))


def _means(cells: Array, drawn: Array) -> Array:
    """Return the mean score of each draw, NaN if a draw holds no score."""
    counts = drawn @ (~np.isnan(cells)).sum(axis=1).astype(np.float64)
    sums = drawn @ np.nansum(cells, axis=1)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))


def fit_falling(above: Array, sizes: NDArray[np.intp], doubt: Array) -> Array:
    """Fit curves (draws, lengths) that never rise, by least squares.

    The pool of adjacent violators as its minimum and maximum of means (Barlow, Bartholomew,
    Bremner and Brunk 1972, Statistical Inference under Order Restrictions, theorem 1.4).

    Args:
        above: score minus threshold.
        sizes: trials by length.
        doubt: by length. A curve that lies below 0 by more has clearly fallen: longer lengths
            may rise again, but do not lift it.
    """
    count = above.shape[1]
    clear = above + doubt < 0
    fall = np.where(clear.any(axis=1), clear.argmax(axis=1), count)[:, None]
    fitted_curves = np.full(above.shape, inf)
    for start in range(count):
        means = np.cumsum(above[:, start:] * sizes[start:], axis=1) / np.cumsum(sizes[start:])
        means = np.where(np.arange(start, count) > fall, -inf, means)
        upper_means = np.maximum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        fitted_curves[:, start:] = np.minimum(fitted_curves[:, start:], upper_means)
    at = np.arange(count)
    return np.where(
        at < fall, fitted_curves, np.where(at == fall, np.minimum(fitted_curves, -1e-6), -1.0)
    )


def threshold_crossing(above: Array, lengths: Array) -> Array:
    """Return the length at which each curve (draws, lengths) first falls below 0: (draws,)."""
    above = np.where(np.abs(above) < 1e-12, 0.0, above)
    is_below = above < 0
    first_below = is_below.argmax(axis=1)
    rows = np.arange(len(above))
    value_after, value_before = (
        above[rows, first_below],
        above[rows, np.maximum(first_below - 1, 0)],
    )
    fall = np.where(value_before - value_after > 0, value_before - value_after, 1.0)
    logs = np.log2(lengths)
    start = logs[np.maximum(first_below - 1, 0)]
    crossings = 2 ** (start + (logs[first_below] - start) * value_before / fall)
    crossings = np.where(first_below == 0, 0.0, crossings)
    return np.where(
        np.isnan(above).any(axis=1), np.nan, np.where(is_below.any(axis=1), crossings, inf)
    )


def mean_over_log(by_length: Array, lengths: Array) -> Array:
    """Return the mean of each curve over log2 of the length, by trapezoids: (draws,)."""
    if len(lengths) == 1:
        return by_length[:, 0]
    widths = np.diff(np.log2(lengths))
    heights = (by_length[:, 1:] + by_length[:, :-1]) / 2
    return np.asarray(heights @ widths / log2(lengths[-1] / lengths[0]), dtype=np.float64)
