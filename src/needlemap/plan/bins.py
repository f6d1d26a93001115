"""Define depth bins: a cell accepts any needle position in its bin, so lengths can share one.

A cell (haystack length n, depth bin) accepts positions in [low, high]. Cells that share a
position p form a chain of growing lengths. One cache walks that chain, and computes its longest
length minus p tokens. `cover.py` chooses the positions. This module defines which ones may be
chosen, what a choice costs, and a lower bound on the cost of any choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from needlemap.text.tokens import Cuts, longest_sentence

Ints = NDArray[np.int64]
# Half the bin of a depth that stands alone, as a share.
_LONE = 0.05


@dataclass(frozen=True, slots=True)
class Bins:
    """The accepted positions of each cell.

    Attributes:
        low: (lengths, depths) the first accepted position, in haystack tokens.
        high: (lengths, depths) the last accepted position, at least `low`.
        sizes: (lengths,) haystack tokens of each length, ascending.
    """

    low: Ints
    high: Ints
    sizes: Ints


def bin_edges(depths: Sequence[float]) -> list[tuple[float, float]]:
    """Return each depth's bin as shares: half way to its neighbours, within [0, 1].

    >>> bin_edges([0.0, 0.5, 1.0])
    [(0.0, 0.25), (0.25, 0.75), (0.75, 1.0)]
    """
    last = len(depths) - 1
    edges = []
    for number, depth in enumerate(depths):
        below = _reach(depths, 0) if number == 0 else (depth - depths[number - 1]) / 2
        above = _reach(depths, -1) if number == last else (depths[number + 1] - depth) / 2
        edges.append((max(0.0, depth - below), min(1.0, depth + above)))
    return edges


def make_bins(sizes: Sequence[int], edges: Sequence[tuple[float, float]]) -> Bins:
    """Return the accepted positions of every cell.

    sizes: haystack tokens of each length, ascending. edges: each depth's bin, as shares.
    """
    lengths = np.array(sizes, np.int64)
    shares = np.array(edges, np.float64)
    low = np.ceil(shares[None, :, 0] * lengths[:, None] - 1e-9).astype(np.int64)
    high = np.floor(shares[None, :, 1] * lengths[:, None] + 1e-9).astype(np.int64)
    # A position between two bins belongs to the deeper one.
    high[:, :-1] -= high[:, :-1] == low[:, 1:]
    return Bins(low=low, high=np.maximum(low, high), sizes=lengths)


def chain_tokens(chosen: Ints, sizes: Ints) -> int:
    """Return how many haystack tokens a walk of chosen positions computes.

    That is the trunk, and for each position the longest length asked there minus the position.
    """
    longest: dict[int, int] = {}
    for row, size in zip(chosen.tolist(), sizes.tolist(), strict=True):
        # Lengths ascend, so the last one is the longest.
        longest |= dict.fromkeys(row, size)
    return max(longest) + sum(size - position for position, size in longest.items())


def lower_bound(bins: Bins) -> int:
    """Return the haystack tokens that no choice of positions can go below.

    Cells of one length whose bins are disjoint have different positions. So token x is computed
    once for each of them that has its needle before x for certain, and the length with the most
    such cells counts. If some cell has its needle after x for certain, x is also computed once on
    the trunk.
    """
    end = int(bins.sizes[-1])
    copies = np.zeros(end, np.int64)
    for row, size in enumerate(bins.sizes.tolist()):
        before = np.searchsorted(_disjoint_ends(bins, row), np.arange(size), side="right")
        copies[:size] = np.maximum(copies[:size], before)
    trunk = np.arange(end) < int(bins.low.max())
    return int(np.sum(copies + trunk))


def _disjoint_ends(bins: Bins, row: int) -> list[int]:
    """Return the last positions of one length's bins, ascending.

    Of bins that overlap, as in tiny haystacks, only the first one counts.
    """
    ends: list[int] = []
    edges = zip(bins.low[row].tolist(), bins.high[row].tolist(), strict=True)
    for low, high in sorted(edges, key=itemgetter(1)):
        if not ends or low > ends[-1]:
            ends.append(high)
    return ends


def _reach(depths: Sequence[float], end: int) -> float:
    """Return how far the bin at one end of the depths reaches outwards: as far as inwards.

    end: 0 for the first depth, -1 for the last.
    """
    if len(depths) < 2:
        return _LONE
    if end == 0:
        return (depths[1] - depths[0]) / 2
    return (depths[-1] - depths[-2]) / 2


def legal_positions(bins: Bins, cuts: Cuts) -> Ints:
    """Return the last sentence end in each bin, as (lengths, depths).

    If a bin has no sentence end, take the last one before it: such a cell keeps its exact depth.
    If hardly any sentence ends there, take the last cut in the bin between words, or else between
    characters.
    """
    last = np.minimum(bins.high, len(cuts.sentence) - 1)
    ends = cuts.sentence[last].astype(np.int64)
    words = cuts.safe_before[last].astype(np.int64)
    best = np.where(words >= bins.low, words, cuts.character[last])
    longest = np.array([longest_sentence(size) for size in bins.sizes.tolist()])
    has_sentences = cuts.sentence_after(last) - ends <= longest[:, None]
    return np.where(has_sentences | (ends >= bins.low), ends, best)


def bin_columns(bins: Bins, candidates: Ints) -> Ints:
    """Return the number of the depth whose bin holds each candidate, as (candidates, lengths).

    If no bin of a length holds a candidate, its number is -1.
    """
    columns = np.full((len(candidates), len(bins.sizes)), -1, np.int64)
    for row in range(len(bins.sizes)):
        depth = np.searchsorted(bins.low[row], candidates, side="right") - 1
        inside = (depth >= 0) & (candidates <= bins.high[row][np.maximum(depth, 0)])
        columns[:, row] = np.where(inside, depth, -1)
    return columns
