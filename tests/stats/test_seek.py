"""Seeking an effective length: what is known from uneven asks, and which haystacks come next."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from needlemap.stats.rehearsal import rehearse
from needlemap.stats.seek import (
    PLACES,
    LengthAsks,
    LengthAxis,
    batch_size,
    learn,
    moved_ends,
    next_asks,
    next_batch,
    seek_result,
)

AXIS = LengthAxis.between(1_000, 128_000)


def asked(*asks: tuple[int, float], times: int = 1) -> LengthAsks:
    return LengthAsks.of(AXIS, [(length, hits, PLACES) for length, hits in asks] * times)


def test_lengths_lie_an_eighth_of_an_octave_apart_from_the_shortest_to_the_longest():
    assert len(AXIS.lengths) == 57
    assert (AXIS.lengths[0], AXIS.lengths[-1]) == (1_000, 128_000)
    assert np.diff(AXIS.logs) == pytest.approx(0.125, abs=1e-3)
    assert LengthAxis.between(500, 700).lengths[0] == 500


def test_it_begins_at_the_shortest_the_middle_and_three_quarters_of_the_way():
    begun = np.flatnonzero(AXIS.first())
    assert [AXIS.lengths[at] for at in begun.tolist()] == [1_000, 11_314, 38_055]


def test_a_fall_is_found_between_the_lengths_that_hold_and_those_that_do_not():
    fall = [(1_000, 8), (4_000, 8), (16_000, 8), (22_627, 8), (32_000, 1), (64_000, 0)]
    found = seek_result(AXIS, asked(*fall, times=12), 0.85, 0.3)
    assert 16_000 <= found.low <= found.point <= found.high == pytest.approx(32_000, rel=0.01)


def test_ends_move_outward_to_lengths_whose_own_score_lies_on_that_side():
    """Between two asked lengths nobody looked, so a cliff there is held whatever the curve says."""
    seen = asked((1_000, 8), (4_000, 8), (16_000, 8), (32_000, 0), times=40)
    known = learn(AXIS, seen, 0.85)
    (low, high), (lower, upper) = known.interval, moved_ends(known, seen, 0.85)
    assert lower < low < high < upper
    assert 2 ** np.array([lower, upper]) == pytest.approx([16_000, 32_000], rel=0.01)


def test_a_model_that_holds_or_fails_everywhere_has_no_length_inside():
    holds = seek_result(
        AXIS, asked(*((length, 8) for length in AXIS.lengths[::8]), times=12), 0.85, 0.3
    )
    fails = seek_result(AXIS, asked((1_000, 1), (11_000, 0), (38_000, 0), times=3), 0.85, 0.3)
    assert (holds.low, holds.high, holds.close) == (inf, inf, True)
    assert (fails.low, fails.high, fails.close) == (0.0, 0.0, True)


def test_a_score_that_crawls_through_the_threshold_has_no_point():
    crawl = [
        (length, 8 * (0.9 - 0.1 * np.log2(length / 1_000) / 7)) for length in AXIS.lengths[::8]
    ]
    found = seek_result(AXIS, asked(*crawl, times=6), 0.85, 0.3)
    assert (found.crawls, found.point, found.close) == (True, None, False)
    little = seek_result(AXIS, asked((1_000, 8), (11_000, 7)), 0.85, 0.3)
    assert (little.crawls, little.point) == (False, None)  # it is only wide


def test_a_dip_is_no_fall_for_good():
    seen = asked((1_000, 8), (10_000, 8), (20_000, 4), (45_000, 8), (60_000, 8), times=10)
    found = seek_result(AXIS, seen, 0.85, 0.3)
    assert 10_000 < found.point < 20_000


def test_haystacks_that_differ_widen_the_interval():
    """The same share of hits: half of the haystacks all right, half all wrong, or each right in
    half."""
    alike, apart = asked((16_000, 6.8), times=20), asked((16_000, 8), (16_000, 5.6), times=10)
    clustered = LengthAsks.of(AXIS, [(16_000, 8, 8)] * 17 + [(16_000, 0, 8)] * 3)
    assert float(alike.design_effect()) == 1.4
    assert float(apart.design_effect()) < 2
    assert float(clustered.design_effect()) > 4


def test_a_haystack_with_missing_answers_counts_for_what_it_has():
    whole = LengthAsks.of(AXIS, [(16_000, 7, 8), (16_000, 6, 8)] * 20)
    partly = LengthAsks.of(AXIS, [(16_000, 7, 8), (16_000, 6, 8)] * 19 + [(16_000, 1, 1)] * 4)
    assert float(partly.design_effect()) == pytest.approx(float(whole.design_effect()), abs=0.2)


def test_it_asks_where_an_answer_tells_most_per_token():
    seen = asked(*[(1_000, 8)] * 9, (11_314, 8), (38_055, 1))
    known = learn(AXIS, seen, 0.85)
    lengths = np.repeat(AXIS.lengths, next_asks(known, np.array(8)))
    assert len(lengths) == 8
    assert lengths.max() < 38_055  # dear, and known to fail
    assert np.median(lengths) > 2_000  # cheap, and known to hold


def test_lengths_next_to_a_narrow_interval_are_asked_before_it_ends():
    """So that an end moves by a spacing, not by octaves, and `>=` is said of a length that was
    asked."""
    seen = asked((1_000, 8), (4_000, 8), (16_000, 8), (32_000, 0), times=40)
    known = learn(AXIS, seen, 0.85)
    (low, high), asks = known.interval, next_batch(known, seen, 0.3, np.array(5), 0.85)
    near = AXIS.logs[(asks > 0) & (AXIS.logs > low - 0.126)]
    assert low - 0.126 <= near.min() <= low < high <= near.max() <= high + 0.126
    holds = asked(*((length, 8) for length in AXIS.lengths[:-8:8]), times=12)
    asks = next_batch(learn(AXIS, holds, 0.85), holds, 0.3, np.array(5), 0.85)
    assert asks[-1] == 1


def test_before_it_ends_no_gap_is_left_that_could_hide_half_an_octave():
    holds = asked(*((length, 8) for length in (1_000, 11_314, 38_055, 128_000)), times=12)
    asks = next_batch(learn(AXIS, holds, 0.85), holds, 0.3, np.array(5), 0.85)
    seen = np.flatnonzero(asks + holds.asks)
    assert np.diff(seen).max() == 3  # eighths of an octave
    assert set(asks.tolist()) == {0, 1}


def test_a_hole_between_lengths_that_hold_ends_the_interval():
    """A curve too smooth for it said `>=128k` flatly in one of ten."""
    inside = (AXIS.logs >= np.log2(40_000)) & (AXIS.logs < np.log2(57_000))
    chance = np.where(inside, 0.3, 0.99)
    random = np.random.default_rng(5)

    def answer(_, at):
        return random.binomial(PLACES, chance[at])

    seen, known = rehearse(AXIS, answer, 12, threshold=0.85, within=0.3, most_tokens=1e9)
    low, high = moved_ends(known, seen, 0.85)
    assert (high < np.log2(58_000)).all()
    assert (low > np.log2(20_000)).all()
    assert (low < np.log2(40_500)).all()
    one = seek_result(AXIS, seen.part(np.array(0)), 0.85, 0.3)
    assert one.low < 40_500 < one.high < 58_000


def test_a_score_near_the_threshold_stops_at_four_plain_grids_and_says_so():
    """A flat 88 % took 26 grids."""
    random = np.random.default_rng(7)

    def answer(which, _):
        return random.binomial(PLACES, 0.86, len(which))

    seen, _ = rehearse(AXIS, answer, 6, threshold=0.85, within=0.3, most_tokens=1e12)
    grid = 15 * np.geomspace(1_000, 128_000, 15).sum()
    assert (seen.trials * np.array(AXIS.lengths)).sum(axis=1).max() <= 4 * grid
    found = [seek_result(AXIS, seen.part(np.array(at)), 0.85, 0.3) for at in range(6)]
    assert all(each.spent == (0 if each.close else 4.0) for each in found)
    assert any(each.spent for each in found)


def test_batches_grow_by_a_fifth_and_keep_all_lanes_busy():
    assert [batch_size(asks) for asks in (3, 10, 100)] == [1, 2, 20]
    assert batch_size(3, lanes=64) == 8


def test_made_up_models_end_close_or_at_their_limit():
    chance = np.where(np.array(AXIS.lengths) < 20_000, 0.98, 0.2)
    random = np.random.default_rng(3)

    def answer(_, at):
        return random.binomial(PLACES, chance[at])

    seen, known = rehearse(AXIS, answer, 10, threshold=0.85, within=0.3, most_tokens=1e8)
    low, high = moved_ends(known, seen, 0.85)
    assert ((low <= np.log2(20_000)) & (np.log2(20_000) <= high)).all()
    spent = (seen.trials * np.array(AXIS.lengths)).sum(axis=1)
    assert (spent < 2e7).all()
    short, _ = rehearse(AXIS, answer, 3, threshold=0.85, within=0.03, most_tokens=3e6)
    assert ((short.trials * np.array(AXIS.lengths)).sum(axis=1) >= 3e6).all()
