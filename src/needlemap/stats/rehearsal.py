"""Rehearse a seek with made-up models.

A plan learns from it what the seek will cost, and a benchmark how well it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log

import numpy as np
from numpy.typing import NDArray

from needlemap.stats import Array
from needlemap.stats.seek import (
    PLACES,
    LengthAsks,
    LengthAxis,
    Posterior,
    batch_size,
    learn,
    next_batch,
    tokens_of,
)

# Takes the numbers of maps and of lengths, and returns hits.
Answer = Callable[[NDArray[np.int64], NDArray[np.int64]], Array]
# Made-up models of each kind for a plan.
_MODELS = 12
# Intraclass correlation of a haystack's answers in a plan.
_ALIKE = 0.1
# A plan's models give up after so many asks' tokens at the longest length.
_MOST = 400


def tokens_by_kind(
    axis: LengthAxis, threshold: float, within: float
) -> dict[str, tuple[float, float, float]]:
    """Return 10 %, median and 90 % of the prompt tokens, by kind of model.

    `threshold` and `within` are shares.
    """
    tokens_by_kind = {}
    for kind, curve in _curves_by_kind(axis, threshold).items():
        tally, _ = rehearse(
            axis,
            partial(_answers, np.random.default_rng(0), curve),
            _MODELS,
            threshold=threshold,
            within=within,
            most_tokens=_MOST * PLACES * axis.lengths[-1],
        )
        low, median, high = np.quantile(tokens_of(axis, tally), [0.1, 0.5, 0.9]).tolist()
        tokens_by_kind[kind] = low, median, high
    return tokens_by_kind


def _curves_by_kind(axis: LengthAxis, threshold: float) -> dict[str, Array]:
    """Return the chance of a hit by length, for each kind of model.

    The chance of the last kind stays above the threshold. Those of the others are logistic curves.
    """
    octaves = axis.logs - axis.logs[0]
    threshold_logit = log(threshold / (1 - threshold))
    # The share of the axis at which a curve falls through the threshold, and the logits that it
    # falls in an octave.
    falls = {
        "fails at the shortest lengths": (-0.2, 2.0),
        "falls steeply in the first half": (0.35, 3.0),
        "falls steeply in the second half": (0.7, 3.0),
        "falls slowly in the middle": (0.5, 0.8),
    }
    curves = {
        kind: np.asarray(
            1 / (1 + np.exp(slope * (octaves - share * octaves[-1]) - threshold_logit))
        )
        for kind, (share, slope) in falls.items()
    }
    curves["holds to the end"] = np.full(octaves.shape, (3 + threshold) / 4)
    return curves


def _answers(random: np.random.Generator, curve: Array, _: Array, lengths: Array) -> Array:
    """Return the hits of PLACES trials for each ask, by a beta-binomial distribution.

    _ALIKE is its intraclass correlation.
    """
    chance = curve[lengths]
    concentration = 1 / _ALIKE - 1
    alpha, beta = concentration * chance, concentration * (1 - chance)
    return np.asarray(random.binomial(PLACES, random.beta(alpha, beta)))


def rehearse(
    axis: LengthAxis,
    answer: Answer,
    maps: int,
    *,
    threshold: float,
    within: float,
    most_tokens: float,
) -> tuple[LengthAsks, Posterior]:
    """Seek in made-up models, many at a time, and return the asks and the posterior of each.

    A seek stops once its interval is close, or once `most_tokens` were asked.

    answer: returns the hits of PLACES trials for each ask.
    """
    tally = LengthAsks.nothing(maps, len(axis.lengths))
    # The numbers of the maps that still ask.
    live = np.arange(maps)
    asks = np.repeat(axis.first()[None], maps, axis=0)
    mode = None
    outcome = None
    while len(live):
        rows, columns = np.nonzero(asks)
        times = asks[rows, columns]
        places = live[np.repeat(rows, times)], np.repeat(columns, times)
        tally.add(places, answer(*places), np.array(PLACES))

        live_tally = tally.part(live)
        posterior = learn(axis, live_tally, threshold, mode)
        if outcome is None:
            # The first posterior is that of all maps.
            outcome = posterior
        for name in ("crossings", "mode", "precision", "effect", "curves"):
            getattr(outcome, name)[live] = getattr(posterior, name)

        counts = [batch_size(int(count)) for count in live_tally.asks.sum(axis=-1)]
        sizes = np.array(counts, dtype=np.int64)
        asks = next_batch(posterior, live_tally, within, sizes, threshold)
        going = asks.any(axis=-1) & (tokens_of(axis, live_tally) <= most_tokens)
        asks = asks[going]
        mode = posterior.mode[going]
        live = live[going]
    # There are maps.
    assert outcome is not None
    return tally, outcome
