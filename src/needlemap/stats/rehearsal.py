"""What a seek asks of made-up models: what it will cost, for a plan; how well it finds, for a
benchmark."""

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
)

Answer = Callable[
    [NDArray[np.int64], NDArray[np.int64]], Array
]  # of maps' and lengths' numbers: hits
_MODELS = 12  # made-up ones of each kind that a plan is reckoned with
_ALIKE = 0.1  # intraclass correlation of a haystack's answers in a plan
_MOST = 400  # times the longest length, asked PLACES times: where a plan's models give up


def tokens_by_kind(
    axis: LengthAxis, threshold: float, within: float
) -> dict[str, tuple[float, float, float]]:
    """Prompt tokens by kind of model: 10 %, median and 90 %. threshold, within: shares."""
    found, most = {}, _MOST * PLACES * axis.lengths[-1]
    for name, curve in _curves(axis, threshold).items():
        answer = partial(_answers, np.random.default_rng(0), curve)
        asked, _ = rehearse(
            axis, answer, _MODELS, threshold=threshold, within=within, most_tokens=most
        )
        tokens = (asked.trials * np.array(axis.lengths)).sum(axis=-1)
        low, middle, high = np.quantile(tokens, [0.1, 0.5, 0.9]).tolist()
        found[name] = low, middle, high
    return found


def _curves(axis: LengthAxis, threshold: float) -> dict[str, Array]:
    """Chances by length: falls through the threshold at a place, by so many logits an octave,
    or none."""
    octaves, level = axis.logs - axis.logs[0], log(threshold / (1 - threshold))
    falls = {
        "fails at the shortest lengths": (-0.2, 2.0),
        "falls steeply in the first half": (0.35, 3.0),
        "falls steeply in the second half": (0.7, 3.0),
        "falls slowly in the middle": (0.5, 0.8),
    }
    found = {
        name: np.asarray(1 / (1 + np.exp(slope * (octaves - share * octaves[-1]) - level)))
        for name, (share, slope) in falls.items()
    }
    return found | {"holds to the end": np.full(octaves.shape, (3 + threshold) / 4)}


def _answers(random: np.random.Generator, curve: Array, _: Array, at: Array) -> Array:
    chance, heft = curve[at], 1 / _ALIKE - 1
    return np.asarray(random.binomial(PLACES, random.beta(heft * chance, heft * (1 - chance))))


def rehearse(
    axis: LengthAxis,
    answer: Answer,
    maps: int,
    *,
    threshold: float,
    within: float,
    most_tokens: float,
) -> tuple[LengthAsks, Posterior]:
    """Seek in made-up models, many at a time: all that was asked of each, and what was known
    in the end.

    answer: hits of PLACES trials for each ask. Ends where the interval is close, or
    most_tokens were asked.
    """
    asked, live, best = LengthAsks.nothing(maps, len(axis.lengths)), np.arange(maps), None
    asks, mode = np.repeat(axis.first()[None], maps, axis=0), None
    while len(live):
        rows, places = np.nonzero(asks)
        times = asks[rows, places]
        at = live[np.repeat(rows, times)], np.repeat(places, times)
        asked.add(at, answer(*at), np.array(PLACES))
        seen = asked.part(live)
        known = learn(axis, seen, threshold, mode)
        best = best or known  # the first is of all maps
        for name in ("crossings", "mode", "precision", "effect", "curves"):
            getattr(best, name)[live] = getattr(known, name)
        counts = [batch_size(int(count)) for count in seen.asks.sum(axis=-1)]
        asks = next_batch(known, seen, within, np.array(counts, dtype=np.int64), threshold)
        spent = (seen.trials * np.array(axis.lengths)).sum(axis=-1)
        going = asks.any(axis=-1) & (spent <= most_tokens)
        asks, mode, live = asks[going], known.mode[going], live[going]
    assert best is not None  # there are maps
    return asked, best
