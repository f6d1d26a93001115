"""Paired differences, their tests and their interval, beside brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from needlemap.maps.difference import holm, mcnemar, paired_difference, sign_flip


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (6, 0), (3, 5), (5, 3), (7, 7), (2, 11)])
def test_mcnemar_is_the_share_of_all_coin_tosses_that_are_as_extreme(lost, gained):
    tosses = [sum(row) for row in product((0, 1), repeat=lost + gained)]
    far = abs(lost - gained)
    expected = sum(abs(2 * heads - len(range(lost + gained))) >= far for heads in tosses) / len(tosses)
    assert mcnemar(lost, gained) == pytest.approx(expected)


def test_mcnemar_of_thousands_is_exact_and_finite():
    assert 0.02 < mcnemar(5_100, 4_870) < 0.03
    assert mcnemar(3_000, 0) == 0.0 or mcnemar(3_000, 0) < 1e-300


def test_sign_flips_go_through_all_patterns(random):
    totals = random.normal(0.4, 1, 7)
    patterns = [abs(np.dot(signs, totals)) for signs in product((-1, 1), repeat=7)]
    assert sign_flip(totals) == np.mean([p >= abs(totals.sum()) - 1e-9 for p in patterns])
    assert sign_flip(np.zeros(5)) == 1.0


def test_many_clusters_are_sampled_near_the_exact_value():
    totals = np.array([1.0] * 12 + [-1.0] * 4)
    assert sign_flip(totals) == pytest.approx(mcnemar(12, 4), abs=0.01)


def test_holm_steps_down_and_never_decreases():
    assert holm([0.04, 0.001, 0.03, 0.5]) == pytest.approx((0.09, 0.004, 0.09, 0.5))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


def test_a_difference_counts_what_was_lost_and_gained():
    first, second = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    found = paired_difference(first, second, graded=False)
    assert (found.lost, found.gained, found.n, found.clusters) == (2, 1, 6, 2)
    assert found.value == pytest.approx(-1 / 6)
    assert (found.first, found.second, found.p) == (0.5, pytest.approx(1 / 3), mcnemar(2, 1))
    assert found.low < found.value < found.high


def test_pairs_with_one_score_are_left_out():
    nan = np.nan
    found = paired_difference(np.array([[1.0, nan, 1.0]]), np.array([[1.0, 1.0, nan]]), graded=False)
    assert (found.n, found.value) == (1, 0.0)
    assert paired_difference(np.array([[nan]]), np.array([[1.0]]), graded=True) is None


def test_equal_answers_are_no_certainty_but_grow_surer():
    halves = [paired_difference(np.ones((5, m)), np.ones((5, m)), graded=False).high for m in (2, 20, 200)]
    assert halves == sorted(halves, reverse=True)
    assert halves[0] > 0.1
    assert halves[2] < 0.002


def test_one_pair_in_each_haystack_has_agresti_and_mins_interval():
    first = np.array([[1.0]] * 100)
    second = np.array([[0.0]] * 3 + [[1.0]] * 97)
    found = paired_difference(first, second, graded=False)
    centre, spread = -3 / 102, (4 / 102 - (3 / 102) ** 2) ** 0.5 / 102**0.5
    assert found.low <= centre - 1.96 * spread + 1e-6
    assert found.high >= centre + 1.96 * spread - 1e-6


def test_haystacks_that_turn_together_widen_the_interval():
    together = np.array([[0.0] * 10] * 2 + [[1.0] * 10] * 8)
    apart = np.tile([0.0, 0.0] + [1.0] * 8, (10, 1))
    ones = np.ones((10, 10))
    wide, narrow = (paired_difference(ones, second, graded=False) for second in (together, apart))
    assert wide.value == narrow.value
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_graded_scores_are_bootstrapped_over_haystacks(random):
    first = random.random((30, 6))
    second = first - 0.1 + random.normal(0, 0.05, (30, 1))
    found = paired_difference(first, second, graded=True)
    by_haystack = (second - first).mean(axis=1)
    error = by_haystack.std(ddof=1) / 30**0.5
    assert found.low == pytest.approx(by_haystack.mean() - 2.045 * error, abs=0.2 * error)
    assert found.high == pytest.approx(by_haystack.mean() + 2.045 * error, abs=0.2 * error)
    assert found.p < 0.001
