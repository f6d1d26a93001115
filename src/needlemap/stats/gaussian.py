"""Fit curves of a Gaussian process on the logit, and tell scores that are too rough for them.

Matern 3/2 kernel and Laplace's approximation (Rasmussen and Williams 2006, sections 3.4 and
4.2.1). `seek` fits the score over the logarithm of the length with these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from needlemap.stats import Array

# Whole percents of depth.
DEPTH_CELLS = 101
# Percents of depth over which a smooth curve hardly moves.
_NEAR = 3
# Hits and misses repeat from this correlation on, by so many standard errors.
_REPEATS = 0.3
_NOISE = 2.5
# Pairs in one cell, each weighed by the variance of an answer: fewer show nothing.
_ENOUGH = 20.0


def is_rough(hits: Array, trials: Array) -> NDArray[np.bool_]:
    """Return True if hits and misses repeat cell by cell, so that no smooth curve fits, (...).

    `hits` and `trials` are (..., lengths, DEPTH_CELLS) of fresh haystacks. The measure is the
    correlation of answers in one cell over that of answers in cells next to it, which a fall
    over depth, and haystacks that differ, move alike.
    """
    padding = [(0, 0)] * (hits.ndim - 1) + [(_NEAR, _NEAR)]
    padded_hits = np.pad(hits, padding)
    padded_trials = np.pad(trials, padding)
    cells = hits.shape[-1]
    shifts = [shift for shift in range(2 * _NEAR + 1) if shift != _NEAR]
    near_hits = sum(padded_hits[..., shift : shift + cells] for shift in shifts)
    near_trials = sum(padded_trials[..., shift : shift + cells] for shift in shifts)

    rates = hits.sum(axis=-1) / np.maximum(trials.sum(axis=-1), 1)
    near_pairs = (trials * near_trials).sum(axis=-1)
    expected = (hits * near_hits).sum(axis=-1) / np.maximum(near_pairs, 1)
    pairs = np.where(near_pairs > 0, (trials * (trials - 1)).sum(axis=-1), 0)
    excess = (hits * hits - hits).sum(axis=-1) - pairs * expected
    total = np.where(near_pairs > 0, excess, 0).sum(axis=-1)
    heft = (pairs * rates * (1 - rates)).sum(axis=-1)
    return np.asarray((heft > _ENOUGH) & (total > _REPEATS * heft + _NOISE * np.sqrt(heft)))


def matern_curves(places: Array, scale: float, spread: float, rank: int) -> Array:
    """Return curves whose sum, with standard normal weights, is a Gaussian process.

    They are (places, rank), the largest eigenvectors of a Matern 3/2 kernel.
    """
    distances = np.sqrt(3) * np.abs(places[:, None] - places) / scale
    values, vectors = np.linalg.eigh(spread**2 * (1 + distances) * np.exp(-distances))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :rank])


def newton(basis: Array, trials: Array, hits: Array, mode: Array) -> tuple[Array, Array, Array]:
    """Take one step to the likeliest weights, (..., curves), no farther than 3 on the logit.

    Returns the new weights, the precision where the step began, and how far on the logit it
    would have gone, (..., 1).
    """
    chance = 1 / (1 + np.exp(-np.clip(mode @ basis.T, -30, 30)))
    slope = (hits - trials * chance) @ basis - mode
    heft = trials * chance * (1 - chance)
    precision = np.eye(basis.shape[1]) + (basis.T * heft[..., None, :]) @ basis
    step = np.linalg.solve(precision, slope[..., None])[..., 0]
    reach = np.abs(step @ basis.T).max(axis=-1, keepdims=True)
    return mode + step * np.minimum(1, 3 / np.maximum(reach, 1e-9)), precision, reach
