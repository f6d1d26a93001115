"""Depth bins: what a cell accepts, what a choice of positions costs, and the least that any can."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from needlemap.plan.bins import (
    Bins,
    bin_columns,
    bin_edges,
    chain_tokens,
    legal_positions,
    lower_bound,
    make_bins,
)

DEPTHS = st.lists(st.integers(0, 1000), min_size=1, max_size=8, unique=True).map(
    lambda found: [depth / 1000 for depth in sorted(found)]
)


def sizes(largest: int, most: int = 5) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, largest), min_size=1, max_size=most, unique=True).map(sorted)


@given(DEPTHS)
def test_bins_hold_their_depth_and_never_overlap(depths):
    edges = bin_edges(depths)
    assert all(
        0 <= low <= depth <= high <= 1 for (low, high), depth in zip(edges, depths, strict=True)
    )
    assert all(one[1] <= other[0] + 1e-12 for one, other in pairwise(edges))


def test_bins_of_a_whole_grid_leave_no_gap():
    edges = bin_edges([place / 10 for place in range(11)])
    assert (edges[0][0], edges[-1][1]) == (0, 1)
    assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(edges))


def test_bins_of_uneven_depths_reach_half_way():
    edges = np.array(bin_edges([0.1, 0.2, 0.6]))
    assert edges == pytest.approx(np.array([(0.05, 0.15), (0.15, 0.4), (0.4, 0.8)]))


def test_a_depth_alone_has_a_twentieth_on_either_side():
    assert bin_edges([0.5]) == [(0.45, 0.55)]
    assert bin_edges([0.0]) == [(0.0, 0.05)]


@given(sizes(2000), DEPTHS)
def test_accepted_positions_realise_a_depth_inside_the_bin(lengths, depths):
    edges = bin_edges(depths)
    bins = make_bins(lengths, edges)
    assert (bins.low <= bins.high).all()
    for row, column in product(range(len(lengths)), range(len(depths))):
        low, high = edges[column]
        if np.ceil(low * lengths[row]) < np.floor(
            high * lengths[row]
        ):  # else there is no room in it
            assert low - 1e-9 <= bins.low[row, column] / lengths[row]
            assert bins.high[row, column] / lengths[row] <= high + 1e-9
    roomy = np.array([(high - low) * lengths[0] > 2 for low, high in edges]).all()
    assert not roomy or (bins.high[:, :-1] < bins.low[:, 1:]).all()


@given(sizes(60), st.data())
def test_chain_tokens_are_the_nodes_of_the_haystacks_tree(lengths, data):
    depths = data.draw(st.integers(1, 4))
    chosen = [[data.draw(st.integers(0, size)) for _ in range(depths)] for size in lengths]
    trunk = {token for row in chosen for position in row for token in range(position)}
    behind = {
        (position, token)
        for row, size in zip(chosen, lengths, strict=True)
        for position in row
        for token in range(position, size)
    }
    assert chain_tokens(np.array(chosen), np.array(lengths)) == len(trunk) + len(behind)


@given(sizes(14, 3), DEPTHS)
def test_no_choice_of_positions_on_a_tiny_grid_is_below_the_lower_bound(lengths, depths):
    bins = make_bins(lengths, bin_edges(depths))
    ranges = [
        range(low, high + 1) for low, high in zip(bins.low.ravel(), bins.high.ravel(), strict=True)
    ]
    assume(np.prod([len(accepted) for accepted in ranges]) <= 3000)
    shape = bins.low.shape
    choices = (np.array(choice).reshape(shape) for choice in product(*ranges))
    assert lower_bound(bins) <= min(chain_tokens(choice, bins.sizes) for choice in choices)


def test_bins_that_overlap_count_once_in_the_lower_bound():
    """Two cells of a tiny haystack may have to share their position: the bound once counted them
    apart."""
    bins = Bins(np.array([[1, 1]]), np.array([[1, 1]]), np.array([3]))
    assert lower_bound(bins) == chain_tokens(np.array([[1, 1]]), bins.sizes) == 3


@given(sizes(300), DEPTHS)
def test_a_candidate_is_in_the_bin_that_holds_it(lengths, depths):
    bins = make_bins(lengths, bin_edges(depths))
    assume((bins.high[:, :-1] < bins.low[:, 1:]).all())
    candidates = np.arange(0, 301, 7)
    found = bin_columns(bins, candidates)
    for line, row in product(range(len(candidates)), range(len(lengths))):
        inside = (bins.low[row] <= candidates[line]) & (candidates[line] <= bins.high[row])
        assert found[line, row] == (int(np.flatnonzero(inside)[0]) if inside.any() else -1)


def test_a_legal_position_is_the_last_sentence_end_in_the_bin_or_before_it(cuts):
    bins = make_bins([100], [(0.0, 0.5), (0.52, 0.58), (0.92, 0.98)])
    assert legal_positions(bins, cuts(100)).tolist() == [[40, 40, 80]]
    assert legal_positions(bins, cuts(100, sentence=30)).tolist() == [[30, 30, 90]]


def test_where_hardly_any_sentence_ends_it_is_between_words_else_between_characters(cuts):
    bins = make_bins([1000], [(0.2, 0.39), (0.598, 0.604)])
    assert legal_positions(bins, cuts(1000, sentence=400)).tolist() == [
        [0, 400]
    ]  # 400 tokens: a sentence
    assert legal_positions(bins, cuts(1000, sentence=401, character=5)).tolist() == [[390, 600]]
    words = replace(cuts(1000, sentence=999), safe_before=cuts(1000, sentence=70).sentence)
    assert legal_positions(bins, words).tolist() == [[350, 604]]
