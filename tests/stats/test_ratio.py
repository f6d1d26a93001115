"""Ratios of sums: their value is exact, their interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from needlemap.stats.cube import linearise
from needlemap.stats.curves import length_means
from needlemap.stats.difference import paired_difference
from needlemap.stats.ratio import LEAST, ratio_interval, ratio_mean


def drawn(random, haystacks, trials, share, spread=0.3):
    """Gains and oracle gains whose ratio is `share` in the long run: trials of a haystack find
    nearly all or nearly nothing, more alike than those of others."""
    most = np.exp(random.normal(1.2, spread, (haystacks, 1))) * np.exp(
        random.normal(0, 0.1, (haystacks, trials))
    )
    own = random.beta(5 * share, 5 * (1 - share), (haystacks, 1))
    found = random.beta(own + 1e-3, 1 - own + 1e-3, (haystacks, trials))
    return most * found + random.normal(0, 0.15, (haystacks, trials)), most


def test_the_mean_of_linearised_scores_is_the_ratio_of_the_sums():
    gains, most = np.array([[1.0, 5.0], [0.5, -0.25]]), np.array([[2.0, 5.0], [8.0, 1.0]])
    assert linearise(gains, most).mean() == pytest.approx(6.25 / 16)


def test_missing_trials_count_in_neither_sum():
    gains, most = np.array([1.0, np.nan, 3.0]), np.array([4.0, np.nan, 4.0])
    scores = linearise(gains, most)
    assert np.isnan(scores[1])
    assert np.nanmean(scores) == pytest.approx(0.5)


def test_without_a_sum_to_divide_by_nothing_is_scored():
    assert np.isnan(linearise(np.array([1.0, 2.0]), np.array([0.5, -0.5]))).all()


def test_few_haystacks_have_a_value_and_no_interval():
    gains, most = np.ones((LEAST - 1, 4)), np.full((LEAST - 1, 4), 2.0)
    found = ratio_mean(linearise(gains, most))
    assert (found.score, found.low, found.high) == (0.5, None, None)


def test_nothing_measured_is_nothing():
    assert ratio_interval(np.full((3, 2), np.nan)) is None


def test_a_map_shows_no_more_than_everything_and_no_less_than_nothing():
    gains, most = np.array([[2.2], [2.1], [2.3]]), np.full((3, 1), 2.0)
    over = ratio_mean(linearise(gains, most))
    under = ratio_mean(linearise(-gains, most))
    assert over.score == over.high == 1.0
    assert under.score == under.low == 0.0


@pytest.mark.parametrize("share", [0.02, 0.36, 0.66, 0.95])
@pytest.mark.parametrize(("haystacks", "trials"), [(5, 3), (10, 1), (20, 5)])
def test_the_interval_holds_the_truth(haystacks, trials, share):
    random = np.random.default_rng(1)
    gains, most = drawn(random, 20_000, trials, share)
    truth, held, runs = gains.sum() / most.sum(), 0, 300
    for _ in range(runs):
        _, low, high = ratio_interval(linearise(*drawn(random, haystacks, trials, share)))
        held += low <= truth <= high
    assert held / runs >= 0.93


def test_needles_that_harm_have_an_effective_length_too():
    """One haystack was left at a length, and its gains summed to less than nothing: the doubt about
    lengths at which all haystacks agree took that for a count of hits."""
    scores, drawn = np.array([[-0.4, -0.2]]), np.ones((5, 1))
    assert (length_means(scores, drawn, order=np.arange(5)) >= 0).all()


def test_a_difference_lies_in_its_interval_even_where_a_needle_harms():
    first, second = np.array([[1.0, 0.8], [0.9, 1.0]]), np.array([[-0.5, -0.6], [-0.4, -0.9]])
    found = paired_difference(first, second)
    assert found.low <= found.value <= found.high
    assert found.value < -1
