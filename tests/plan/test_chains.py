"""Improving a cover: it never gets dearer, its counts stay true, and every cell stays pierced."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.plan.bins import Bins, bin_edges, chain_tokens, legal_positions, make_bins
from needlemap.plan.cover import Cover, Pierced, improved


def setting(cuts, lengths: list[int], depths: int) -> tuple[Bins, Pierced]:
    bins = make_bins(
        sorted(lengths), bin_edges([place / max(1, depths - 1) for place in range(depths)])
    )
    legal = legal_positions(bins, cuts(2000, sentence=10))
    return bins, Pierced.of(bins, legal, legal)


GRIDS = (st.lists(st.integers(100, 2000), min_size=1, max_size=6, unique=True), st.integers(1, 6))


def counted(cover: Cover) -> list[int]:
    """How many chains pierce each cell, counted anew."""
    found = [0] * cover.pierced.none
    for place, top in cover.chains.items():
        for cell in cover.pierced.bins[place, : top + 1].tolist():
            if cell != cover.pierced.none:
                found[cell] += 1
    return found


@settings(max_examples=40, deadline=None)
@given(*GRIDS, st.integers(0, 99))
def test_a_better_cover_pierces_every_cell_and_costs_no_more(cuts, lengths, depths, seed):
    bins, pierced = setting(cuts, lengths, depths)
    first = legal_positions(bins, cuts(2000, sentence=10))
    chosen = improved(pierced, first, 20, Random(seed))
    assert (bins.low <= chosen).all()
    assert (chosen <= bins.high).all()
    assert chain_tokens(chosen, bins.sizes) <= chain_tokens(first, bins.sizes)


@settings(max_examples=40, deadline=None)
@given(*GRIDS, st.integers(0, 99))
def test_counts_stay_true_through_tearing_filling_and_pruning(cuts, lengths, depths, seed):
    bins, pierced = setting(cuts, lengths, depths)
    random = Random(seed)
    cover = Cover.of(pierced, legal_positions(bins, cuts(2000, sentence=10)))
    before = counted(cover)
    assert cover.chain_counts[:-1].tolist() == before
    assert min(before) > 0
    torn = random.sample(sorted(cover.chains), min(3, len(cover.chains)))
    fresh = cover.copy()
    holes = fresh.tear(torn)
    assert fresh.chain_counts[:-1].tolist() == counted(fresh)
    assert sorted(holes.tolist()) == [
        cell for cell, count in enumerate(counted(fresh)) if not count
    ]
    if len(holes):
        fresh.fill(holes, *pierced.candidates_for(holes), random)
    fresh.prune(list(fresh.chains))
    assert fresh.chain_counts[:-1].tolist() == counted(fresh)
    assert min(counted(fresh)) > 0
    assert counted(cover) == before  # the copy was changed alone


def test_chains_that_others_make_needless_are_dropped():
    bins = Bins(np.array([[0], [0], [0]]), np.array([[50], [50], [50]]), np.array([60, 80, 100]))
    legal = np.array([[10], [30], [30]])
    cover = Cover.of(Pierced.of(bins, legal, legal), legal)
    cover.prune(list(cover.chains))
    assert cover.chains == {1: 2}  # the one at 30 serves the shortest length too
    assert cover.assigned(legal).tolist() == [[30], [30], [30]]


def test_the_cost_is_that_of_the_chains_and_the_trunk(cuts):
    bins, pierced = setting(cuts, [400, 900, 2000], 4)
    chosen = legal_positions(bins, cuts(2000, sentence=10))
    cover = Cover.of(pierced, chosen)
    assert cover.tokens(0, len(pierced.candidates)) == pytest.approx(
        chain_tokens(chosen, bins.sizes), abs=len(cover.chains)
    )
