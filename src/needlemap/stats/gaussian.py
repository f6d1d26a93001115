"""Curves of a Gaussian process on the logit, and whether a score is too rough for them.

Matern 3/2 kernel and Laplace's approximation (Rasmussen and Williams 2006, sections 3.4 and
4.2.1). `seek` fits the score over the logarithm of the length with these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from needlemap.stats import Array

DEPTH_CELLS = 101  # whole percents
_NEAR = 3  # percents of depth between which a smooth curve hardly moves
_REPEATS, _NOISE = (
    0.3,
    2.5,
)  # correlation from which hits and misses repeat, and standard errors above it
_ENOUGH = 20.0  # pairs in one cell, each weighed by the variance of an answer


def is_rough(hits: Array, trials: Array) -> NDArray[np.bool_]:
    """Whether hits and misses repeat cell by cell, so that no smooth curve tells them: (...).

    hits, trials: (..., lengths, DEPTH_CELLS) of fresh haystacks. By the correlation of answers
    in one cell over that of answers in cells next to it, which a fall over depth, and
    haystacks that differ, move alike.
    """
    pad = [(0, 0)] * (hits.ndim - 1) + [(_NEAR, _NEAR)]
    wide, many, cells = np.pad(hits, pad), np.pad(trials, pad), hits.shape[-1]
    beside = [at for at in range(2 * _NEAR + 1) if at != _NEAR]
    near_hits = sum(wide[..., at : at + cells] for at in beside)
    near = sum(many[..., at : at + cells] for at in beside)
    rates = hits.sum(axis=-1) / np.maximum(trials.sum(axis=-1), 1)
    apart = (trials * near).sum(axis=-1)
    pairs = np.where(apart > 0, (trials * (trials - 1)).sum(axis=-1), 0)
    expected = (hits * near_hits).sum(axis=-1) / np.maximum(apart, 1)
    together = np.where(apart > 0, (hits * hits - hits).sum(axis=-1) - pairs * expected, 0).sum(
        axis=-1
    )
    heft = (pairs * rates * (1 - rates)).sum(axis=-1)
    return np.asarray((heft > _ENOUGH) & (together > _REPEATS * heft + _NOISE * np.sqrt(heft)))


def matern_curves(places: Array, scale: float, spread: float, rank: int) -> Array:
    """(places, rank): curves of which a Gaussian process is the sum with standard normal
    weights: the largest eigenvectors of a Matern 3/2 kernel."""
    apart = np.sqrt(3) * np.abs(places[:, None] - places) / scale
    values, vectors = np.linalg.eigh(spread**2 * (1 + apart) * np.exp(-apart))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :rank])


def newton(basis: Array, trials: Array, hits: Array, mode: Array) -> tuple[Array, Array, Array]:
    """One step to the likeliest weights, (..., curves), no farther than 3 on the logit; the
    precision where it began; and how far on the logit it would go, (..., 1)."""
    chance = 1 / (1 + np.exp(-np.clip(mode @ basis.T, -30, 30)))
    slope = (hits - trials * chance) @ basis - mode
    heft = trials * chance * (1 - chance)
    precision = np.eye(basis.shape[1]) + (basis.T * heft[..., None, :]) @ basis
    step = np.linalg.solve(precision, slope[..., None])[..., 0]
    far = np.abs(step @ basis.T).max(axis=-1, keepdims=True)
    return mode + step * np.minimum(1, 3 / np.maximum(far, 1e-9)), precision, far
