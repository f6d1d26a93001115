"""A smoothed map: a smooth surface of chances through all cells, where it tells more than the raw
map.

The surface is a Gaussian process on the logit over the logarithm of the length and over depth, by
Laplace's approximation, its scales those of most evidence (Rasmussen and Williams 2006, sections
3.4 and 5.5.1). It is kept only where it foretells repeats that it has not seen better than raw
cells and their neighbours do: where hits and misses are repeatable cell by cell, smoothing ruins a
map. It has no intervals, and no mean, length or verdict is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from needlemap.maps import Array, Cell, Cube

_SCALES = tuple(
    product((1.0, 4.0), (0.15, 0.8, 4.0))
)  # octaves and shares of depth of like chances
_SPREAD, _RANK = 3**0.5, 10  # of an axis: its part in the spread on the logit, and how many curves
_STEPS = 12
_FOLDS = 5  # parts of the repeats, each foretold from the others
_LEAST = 3  # lengths, and depths


@dataclass(frozen=True, slots=True)
class Smoothed:
    """scores: the chance of each cell that has a score; empty where withheld, and withheld says
    why.

    missed: root mean square of what was foretold of repeats left out: by the surface, by raw cells,
    and by the means of cells and their neighbours; empty where none could be left out.
    """

    scores: Mapping[Cell, float] = field(default_factory=dict)
    withheld: str = ""
    missed: tuple[float, ...] = ()

    @property
    def line(self) -> str:
        """What is said of it."""
        told = "no mean, length or verdict is made of it" if self.scores else self.withheld
        if self.missed:
            smooth, raw, near = (f"{100 * each:.1f}" for each in self.missed)
            told += (
                f"; repeats left out are missed by {smooth} points smoothed, by {raw} from raw "
                f"cells, "
            )
            told += f"by {near} from neighbours"
        return f"smoothed: {told}" if self.scores else f"no smoothed map: {told}"


def smoothed(cube: Cube) -> Smoothed:
    """The smoothed layer of a run, or why there is none."""
    scores = cube.spread[[not np.isnan(each).all() for each in cube.spread]]
    if cube.ragged or min(scores.shape[1:]) < _LEAST:
        return Smoothed(withheld=f"it takes a grid of {_LEAST} lengths and {_LEAST} depths")
    if len(scores) < 2:
        return Smoothed(
            withheld="one repeat does not tell a rough map from chance; --repeats 2 does"
        )
    bases = surfaces(np.log2(cube.lengths), np.array(cube.depths))
    losses = held_out_losses(bases, scores)
    missed = tuple(np.sqrt(np.nanmean(losses, axis=(1, 2))).tolist())
    if not is_better(losses):
        return Smoothed(
            withheld="it foretells no better than raw cells and their neighbours", missed=missed
        )
    fitted = fit_surface(bases, scores)
    n = np.isfinite(scores).sum(axis=0)
    found = {
        (length, depth): float(fitted[row, column])
        for row, length in enumerate(cube.lengths)
        for column, depth in enumerate(cube.depths)
        if n[row, column]
    }
    return Smoothed(found, missed=missed)


def is_better(losses: Array) -> bool:
    """Whether the surface beats raw cells by more than a standard error, and their neighbours: of
    squared errors (surface, raw, neighbours; lengths; depths)."""
    known = np.flatnonzero(np.isfinite(losses[0]))
    apart = (losses[1:] - losses[0]).reshape(2, -1)[:, known]
    gains = apart.mean(axis=1)
    return bool(gains[0] > apart[0].std() / np.sqrt(apart.shape[1]) and gains[1] > 0)


def held_out_losses(bases: Sequence[Array], scores: Array) -> Array:
    """Mean squared errors in repeats left out, foretold from the others by the surface, by raw
    cells, by cells with their neighbours: (3, lengths, depths). scores: (repeats, lengths,
    depths)."""
    rows = []
    for part in np.array_split(np.arange(len(scores)), min(_FOLDS, len(scores))):
        rest = np.delete(scores, part, axis=0)
        hits, trials = np.nansum(rest, axis=0), (~np.isnan(rest)).sum(axis=0).astype(float)
        around = _box(hits) / np.where(trials > 0, _box(trials), np.nan)
        raw = hits / np.where(trials > 0, trials, np.nan)
        foretold = np.stack([np.where(trials > 0, fit_surface(bases, rest), np.nan), raw, around])
        rows.append((scores[part] - foretold[:, None]) ** 2)
    errors = np.concatenate(rows, axis=1)
    known = ~np.isnan(errors)
    sums = np.where(known, errors, 0).sum(axis=1)
    return np.asarray(sums / np.where(known.any(axis=1), known.sum(axis=1), np.nan))


def _box(values: Array) -> Array:
    """Sums over each cell and its eight neighbours."""
    wide, (rows, columns) = np.pad(values, 1), values.shape
    return np.asarray(sum(wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)))


def surfaces(octaves: Array, depths: Array) -> list[Array]:
    """By scales, (cells, curves): surfaces that a fit adds up with standard normal weights."""
    found = []
    for long, deep in _SCALES:
        along, down = (octaves, long), (depths, deep)
        curves = [matern_curves(*each, _SPREAD, _RANK) for each in (along, down)]
        found.append(np.asarray(np.kron(*curves), dtype=np.float64))
    return found


DEPTH_CELLS = 101  # whole percents
_NEAR = 3  # percents of depth between which a smooth curve hardly moves
_REPEATS, _NOISE = (
    0.3,
    2.5,
)  # correlation from which hits and misses repeat, and standard errors above it
_ENOUGH = 20.0  # pairs in one cell, each weighed by the variance of an answer


def is_rough(hits: Array, trials: Array) -> NDArray[np.bool_]:
    """Whether hits and misses repeat cell by cell, so that no smooth curve tells them: (...).

    hits, trials: (..., lengths, DEPTH_CELLS) of fresh haystacks. By the correlation of answers in
    one cell over that of answers in cells next to it, which a fall over depth, and haystacks that
    differ, move alike.
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
    """(places, rank): curves of which a Gaussian process is the sum with standard normal weights:
    the largest eigenvectors of a Matern 3/2 kernel."""
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


def fit_surface(bases: Sequence[Array], scores: Array) -> Array:
    """Chances (lengths, depths) by the scales of most evidence, from (repeats, lengths, depths)."""
    hits, trials = (
        np.nansum(scores, axis=0).ravel(),
        (~np.isnan(scores)).sum(axis=0).ravel().astype(float),
    )
    fits = [_fit(basis, trials, hits) for basis in bases]
    surface = max(fits, key=_evidence)[0]
    return np.asarray(1 / (1 + np.exp(-surface))).reshape(scores.shape[1:])


def _evidence(fit: tuple[Array, float]) -> float:
    return fit[1]


def _fit(basis: Array, trials: Array, hits: Array) -> tuple[Array, float]:
    """The likeliest surface on the logit, and the logarithm of its evidence but for a constant."""
    weights = np.zeros(basis.shape[1])
    for _ in range(_STEPS):
        weights, precision, far = newton(basis, trials, hits, weights)
        if far < 1e-3:
            break
    surface = np.clip(basis @ weights, -30, 30)
    likely = float(
        (hits * surface - trials * np.log1p(np.exp(surface))).sum() - weights @ weights / 2
    )
    return surface, likely - float(np.linalg.slogdet(precision)[1]) / 2
