"""Depth bins: each cell accepts any needle position inside its bin, so that many lengths can
share one.

A cell (haystack length n, depth bin) accepts positions in [low, high]. Cells that share a
position p form a chain of growing lengths, which one cache walks at the cost of its longest
length less p. Which positions to take is in `cover.py`; here is what may be taken, what a
choice costs, and the least that any choice can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from needlemap.text.tokens import Cuts, longest_sentence

Ints = NDArray[np.int64]
_LONE = 0.05  # half the bin of a depth that stands alone, as a share


@dataclass(frozen=True, slots=True)
class Bins:
    """Accepted positions. low, high: (lengths, depths) haystack tokens, inclusive, low <=
    high.

    sizes: (lengths,) haystack tokens of each length, ascending.
    """

    low: Ints
    high: Ints
    sizes: Ints


def bin_edges(depths: Sequence[float]) -> list[tuple[float, float]]:
    """Each depth's bin as shares: half way to its neighbours, within [0, 1].

    >>> bin_edges([0.0, 0.5, 1.0])
    [(0.0, 0.25), (0.25, 0.75), (0.75, 1.0)]
    """
    edges = []
    for place, depth in enumerate(depths):
        below = (depth - depths[place - 1]) / 2 if place else _reach(depths, 0)
        above = (depths[place + 1] - depth) / 2 if place + 1 < len(depths) else _reach(depths, -1)
        edges.append((max(0.0, depth - below), min(1.0, depth + above)))
    return edges


def make_bins(sizes: Sequence[int], edges: Sequence[tuple[float, float]]) -> Bins:
    """Accepted positions of every cell, for haystacks of these many tokens (ascending)."""
    lengths = np.array(sizes, np.int64)
    shares = np.array(edges, np.float64)
    low = np.ceil(shares[None, :, 0] * lengths[:, None] - 1e-9).astype(np.int64)
    high = np.floor(shares[None, :, 1] * lengths[:, None] + 1e-9).astype(np.int64)
    high[:, :-1] -= (
        high[:, :-1] == low[:, 1:]
    )  # a position between two bins belongs to the deeper one
    return Bins(low, np.maximum(low, high), lengths)


def chain_tokens(chosen: Ints, sizes: Ints) -> int:
    """Haystack tokens that a walk computes: the trunk, and for each position its longest
    length less it."""
    tops: dict[int, int] = {}
    for row, size in zip(chosen.tolist(), sizes.tolist(), strict=True):
        tops |= dict.fromkeys(row, size)  # lengths ascend, so the last is the longest
    return max(tops) + sum(top - position for position, top in tops.items())


def lower_bound(bins: Bins) -> int:
    """Haystack tokens that no choice of positions can go below.

    Cells of one length whose bins are apart have different positions, so token x is computed
    once for each of them that surely has its needle before x; the most over all lengths
    counts. Where some cell surely has its needle behind x, x is also computed once on the
    trunk.
    """
    end = int(bins.sizes[-1])
    copies = np.zeros(end, np.int64)
    for row, size in enumerate(bins.sizes.tolist()):
        before = np.searchsorted(_apart(bins, row), np.arange(size), side="right")
        copies[:size] = np.maximum(copies[:size], before)
    trunk = np.arange(end) < int(bins.low.max())
    return int(np.sum(copies + trunk))


def _apart(bins: Bins, row: int) -> list[int]:
    """The last positions of a length's bins, ascending; of bins that overlap (tiny haystacks)
    the first's."""
    ends: list[int] = []
    for low, high in sorted(
        zip(bins.low[row].tolist(), bins.high[row].tolist(), strict=True), key=itemgetter(1)
    ):
        if not ends or low > ends[-1]:
            ends.append(high)
    return ends


def _reach(depths: Sequence[float], end: int) -> float:
    """How far the bin at an end of the depths reaches outwards: as far as inwards."""
    if len(depths) < 2:
        return _LONE
    first, second = (depths[0], depths[1]) if end == 0 else (depths[-2], depths[-1])
    return (second - first) / 2


def legal_positions(bins: Bins, cuts: Cuts) -> Ints:
    """(lengths, depths): the last sentence end in each bin.

    Where none is, the last one before it: such a cell will keep its exact place. Where hardly
    any sentence ends, the last cut in the bin between words, or else characters.
    """
    at = np.minimum(bins.high, len(cuts.sentence) - 1)
    ends, words = cuts.sentence[at].astype(np.int64), cuts.safe_before[at].astype(np.int64)
    best = np.where(words >= bins.low, words, cuts.character[at])
    longest = np.array([longest_sentence(size) for size in bins.sizes.tolist()])
    sentences = cuts.sentence_after(at) - ends <= longest[:, None]
    return np.where(sentences | (ends >= bins.low), ends, best)


def bin_columns(bins: Bins, candidates: Ints) -> Ints:
    """(candidates, lengths): the depth whose bin holds the candidate at that length, -1 where
    none does."""
    column = np.full((len(candidates), len(bins.sizes)), -1, np.int64)
    for row in range(len(bins.sizes)):
        place = np.searchsorted(bins.low[row], candidates, side="right") - 1
        inside = (place >= 0) & (candidates <= bins.high[row][np.maximum(place, 0)])
        column[:, row] = np.where(inside, place, -1)
    return column
